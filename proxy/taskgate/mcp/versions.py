"""The protocol revisions, the era each belongs to, and what one side said about itself.

Revisions are enumerated and compared by their place in the list, never as text.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Revision(StrEnum):
    """The published revisions of the initialize era, oldest first."""

    R2024_11_05 = "2024-11-05"
    R2025_03_26 = "2025-03-26"
    R2025_06_18 = "2025-06-18"
    R2025_11_25 = "2025-11-25"

    @property
    def has_tasks(self) -> bool:
        """Whether the revision defines tasks in its core."""
        return self is Revision.R2025_11_25


NEWEST = Revision.R2025_11_25
"""What the gateway offers to servers, and counter-offers to a host that names a revision it does not serve."""


def find_revision(text: object) -> Revision | None:
    """The revision of that name, or None for anything else, whatever its type."""
    return _BY_NAME.get(text) if isinstance(text, str) else None


_BY_NAME: dict[str, Revision] = {revision.value: revision for revision in Revision}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What one side said about itself in the handshake.

    `capabilities` and `info` are the parsed objects as sent; nothing in them is trusted further than its type was
    checked where it is read.
    """

    revision: Revision
    capabilities: dict[str, Any]
    info: dict[str, Any]
