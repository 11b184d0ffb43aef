"""Who hears what a server says in a session, whatever becomes of the conversations in it."""

from collections.abc import Callable
from dataclasses import dataclass

from taskgate.domain.versions import Peer
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.calls import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who hears what a server says in a session, but for what belongs to a call.

    `host` is who can be asked. `catalogue_changed` is told of a change of the server's tools, besides whoever hears it.
    """

    listener: CallListener
    host: Peer | None
    catalogue_changed: Callable[[], None]


def is_left(call: Call) -> bool:
    """Whether somebody else goes on with a call that is given up here."""
    return call.listener is not None and call.listener.leaves
