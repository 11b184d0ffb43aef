"""The welcome of a session whose server nobody asks about."""

from taskgate.domain.versions import Era
from taskgate.protocol.discovery import ServerDescription
from taskgate.upstream.descriptions import LastWelcomes, Welcome


def _unheard(_: ServerDescription) -> None:
    """Nobody wants to know."""


def unheard_welcome() -> Welcome:
    """One of a server that is never known to be down."""
    return Welcome(LastWelcomes(), lambda _: b"", era=Era.LEGACY, heard=_unheard, is_down=lambda: False)
