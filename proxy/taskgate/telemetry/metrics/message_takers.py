"""Facts about requests of hosts become metrics: one short function a fact; see `metrics`."""

from taskgate.mcp.jsonrpc import Request
from taskgate.mcp.vocabulary import TOOLS_CALL
from taskgate.telemetry import audit, visit
from taskgate.telemetry.metrics import message_families, server_families
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.series import Takers
from taskgate.telemetry.metrics.settings import MetricsSettings

Exemplar = dict[str, str]


class Exemplars:
    """What a time is an example of: the span of the visit that it was taken in."""

    def __init__(self) -> None:
        self._wanted = True

    def adopt(self, settings: MetricsSettings) -> None:
        """Whether there are any, from now on."""
        self._wanted = settings.exemplars

    def now(self) -> Exemplar | None:
        """That of what runs now; None where nobody could look it up."""
        if not self._wanted or (here := visit.current()) is None or (span := here.span) is None:
            return None
        return {"trace_id": span.trace_id, "span_id": span.span_id} if span.is_sampled else None


def http_takers(registry: Registry) -> Takers:
    """For requests before they are JSON-RPC, and for streams."""
    requests = registry.histogram(message_families.HTTP)
    rejections = registry.counter(message_families.REJECTIONS)
    streams = registry.gauge(message_families.STREAMS)

    def answered(fact: audit.HttpAnswered) -> None:
        requests[fact.route, fact.verb, fact.status].observe(fact.seconds)

    def refused(fact: audit.HttpRefused) -> None:
        rejections[fact.reason,].inc()

    def opened(fact: audit.StreamOpened) -> None:
        streams[fact.side, fact.kind].inc()

    def ended(fact: audit.StreamEnded) -> None:
        streams[fact.side, fact.kind].dec()

    return {
        audit.HttpAnswered: answered,
        audit.HttpRefused: refused,
        audit.StreamOpened: opened,
        audit.StreamEnded: ended,
    }


def message_takers(registry: Registry, exemplars: Exemplars) -> Takers:
    """For JSON-RPC, on either side."""
    served = registry.histogram(message_families.SERVED)
    protocols = registry.counter(message_families.PROTOCOLS)
    called = registry.histogram(server_families.CALLED)
    tool_calls = registry.counter(message_families.TOOL_CALLS)
    joined = registry.counter(message_families.JOINED)
    tools, tenants = registry.tools, registry.tenants

    def rpc_answered(fact: audit.RpcAnswered) -> None:
        tool = tools.timed(fact.mount, _tool_asked_for()) if tools.times and fact.method == TOOLS_CALL else ""
        served[fact.mount, fact.method, tool, fact.error].observe(fact.seconds, exemplars.now())
        protocols[fact.revision,].inc()

    def upstream_answered(fact: audit.UpstreamAnswered) -> None:
        called[fact.mount, fact.method, fact.error].observe(fact.seconds, exemplars.now())

    def tool_called(fact: audit.ToolCalled) -> None:
        tool_calls[fact.mount, tools.label(fact.mount, fact.tool), tenants.label(), fact.disposition].inc()

    def call_joined(fact: audit.CallJoined) -> None:
        joined[fact.mount, fact.how].inc()

    return {
        audit.RpcAnswered: rpc_answered,
        audit.UpstreamAnswered: upstream_answered,
        audit.ToolCalled: tool_called,
        audit.CallJoined: call_joined,
    }


def _tool_asked_for() -> str:
    """As the host named it: a label only where a list named it too, which was found before."""
    here = visit.current()
    if here is None or not isinstance(here.message, Request):
        return ""
    name = here.message.params.get("name")
    return name.value if name is not None and isinstance(name.value, str) else ""
