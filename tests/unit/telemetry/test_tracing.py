"""Without tracing there are no spans; of a span that is over its place is left."""

import pytest

from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Request
from taskgate.telemetry.tracing import NO_TRACING, stored_span

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_nothing_is_traced_without_tracing() -> None:
    message = parse(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', max_depth=4)
    assert isinstance(message, Request)
    assert NO_TRACING.start_server_span(message, mount="m", revision=None, fields=()) is None
    assert NO_TRACING.start_client_span("ping", mount="m", tool=None, parent=None) is None
    await NO_TRACING.close()


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("02", False), ("03", True)])
def test_the_place_of_a_span_tells_all_that_is_left_of_it(flags: str, is_sampled: bool) -> None:
    span = stored_span(f"00-{TRACE}-{SPAN}-{flags}")
    assert span is not None
    assert (span.trace_id, span.span_id, span.is_sampled, span.tracestate) == (TRACE, SPAN, is_sampled, None)
    assert span.traceparent == f"00-{TRACE}-{SPAN}-{flags}"


def test_and_takes_nothing_more() -> None:
    span = stored_span(f"00-{TRACE}-{SPAN}-01")
    assert span is not None
    span.add_link(span.traceparent)
    span.set_attribute("a", 1)
    span.set_task("task")
    span.set_tool("add")
    span.end("-32603")
    assert span == stored_span(f"00-{TRACE}-{SPAN}-01")


@pytest.mark.parametrize(
    "kept",
    [None, "", "x", f"01-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", TRACE + SPAN],
)
def test_what_is_no_place_is_no_span(kept: str | None) -> None:
    assert stored_span(kept) is None
