"""What belongs together is kept together; of the rest a share is."""

from collections.abc import Callable
from typing import Any

import pytest

from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Request
from taskgate.telemetry.opentelemetry.sdk import sampler
from taskgate.telemetry.opentelemetry.tracer import OpenTelemetryTracing

Make = Callable[..., OpenTelemetryTracing]

KEPT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_KEPT = f"{KEPT[:-1]}0"


def serving(tracing: OpenTelemetryTracing, meta: str = "{}") -> Any:
    text = f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"_meta":{meta}}}}}'
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Request)
    return tracing.start_server_span(message, mount="m", revision=None, fields=())


def test_a_share_of_the_traces_that_begin_here_is_kept(make: Make) -> None:
    tracing = make(ratio=0.25)
    kept = [serving(tracing).is_sampled for _ in range(2000)]
    assert 0.2 < sum(kept) / len(kept) < 0.3


@pytest.mark.parametrize(("place", "is_kept"), [(KEPT, True), (NOT_KEPT, False)])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_trace_of_a_host_is_kept_as_the_host_does(make: Make, place: str, is_kept: bool, ratio: float) -> None:
    tracing = make(ratio=ratio)
    span = serving(tracing, f'{{"traceparent":"{place}"}}')
    call = tracing.start_client_span("ping", mount="m", tool=None, parent=span)
    assert call is not None
    assert (span.is_sampled, call.is_sampled) == (is_kept, is_kept)


@pytest.mark.parametrize(("place", "is_kept"), [(KEPT, True), (NOT_KEPT, False)])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_the_call_of_a_task_is_kept_where_the_request_was(make: Make, place: str, is_kept: bool, ratio: float) -> None:
    """Else a share of the share would be all that is left of calls that can be followed to their end."""
    call = make(ratio=ratio).start_client_span("tools/call", mount="m", tool=None, parent=None, link=place)
    assert call is not None
    assert call.is_sampled is is_kept


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_one_that_nobody_knows_the_beginning_of_is_one_of_many(make: Make, ratio: float) -> None:
    call = make(ratio=ratio).start_client_span("tools/call", mount="m", tool=None, parent=None)
    assert call is not None
    assert call.is_sampled is (ratio == 1.0)


def test_it_says_what_it_does() -> None:
    assert "Roots{TraceIdRatioBased{0.5}}" in sampler(0.5).get_description()
