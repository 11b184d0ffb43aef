"""Places in traces: from what hosts send to what OpenTelemetry keeps of it.

What must not live here: whether a host is believed.
"""

from collections.abc import Collection
from typing import Final

from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from taskgate.protocol.trace_keys import TraceKeys
from taskgate.protocol.vocabulary import TRACEPARENT, TRACESTATE


def read(keys: TraceKeys | None) -> SpanContext | None:
    """The place that these keys tell; None where they tell none. A state that is malformed or too long is left out."""
    if keys is None:
        return None
    carrier = {TRACEPARENT: keys.traceparent}
    if keys.tracestate is not None:
        carrier[TRACESTATE] = keys.tracestate
    found = get_current_span(_W3C.extract(carrier)).get_span_context()
    return found if found.is_valid else None


def in_headers(fields: Collection[tuple[str, str]]) -> TraceKeys | None:
    """The keys as header fields of a request have them; None without a place, or with more than one."""
    places: list[str] = []
    states: list[str] = []
    for spelt, value in fields:
        # One look at each name's first letter, for most of the fields are others.
        if spelt[:1] in _INITIALS:
            name = spelt.lower()
            if name == TRACEPARENT:
                places.append(value)
            elif name == TRACESTATE:
                states.append(value)
    return TraceKeys(places[0], ",".join(states) or None) if len(places) == 1 else None


_W3C: Final = TraceContextTextMapPropagator()
_INITIALS: Final = "Tt"
