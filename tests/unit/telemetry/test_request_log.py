"""Lines about requests, from events alone."""

import logging
from typing import Any

import pytest

from taskgate.telemetry.events import CallCoalesced, ToolCalled
from taskgate.telemetry.request_context import RequestContext, in_request
from taskgate.telemetry.request_log import MOST, RequestLog
from taskgate.telemetry.ring import EventRing


def context(number: int = 0, **fields: Any) -> RequestContext:
    found = RequestContext(f"r{number}", "127.0.0.1", "POST", "/")
    found.mount, found.method, found.status, found.seconds = "reports", "tools/call", 200, 0.0123
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    known = {*vars(logging.makeLogRecord({})), "message", "asctime"}
    return [{key: value for key, value in vars(record).items() if key not in known} for record in caplog.records]


@pytest.fixture
def event_sink() -> EventRing:
    return EventRing()


@pytest.fixture
def log(event_sink: EventRing) -> RequestLog:
    log = RequestLog(event_sink)
    log.adopt(access=True, debug=False, reference_of=lambda task: f"t_{len(task)}")
    return log


def end(event_sink: EventRing, request: RequestContext, *before: Any) -> None:
    with in_request(request):
        for event in before:
            event_sink.emit(event)
        event_sink.emit(request)


def test_a_line_has_the_reference_of_a_task_and_not_its_id(
    event_sink: EventRing, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    end(event_sink, context(task="a-task-id"), ToolCalled("reports", "report", "task"))
    event_sink.fold()
    assert lines(caplog) == [
        {"upstream": "reports", "tool": "report", "disposition": "task", "task": "t_9", "status": 200, "ms": 12.3}
    ]


def test_a_refusal_before_a_call_was_counted_is_rejected(
    event_sink: EventRing, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    end(event_sink, context(refusal="draining", error="503"))
    event_sink.fold()
    assert [(line["disposition"], line["refusal"], line["error"]) for line in lines(caplog)] == [
        ("rejected", "draining", "503")
    ]


def test_a_request_that_is_no_call_has_no_line(
    event_sink: EventRing, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    end(event_sink, context(method="tools/list"))
    event_sink.fold()
    assert lines(caplog) == []


def test_a_copy_of_a_context_is_known_again(
    event_sink: EventRing, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    request = context()
    with in_request(request.snapshot()):
        event_sink.emit(CallCoalesced("reports", "key"))
    end(event_sink, request, ToolCalled("reports", None, "direct"))
    event_sink.fold()
    assert [(line["disposition"], line["coalesced"]) for line in lines(caplog)] == [("direct", True)]


def test_the_call_of_a_task_is_not_waited_for(
    event_sink: EventRing, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    request = context()
    with in_request(request.for_background()):
        event_sink.emit(ToolCalled("reports", "report", "task"))
    end(event_sink, request)
    event_sink.fold()
    assert ["disposition" in line for line in lines(caplog)] == [False]


def test_of_too_many_calls_the_oldest_loses_its_disposition(
    event_sink: EventRing, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    requests = [context(number) for number in range(MOST + 1)]
    for request in requests:
        with in_request(request):
            event_sink.emit(ToolCalled("reports", None, "direct"))
    for request in (requests[0], requests[-1]):
        end(event_sink, request)
    event_sink.fold()
    assert [line.get("disposition") for line in lines(caplog)] == [None, "direct"]


def test_nothing_is_written_while_both_kinds_are_off(
    event_sink: EventRing, log: RequestLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.adopt(access=False, debug=False, reference_of=str)
    end(event_sink, context(), ToolCalled("reports", None, "direct"))
    event_sink.fold()
    assert lines(caplog) == []
