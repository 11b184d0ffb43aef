"""Tracing that notes what is said of each span, without OpenTelemetry."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from taskgate.protocol.messages import Request
from taskgate.telemetry.tracing import Span

TRACE = "0af7651916cd43dd8448eb211c80319c"


@dataclass
class NotedSpan:
    """See Span. `ends` has the error of each end."""

    name: str
    span_id: str
    said: dict[str, Any] = field(default_factory=dict)
    parent: Span | None = None
    links: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    ends: list[str | None] = field(default_factory=list)
    trace_id: str = TRACE
    is_sampled: bool = True
    tracestate: str | None = None

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"

    def add_link(self, traceparent: str) -> None:
        self.links.append(traceparent)

    def set_attribute(self, name: str, value: str | int | float) -> None:
        self.said[name] = value

    def set_task(self, task: str) -> None:
        self.tasks.append(task)

    def set_tool(self, tool: str) -> None:
        self.tools.append(tool)

    def end(self, error: str | None = None) -> None:
        self.ends.append(error)


class NotedTracing:
    """See Tracing. `spans` has all that began; where it `is_off`, none does."""

    def __init__(self) -> None:
        self.spans: list[NotedSpan] = []
        self.is_off = False
        self.closed = False

    def start_server_span(
        self, request: Request, *, mount: str, revision: str | None, fields: Collection[tuple[str, str]]
    ) -> Span | None:
        return self.begin(f"serving {request.method}", mount=mount, revision=revision, fields=fields)

    def start_client_span(
        self, method: str, *, mount: str, tool: str | None, parent: Span | None, link: str | None = None
    ) -> Span | None:
        span = self.begin(f"calling {method}", mount=mount, tool=tool)
        if span is not None:
            span.parent = parent
            span.links += [] if link is None else [link]
        return span

    async def close(self) -> None:
        self.closed = True

    def begin(self, name: str, **said: Any) -> NotedSpan | None:
        """A span, noted."""
        if self.is_off:
            return None
        self.spans.append(NotedSpan(name, f"{len(self.spans) + 1:016x}", said))
        return self.spans[-1]
