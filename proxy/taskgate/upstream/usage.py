"""Counting and tracing of requests to servers: `RequestCounter`, `CallTracer` and `SessionUsage`.

Each session has a `SessionUsage`; its `call` counts in the `RequestCounter` and traces by the
`CallTracer`. The counts are for a metric and for a drain. `sessions.upstream_usage` makes the usage of
a session, `sessions.upstream_tracing` the tracer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.messages import Response
from taskgate.upstream.calls import UpstreamCall


class RequestCounter:
    """The requests of hosts and calls of tasks in flight, by the name of their upstream.

    A replaced server and its successor have the same name, so they count together.
    """

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()
        """The counts, kept by the sessions. A request ends when it is answered, fails, or is
        cancelled."""
        self.ended: asyncio.Event | None = None
        """Set by a session at the end of each request; None until a drain waits."""

    def read(self) -> dict[tuple[str], int]:
        """Present counts by name, as label values of a metric; idle upstreams may be missing."""
        return {(name,): count for name, count in self.in_flight.items()}

    async def wait_idle(self) -> None:
        """Wait until no request is in flight, at any upstream; used by a drain."""
        self.ended = ended = self.ended or asyncio.Event()
        while self.in_flight.total():
            ended.clear()
            await ended.wait()


class CallTracer(Protocol):
    """Tracing of the calls to one server."""

    def traced(
        self,
        call: UpstreamCall,
        listed: Callable[[str], ListedTool | None],
        send: Callable[[UpstreamCall], Coroutine[Any, Any, Response]],
    ) -> Coroutine[Any, Any, Response]:
        """Send a call by `send`, with a span and its trace context, and return the response.

        `listed` returns a tool that the server lists.
        """
        ...


def _ignore() -> None:
    """Do nothing: the open sessions are not counted."""


@dataclass(slots=True)
class SessionUsage:
    """Counter and tracer of the calls of one session.

    `name` is that of its upstream. `tracer` is None without tracing. `closed` is called once, when
    the session is closed.
    """

    name: str
    requests: RequestCounter = field(default_factory=RequestCounter)
    tracer: CallTracer | None = None
    closed: Callable[[], None] = _ignore
