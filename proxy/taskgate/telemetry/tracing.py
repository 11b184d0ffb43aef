"""The port of tracing: `Tracing` makes a `Span` for each request of a host and each call to a server.

`opentelemetry` implements it; `NO_TRACING` stands in where tracing is off. `gateway.pipeline` and
`sessions.upstream_tracing` start the spans.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from taskgate.protocol.messages import Request


class Span(Protocol):
    """A started span. No method raises or waits, and after `end` none has an effect."""

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
        """Whether the span is exported, so that exemplars and links can lead to it."""
        ...

    @property
    def traceparent(self) -> str:
        """The span context as a W3C `traceparent`: what is stored, and sent to servers."""
        ...

    @property
    def tracestate(self) -> str | None:
        """The W3C `tracestate`; None if it is empty."""
        ...

    def add_link(self, traceparent: str) -> None:
        """Link to another span; an invalid traceparent is ignored."""
        ...

    def set_attribute(self, name: str, value: str | int | float) -> None:
        """Set an attribute."""
        ...

    def set_task(self, task: str) -> None:
        """Name the task that the span is about by its public reference, which grants no access."""
        ...

    def set_tool(self, tool: str) -> None:
        """Name the tool that the span calls, which its server must list."""
        ...

    def end(self, error: str | None = None) -> None:
        """End the span; `error` is a JSON-RPC code, `tool_error`, or the reason of a failure."""
        ...


class Tracing(Protocol):
    """A maker of spans; both methods return None if nothing is to be traced."""

    def start_server_span(
        self, request: Request, *, mount: str, revision: str | None, fields: Collection[tuple[str, str]]
    ) -> Span | None:
        """Start a SERVER span for a request of a host; `fields` are its HTTP header fields."""
        ...

    def start_client_span(
        self, method: str, *, mount: str, tool: str | None, parent: Span | None, link: str | None = None
    ) -> Span | None:
        """Start a CLIENT span for a request to a server.

        It is a child of `parent`, or a root with a link to the traceparent `link`. `tool` must be
        one that the server lists.
        """
        ...

    async def close(self) -> None:
        """Export the ended spans, as far as that works within a few seconds."""
        ...


class NoTracing:
    """The `Tracing` that traces nothing."""

    def start_server_span(
        self, request: Request, *, mount: str, revision: str | None, fields: Collection[tuple[str, str]]
    ) -> Span | None:
        return None

    def start_client_span(
        self, method: str, *, mount: str, tool: str | None, parent: Span | None, link: str | None = None
    ) -> Span | None:
        return None

    async def close(self) -> None:
        return None


NO_TRACING: Final = NoTracing()
_: type[Tracing] = NoTracing


class StoredSpan(NamedTuple):
    """A `Span` of which only the `traceparent` was stored: others can be its children or link to it."""

    traceparent: str

    @property
    def trace_id(self) -> str:
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        return self.traceparent[36:52]

    @property
    def is_sampled(self) -> bool:
        return bool(int(self.traceparent[53:], 16) & 1)

    @property
    def tracestate(self) -> str | None:
        return None

    def add_link(self, traceparent: str) -> None:
        pass

    def set_attribute(self, name: str, value: str | int | float) -> None:
        pass

    def set_task(self, task: str) -> None:
        pass

    def set_tool(self, tool: str) -> None:
        pass

    def end(self, error: str | None = None) -> None:
        pass


def stored_span(traceparent: str | None) -> Span | None:
    """The span of a stored traceparent; None if there is none, or it is invalid."""
    if traceparent is None or not _TRACEPARENT(traceparent):
        return None
    return StoredSpan(traceparent)


_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
"""A traceparent as `Span` writes it: version 00, lower case."""
