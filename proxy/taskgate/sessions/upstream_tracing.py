"""Tracing of requests to servers: `CallSpans`, a `CallTracer`, starts a client span for each of them.

The span begins when a request or call is sent, and ends with its response, failure or cancellation.
Its trace context is sent along in `_meta`. Without tracing a server has no `CallSpans`, because calls
are the most frequent operation.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from taskgate.errors import GatewayError
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.messages import Response, error_of
from taskgate.protocol.meta import TraceKeys, with_trace_keys
from taskgate.telemetry import request_context
from taskgate.telemetry.span_annotations import QUEUE_WAIT, queue_wait
from taskgate.telemetry.tracing import NO_TRACING, Span, Tracing
from taskgate.upstream.calls import UpstreamCall

ADDRESS: Final = "server.address"
PORT: Final = "server.port"
TRANSPORT: Final = "network.transport"
PROTOCOL: Final = "network.protocol.name"
CANCELLED: Final = "cancelled"
OTHER: Final = "_OTHER"
"""The error type of an unexpected failure."""

_PORTS: Final = {"http": 80, "https": 443}


def call_spans(tracing: Tracing, mount: str, url: str | None) -> "CallSpans | None":
    """Return what starts the spans of requests to one server; None if tracing is off.

    `url` is the address of the server, None for a program.
    """
    return None if tracing is NO_TRACING else CallSpans(tracing, mount, _network_attributes(url))


class CallSpans:
    """The spans of requests to one server."""

    __slots__ = ("_mount", "_network", "_tracing")

    def __init__(self, tracing: Tracing, mount: str, network: Mapping[str, str | int]) -> None:
        self._tracing = tracing
        self._mount = mount
        self._network = network

    async def traced(
        self,
        call: UpstreamCall,
        listed: Callable[[str], ListedTool | None],
        send: Callable[[UpstreamCall], Coroutine[Any, Any, Response]],
    ) -> Response:
        span = self._start(call.method, call.tool, listed)
        if span is None:
            return await send(call)
        keys = TraceKeys(span.traceparent, span.tracestate)
        return await _ended_with(span, send(replace(call, params=with_trace_keys(call.params, keys))))

    def _start(self, method: str, tool: str | None, listed: Callable[[str], ListedTool | None]) -> Span | None:
        """Return a span, which must be ended once; None if this request is not traced.

        It names the tool if the server lists it. Other names come from hosts, and their number has
        no bound.
        """
        if tool is not None and listed(tool) is None:
            tool = None
        here = request_context.current()
        origin = None if here is None else here.span
        is_task = here is not None and here.background
        # The request that created a task ends long before the call, so its span is linked instead
        # of being the parent.
        link = origin.traceparent if origin is not None and is_task else None
        parent = None if is_task else origin
        span = self._tracing.start_client_span(method, mount=self._mount, tool=tool, parent=parent, link=link)
        if span is None:
            return None
        for key, value in self._network.items():
            span.set_attribute(key, value)
        if here is not None and is_task:
            _set_task_attributes(span, here)
        return span


def _network_attributes(url: str | None) -> Mapping[str, str | int]:
    if url is None:
        return {TRANSPORT: "pipe"}
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    return {TRANSPORT: "tcp", PROTOCOL: "http", ADDRESS: parts.hostname or "", PORT: port}


def _set_task_attributes(span: Span, here: request_context.RequestContext) -> None:
    if here.task is not None:
        span.set_task(here.task)
    seconds = queue_wait()
    if seconds is not None:
        span.set_attribute(QUEUE_WAIT, seconds)


async def _ended_with(span: Span, call: Coroutine[Any, Any, Response]) -> Response:
    """Await a call, return its response, and end its span with the error type, None on success."""
    error: str | None = OTHER
    try:
        response = await call
        error = error_of(response)
    except GatewayError as failure:
        error = failure.reason
        raise
    except asyncio.CancelledError:
        error = CANCELLED
        raise
    finally:
        span.end(error)
    return response
