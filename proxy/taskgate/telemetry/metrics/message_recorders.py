"""Events about requests of hosts become metrics: one short function an event; see `metrics`."""

from taskgate.protocol.envelope import Request
from taskgate.protocol.vocabulary import INITIALIZE, TOOLS_CALL
from taskgate.telemetry import events, request_context
from taskgate.telemetry.metrics import message_families, server_families
from taskgate.telemetry.metrics.contexts import Contexts
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.series import Takers
from taskgate.telemetry.metrics.settings import MetricsSettings
from taskgate.telemetry.tracing import Span

Exemplar = dict[str, str]


class Exemplars:
    """What a time is an example of: the span of the visit that it was taken in."""

    def __init__(self) -> None:
        self._wanted = True

    def adopt(self, settings: MetricsSettings) -> None:
        """Whether there are any, from now on."""
        self._wanted = settings.exemplars

    def of(self, span: Span) -> Exemplar | None:
        """That of what runs in that span; None where nobody could look it up."""
        if not self._wanted or not span.is_sampled:
            return None
        return {"trace_id": span.trace_id, "span_id": span.span_id}


def http_takers(registry: Registry, contexts: Contexts) -> Takers:
    """For requests before they are JSON-RPC, and for streams."""
    requests = registry.histogram(message_families.HTTP)
    rejections = registry.counter(message_families.REJECTIONS)
    streams = registry.gauge(message_families.STREAMS)

    def answered(event: events.HttpAnswered) -> None:
        requests[event[:3]].observe(event.seconds)
        contexts.asked()

    def refused(event: events.HttpRefused) -> None:
        rejections[event.reason,].inc()

    def opened(event: events.StreamOpened) -> None:
        streams[event.side, event.kind].inc()

    def ended(event: events.StreamEnded) -> None:
        streams[event.side, event.kind].dec()

    return {
        events.HttpAnswered: answered,
        events.HttpRefused: refused,
        events.StreamOpened: opened,
        events.StreamEnded: ended,
    }


def message_takers(registry: Registry, exemplars: Exemplars, contexts: Contexts) -> Takers:
    """For JSON-RPC, on either side."""
    served = registry.histogram(message_families.SERVED)
    protocols = registry.counter(message_families.PROTOCOLS)
    called = registry.histogram(server_families.CALLED)
    tool_calls = registry.counter(message_families.TOOL_CALLS)
    joined = registry.counter(message_families.JOINED)
    tools, tenants = registry.tools, registry.tenants

    def rpc_answered(event: events.RpcAnswered) -> None:
        mount, method, revision, seconds, error = event
        here, tool = request_context.current(), ""
        if method == TOOLS_CALL:
            if tools.times:
                tool = tools.timed(mount, _tool_asked_for(here))
        elif method == INITIALIZE and error is None:
            contexts.opened()
        span = None if here is None else here.span
        served[mount, method, tool, error].observe(seconds, None if span is None else exemplars.of(span))
        protocols[revision,].inc()

    def upstream_answered(event: events.UpstreamAnswered) -> None:
        mount, method, seconds, error = event
        here = request_context.current()
        span = None if here is None else here.span
        called[mount, method, error].observe(seconds, None if span is None else exemplars.of(span))

    def tool_called(event: events.ToolCalled) -> None:
        mount, tool, disposition = event
        tool_calls[mount, tools.label(mount, tool), tenants.label(), disposition].inc()

    def call_joined(event: events.CallCoalesced) -> None:
        joined[event.mount, event.how].inc()

    return {
        events.RpcAnswered: rpc_answered,
        events.UpstreamAnswered: upstream_answered,
        events.ToolCalled: tool_called,
        events.CallCoalesced: call_joined,
    }


def _tool_asked_for(here: request_context.RequestContext | None) -> str:
    """As the host named it: a label only where a list named it too, which was found before."""
    if here is None or not isinstance(here.message, Request):
        return ""
    name = here.message.params.get("name")
    return name.value if name is not None and isinstance(name.value, str) else ""
