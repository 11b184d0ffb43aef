"""The protocol revisions, the era each belongs to, and what one side said about itself.

Revisions are enumerated and compared by their place in the list, never as text.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Era(StrEnum):
    """How two sides come to know each other: once, in a handshake, or in every request anew."""

    LEGACY = "initialize"
    MODERN = "stateless"


class Revision(StrEnum):
    """The published revisions of both eras, oldest first."""

    R2024_11_05 = "2024-11-05"
    R2025_03_26 = "2025-03-26"
    R2025_06_18 = "2025-06-18"
    R2025_11_25 = "2025-11-25"
    R2026_07_28 = "2026-07-28"

    @property
    def has_tasks(self) -> bool:
        """Whether the revision defines tasks in its core."""
        return self is Revision.R2025_11_25


LEGACY: Final = (Revision.R2024_11_05, Revision.R2025_03_26, Revision.R2025_06_18, Revision.R2025_11_25)
"""The revisions of the legacy era, oldest first: all that a handshake can agree on."""

MODERN: Final = (Revision.R2026_07_28,)
"""The revisions of the modern era, oldest first."""

SERVED: Final = tuple(reversed(LEGACY + MODERN))
"""Every revision that hosts are served in, newest first, as they are told (AMB-11)."""

NEWEST_LEGACY: Final = LEGACY[-1]
"""What the gateway offers to servers, and counter-offers to a host that names a revision it does not serve (T-10)."""

NEWEST: Final = NEWEST_LEGACY
"""The same, under the name it had when there was one era."""


def era_of(revision: Revision) -> Era:
    """The era that a revision belongs to."""
    return Era.MODERN if revision in MODERN else Era.LEGACY


def find_revision(text: object) -> Revision | None:
    """The revision of the legacy era of that name, or None for anything else, whatever its type."""
    return _LEGACY_BY_NAME.get(text) if isinstance(text, str) else None


def find_modern_revision(text: object) -> Revision | None:
    """The revision of the modern era of that name, or None for anything else, whatever its type."""
    return _MODERN_BY_NAME.get(text) if isinstance(text, str) else None


_LEGACY_BY_NAME: Final[dict[str, Revision]] = {revision.value: revision for revision in LEGACY}
_MODERN_BY_NAME: Final[dict[str, Revision]] = {revision.value: revision for revision in MODERN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What one side said about itself: in the handshake, or in one request of the modern era.

    `capabilities` is the parsed object as sent, and so is `info` of a server; of a host it is the name and version.
    Nothing in them is trusted further than its type was checked where it is read.
    """

    revision: Revision
    capabilities: dict[str, Any]
    info: dict[str, Any]
