"""Protocol revisions and eras, and `Peer`: what one side declared about itself.

A revision is a published version of the MCP specification, named by its date. An era is the way in
which sides introduce themselves, and each revision belongs to one. `LEGACY` and `MODERN` list the
revisions of each era.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Era(StrEnum):
    """The two ways in which peers introduce themselves: in one handshake, or in every request.

    LEGACY is the handshake, by the method `initialize`. MODERN has none: each request has the
    revision, the capabilities and the name of its host.
    """

    LEGACY = "initialize"
    MODERN = "stateless"


class Revision(StrEnum):
    """The published revisions of both eras, oldest first."""

    R2024_11_05 = "2024-11-05"
    R2025_03_26 = "2025-03-26"
    R2025_06_18 = "2025-06-18"
    R2025_11_25 = "2025-11-25"
    R2026_07_28 = "2026-07-28"

    has_tasks: bool
    """Whether the core of the revision defines tasks; later ones have them as an extension."""

    def __init__(self, name: str) -> None:
        self.has_tasks = name == "2025-11-25"


Eras = tuple[Era, ...]
"""The eras that a server speaks; none while they are unknown."""

LEGACY: Final = (Revision.R2024_11_05, Revision.R2025_03_26, Revision.R2025_06_18, Revision.R2025_11_25)
"""The revisions that a handshake can agree on, oldest first."""

MODERN: Final = (Revision.R2026_07_28,)
"""The revisions of the modern era, oldest first."""

SERVED: Final = tuple(reversed(LEGACY + MODERN))
"""Every revision that hosts can use, newest first, as the gateway announces them to hosts."""

NEWEST_LEGACY: Final = LEGACY[-1]
"""The revision that the gateway offers to servers in a handshake.

It is also the counter-offer to a host whose `initialize` names no legacy revision (T-10).
"""


def era_of(revision: Revision) -> Era:
    """The era of a revision."""
    return Era.MODERN if revision in MODERN else Era.LEGACY


def find_revision(text: object) -> Revision | None:
    """The legacy revision of that name; None for a modern one, and for any other value."""
    return _LEGACY_BY_NAME.get(text) if isinstance(text, str) else None


def find_modern_revision(text: object) -> Revision | None:
    """The modern revision of that name; None for a legacy one, and for any other value."""
    return _MODERN_BY_NAME.get(text) if isinstance(text, str) else None


_LEGACY_BY_NAME: Final[dict[str, Revision]] = {revision.value: revision for revision in LEGACY}
_MODERN_BY_NAME: Final[dict[str, Revision]] = {revision.value: revision for revision in MODERN}


class Client(NamedTuple):
    """The `name` and `version` by which a host introduces itself; None unless it is a string."""

    name: str | None
    version: str | None


def client_of(info: Mapping[str, Any]) -> Client:
    """The `Client` of a `clientInfo`, cut to a length that can be stored with each session."""
    name, version = info.get("name"), info.get("version")
    return Client(
        name[:_MAX_CLIENT_FIELD] if isinstance(name, str) else None,
        version[:_MAX_CLIENT_FIELD] if isinstance(version, str) else None,
    )


_MAX_CLIENT_FIELD: Final = 512
"""Characters that are stored of a field of `clientInfo`."""


class Peer(NamedTuple):
    """One side of a session as it declared itself, in the handshake or in a modern request.

    `capabilities` is the parsed object as sent. `info` of a server is the parsed object as sent
    (`serverInfo`); of a host it has only the name and the version. The values inside are not
    validated: readers check the type of what they read.
    """

    revision: Revision
    capabilities: dict[str, Any]
    info: dict[str, Any]
