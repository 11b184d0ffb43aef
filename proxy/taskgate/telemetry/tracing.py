"""The seam of tracing: what the engine says of requests and calls, whoever makes spans of it, or nobody.

What must not live here: OpenTelemetry (`opentelemetry`). What holds: without tracing nothing is made, and a message
goes on as it came.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from taskgate.protocol.envelope import Request


class Span(Protocol):
    """One span that has begun. Nothing here raises or waits, and of one that is over nothing more is said."""

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        ...

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits."""
        ...

    @property
    def is_sampled(self) -> bool:
        """Whether it is exported, so that something may point at it."""
        ...

    @property
    def traceparent(self) -> str:
        """Its place as the W3C header has it: what is kept, and sent on."""
        ...

    @property
    def tracestate(self) -> str | None:
        """What vendors say beside it; None where they say nothing."""
        ...

    def link(self, traceparent: str) -> None:
        """Point at another span. What is no traceparent is passed over."""
        ...

    def note(self, name: str, value: str | int | float) -> None:
        """Set an attribute."""
        ...

    def about(self, task: str) -> None:
        """It is about the task of that id, which is told in a form that nobody can use."""
        ...

    def calls(self, tool: str) -> None:
        """It is the call of a tool that its server lists."""
        ...

    def finish(self, error: str | None = None) -> None:
        """It is over; `error` is a JSON-RPC code, `tool_error`, or the reason of a failure."""
        ...


class Tracing(Protocol):
    """Makes spans. None is returned where there is nothing to trace."""

    def serving(
        self, request: Request, *, mount: str, revision: str | None, fields: Collection[tuple[str, str]]
    ) -> Span | None:
        """A SERVER span for a request of a host; `fields` are the header fields that it came with."""
        ...

    def calling(
        self, method: str, *, mount: str, tool: str | None, parent: Span | None, link: str | None = None
    ) -> Span | None:
        """A CLIENT span for a request to a server: below `parent`, or on its own and pointing at `link`.

        `tool` is one that the server lists, or None.
        """
        ...

    async def close(self) -> None:
        """Export what has ended, as far as that goes in a few seconds."""
        ...


class NoTracing:
    """Traces nothing."""

    def serving(
        self, request: Request, *, mount: str, revision: str | None, fields: Collection[tuple[str, str]]
    ) -> Span | None:
        """None; see Tracing."""
        return None

    def calling(
        self, method: str, *, mount: str, tool: str | None, parent: Span | None, link: str | None = None
    ) -> Span | None:
        """None; see Tracing."""
        return None

    async def close(self) -> None:
        """See Tracing."""


UNTRACED: Final = NoTracing()
_: type[Tracing] = NoTracing


class PastSpan(NamedTuple):
    """A span of which its place alone is left; see Span."""

    traceparent: str

    @property
    def trace_id(self) -> str:
        """See Span."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """See Span."""
        return self.traceparent[36:52]

    @property
    def is_sampled(self) -> bool:
        """See Span."""
        return bool(int(self.traceparent[53:], 16) & 1)

    @property
    def tracestate(self) -> str | None:
        """None: it is not kept."""
        return None

    def link(self, traceparent: str) -> None:
        """Nothing; see Span."""

    def note(self, name: str, value: str | int | float) -> None:
        """Nothing; see Span."""

    def about(self, task: str) -> None:
        """Nothing; see Span."""

    def calls(self, tool: str) -> None:
        """Nothing; see Span."""

    def finish(self, error: str | None = None) -> None:
        """Nothing; see Span."""


def past(traceparent: str | None) -> Span | None:
    """The span at the place that was kept; None where none was, or what was kept is no place."""
    if traceparent is None or not _PLACE(traceparent):
        return None
    return PastSpan(traceparent)


_PLACE: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
"""Places as we write them."""
