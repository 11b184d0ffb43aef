"""A collector of traces, which takes spans by OTLP over HTTP and keeps them; and a gateway that sends them."""

import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Exported

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve

SERVER, CLIENT = Exported.SPAN_KIND_SERVER, Exported.SPAN_KIND_CLIENT


class Place(NamedTuple):
    """A trace and a span, in hexadecimal digits."""

    trace: str
    span: str


class Collected(NamedTuple):
    """A span as it arrived. `resource` is what it is said to be of, `status` 2 for an error."""

    name: str
    kind: int
    place: Place
    parent: Place | None
    links: tuple[Place, ...]
    attributes: dict[str, Any]
    resource: dict[str, Any]
    status: int
    state: str
    seconds: float


def read(request: ExportTraceServiceRequest) -> Iterator[Collected]:
    """The spans of a request."""
    for of_resource in request.resource_spans:
        resource = _values(of_resource.resource.attributes)
        for scope in of_resource.scope_spans:
            assert scope.scope.name == "taskgate"
            for span in scope.spans:
                trace = span.trace_id.hex()
                yield Collected(
                    name=span.name,
                    kind=span.kind,
                    place=Place(trace, span.span_id.hex()),
                    parent=Place(trace, span.parent_span_id.hex()) if span.parent_span_id else None,
                    links=tuple(Place(link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    attributes=_values(span.attributes),
                    resource=resource,
                    status=span.status.code,
                    state=span.trace_state,
                    seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 10**9,
                )


class OtlpCollector:
    """The collector, at `url`. `status` is what it answers with; `paths` and `headers` are of what was asked."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.spans: list[Collected] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self._runner: web.ServerRunner | None = None

    def of(self, kind: int, name: str | None = None) -> list[Collected]:
        """The spans of a kind, and of a name where one is given."""
        return [span for span in self.spans if span.kind == kind and name in (None, span.name)]

    def only(self, kind: int, name: str) -> Collected:
        """The one span of that kind and name."""
        (span,) = self.of(kind, name)
        return span

    async def __aenter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._runner = web.ServerRunner(web.Server(self._take, access_log=None), shutdown_timeout=0.01)
        await self._runner.setup()
        await web.SockSite(self._runner, listening).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.BaseRequest) -> web.Response:
        self.paths.append(request.path)
        self.headers.append(dict(request.headers))
        body = await request.read()
        if self.status == 200:
            assert request.headers["Content-Type"] == "application/x-protobuf"
            self.spans += read(ExportTraceServiceRequest.FromString(body))
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(status=self.status, body=answer, content_type="application/x-protobuf")


def _values(pairs: "Iterator[KeyValue] | Any") -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


KEPT = {"enabled": True, "sample_ratio": 1}
LOOKS = {"upgrade": [{"tool": "*", "mode": "sync", "hints": {"readOnlyHint": True}}, {"tool": "*", "mode": "auto"}]}
"""A rule for which the server's catalogue is read: until then no tool is known to be listed."""


@asynccontextmanager
async def serve_traced(
    collector: OtlpCollector,
    servers: Mapping[str, str],
    *,
    tracing: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    **sections: Any,
) -> AsyncIterator[Gateway]:
    """A gateway for the length of a block, after which the collector has all of its spans.

    Unless `tasks` are given, tools are known from the first call on.
    """
    spans = {**KEPT, "endpoint": collector.url, **(tracing or {})}
    config = configuration(servers, folder=folder, tracing=spans, **{"tasks": LOOKS, **sections})
    async with serve(config, data_directory=folder) as gateway:
        yield gateway
