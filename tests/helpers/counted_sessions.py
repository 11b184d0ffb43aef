"""Sessions that count and trace what they are asked, around one that only notes it."""

from typing import Any, cast

from helpers.welcomes import unheard_welcome
from taskgate.domain.versions import Era
from taskgate.upstream.session import Makers, ServerSession, SessionUsage


def counted(inner: Any, usage: SessionUsage) -> ServerSession:
    """The session of a modern server that asks nothing but `inner`."""
    nothing = cast("Any", None)
    makers = Makers(legacy=nothing, modern=lambda _: inner)
    return ServerSession(
        Era.MODERN, nothing, host=None, upstream_context=nothing, makers=makers, welcome=unheard_welcome(), usage=usage
    )
