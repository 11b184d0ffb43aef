"""What an upstream is made with: where its server is and how patient we are, and who hears how it does.

Values only. Where they come from is the configuration's business.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """One configured server.

    `connect` bounds the way to a connection, `first_byte` the wait for an answer's head (never for `tools/call`),
    `idle` the silence within an answer (None: any), `call` a whole call. `max_result` is in bytes of one message.
    """

    name: str
    url: str = field(repr=False)
    connect: timedelta
    first_byte: timedelta
    idle: timedelta | None
    call: timedelta
    max_result: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamObserver:
    """Hears how a server does. None of these may raise or wait.

    `answered`: method, seconds, and the JSON-RPC code or the reason of the failure, None for a result.
    `session_lost`: the server ended a session. `stream_opened` and `stream_ended`: `get` or `response`.
    """

    answered: Callable[[str, float, str | None], None]
    session_lost: Callable[[], None]
    stream_opened: Callable[[str], None]
    stream_ended: Callable[[str], None]
