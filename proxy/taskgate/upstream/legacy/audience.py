"""Receivers of a session's messages that belong to no call: `Audience`.

`HttpSession` creates one, and all its conversations share it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from taskgate.domain.versions import Peer
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.calls import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Receivers of a session's messages that belong to no call.

    `listener` gets those notifications and questions. `host` is the host that can be asked, with
    its capabilities; None if there is none. `catalogue_changed` is called, besides the listener,
    when the server says that its tools changed.
    """

    listener: CallListener
    host: Peer | None
    catalogue_changed: Callable[[], None]


def is_left(call: Call) -> bool:
    """Whether another process will resume a call that ends here now.

    Then the call is not cancelled at the server, and its server session stays open.
    """
    return call.listener is not None and call.listener.leaves
