"""Receivers of what a server sends outside of calls (`Audience`), and the test `is_left`.

`HttpSession` creates one `Audience`, and all its conversations share it. `is_left` is separate: it
tells conversations and server tasks how to end a call.
"""

from collections.abc import Callable
from dataclasses import dataclass

from taskgate.domain.versions import Peer
from taskgate.upstream.call_listener import CallListener


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Receivers of the notifications and requests of a server that belong to no call.

    `listener` gets them all. `host` has the capabilities of the host that can answer questions;
    None if there is none. `catalogue_changed` is called, besides the listener, for each
    notification that the server's tools changed.
    """

    listener: CallListener
    host: Peer | None
    catalogue_changed: Callable[[], None]
