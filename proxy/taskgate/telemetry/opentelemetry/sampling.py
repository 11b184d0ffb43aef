"""Which spans are kept: what belongs together is kept together."""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes


def sampler(ratio: float) -> Sampler:
    """A child as its parent, the call of a task as the request that made it, and of all others that share."""
    return ParentBased(Roots(ratio))


class Roots(Sampler):
    """Decides over spans without a parent."""

    def __init__(self, ratio: float) -> None:
        self._by_ratio = TraceIdRatioBased(ratio)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """See Sampler."""
        # Of a request of a host, links tell what a host said that is not believed.
        if kind is SpanKind.CLIENT and links:
            kept = links[0].context.trace_flags.sampled
            return SamplingResult(Decision.RECORD_AND_SAMPLE if kept else Decision.DROP, attributes)
        return self._by_ratio.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """See Sampler."""
        return f"Roots{{{self._by_ratio.get_description()}}}"
