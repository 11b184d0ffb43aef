"""Protocol revisions and eras, and `Peer`: what one side declared about itself.

Revisions compare by position in these tuples, not as text.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Era(StrEnum):
    """The two ways in which peers introduce themselves: in one handshake, or in every request."""

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
        """Whether the core of the revision defines tasks."""
        return self is Revision.R2025_11_25


LEGACY: Final = (Revision.R2024_11_05, Revision.R2025_03_26, Revision.R2025_06_18, Revision.R2025_11_25)
"""The revisions that a handshake can agree on, oldest first."""

MODERN: Final = (Revision.R2026_07_28,)
"""The revisions of the modern era, oldest first."""

SERVED: Final = tuple(reversed(LEGACY + MODERN))
"""Every revision that hosts can use, newest first, as they are announced (AMB-11)."""

NEWEST_LEGACY: Final = LEGACY[-1]
"""The offer to servers, and the counter-offer to a host that names another revision (T-10)."""


def era_of(revision: Revision) -> Era:
    """The era of a revision."""
    return Era.MODERN if revision in MODERN else Era.LEGACY


def find_revision(text: object) -> Revision | None:
    """The legacy revision of that name; None for any other value of any type."""
    return _LEGACY_BY_NAME.get(text) if isinstance(text, str) else None


def find_modern_revision(text: object) -> Revision | None:
    """The modern revision of that name; None for any other value of any type."""
    return _MODERN_BY_NAME.get(text) if isinstance(text, str) else None


_LEGACY_BY_NAME: Final[dict[str, Revision]] = {revision.value: revision for revision in LEGACY}
_MODERN_BY_NAME: Final[dict[str, Revision]] = {revision.value: revision for revision in MODERN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One side of a session as it declared itself, in the handshake or in a modern request.

    `capabilities` is the parsed object as sent. `info` is too for a server; for a host it is the
    name and version. The values are not validated: readers check the type of what they read.
    """

    revision: Revision
    capabilities: dict[str, Any]
    info: dict[str, Any]
