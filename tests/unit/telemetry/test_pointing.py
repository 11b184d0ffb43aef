"""A request about a task points at the request that made it."""

from helpers.noted_spans import NotedSpan
from helpers.records import new_record
from taskgate.telemetry.pointing import point_at
from taskgate.telemetry.request_context import RequestContext, within

PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def pointed(trace: str | None) -> NotedSpan:
    request_context, span, record = (
        RequestContext("v", "127.0.0.1", "POST", "/"),
        NotedSpan("s", "1" * 16),
        new_record(trace=trace),
    )
    request_context.span = span
    with within(request_context):
        point_at(record)
    assert span.tasks == [record.id]
    return span


def test_it_points_at_the_request_that_made_the_task() -> None:
    assert pointed(PLACE).links == [PLACE]


def test_it_says_what_task_it_is_about_where_that_was_not_traced() -> None:
    assert pointed(None).links == []


def test_nothing_is_said_where_nobody_traces() -> None:
    point_at(new_record(trace=PLACE))
    with within(RequestContext("v", "127.0.0.1", "POST", "/")):
        point_at(new_record(trace=PLACE))
