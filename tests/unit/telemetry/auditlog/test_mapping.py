"""Audit events: what each gateway event becomes, and which become none."""

from dataclasses import replace
from datetime import timedelta
from sys import getsizeof
from typing import get_args

import pytest

from requirements import covers
from taskgate.domain.record import Faulted, FaultReason, TaskStatus
from taskgate.domain.versions import client_of
from taskgate.protocol.messages import Request
from taskgate.telemetry import events as kinds
from taskgate.telemetry.auditlog.catalogue import EVENTS, matching
from taskgate.telemetry.auditlog.events import AuditEvent, EventOrigin, internal_event, summary_in, without_payload
from taskgate.telemetry.auditlog.mapping import EventMapping
from taskgate.telemetry.auditlog.settings import LineOptions
from taskgate.telemetry.request_context import RequestContext
from unit.telemetry.auditlog.audit_cases import (
    ANSWERED,
    CALL,
    CASES,
    DONE,
    MICROSECONDS,
    NOW,
    OF_A_BATCH,
    UNTOLD,
    Case,
    Ended,
    Said,
    events_of,
    message_text,
    new_context,
    of_task,
)

FOR_METRICS_ALONE = {
    kinds.HttpRefused,
    kinds.StreamOpened,
    kinds.StreamEnded,
    kinds.UpstreamAnswered,
    kinds.UpstreamRequestFailed,
    kinds.UpstreamStateChanged,
    kinds.ToolCalled,
    kinds.InputWaited,
    kinds.PollsCounted,
    kinds.LateAnswerDropped,
    kinds.LeaseLost,
    kinds.TaskFaulted,
    kinds.StoreUsed,
    kinds.StoreCounted,
    kinds.StoreFaulted,
    kinds.ConcurrencyChanged,
    kinds.SessionEvicted,
    kinds.TaskPolled,
    kinds.RateLimitAllowed,
    kinds.TokenRecognized,
    kinds.ProgramsCounted,
    kinds.UpstreamRetried,
    kinds.ExtensionDenied,
    kinds.AuditEventRecorded,
    kinds.AuditLinesWritten,
    kinds.AuditLinesDropped,
}


def said_by(events: tuple[AuditEvent, ...]) -> tuple[Said, ...]:
    return tuple(Said(each.name, each.outcome, each.reason, each.severity) for each in events)


@covers("O-AUD-1", "O-AUD-2")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.said[0].name}-{case.said[0].reason}")
def test_an_event_becomes_its_events(case: Case) -> None:
    assert said_by(events_of(case.event, case.request_context)) == case.said


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.said[0].name}-{case.said[0].reason}")
def test_an_event_has_an_outcome_that_the_catalogue_knows(case: Case) -> None:
    assert all(said.outcome in EVENTS[said.name].severities for said in case.said)


def test_every_event_comes_of_an_event_but_for_those_of_the_log_itself() -> None:
    assert {said.name for case in CASES for said in case.said} == EVENTS.keys() - matching(["audit.*"])


def test_every_outcome_of_the_catalogue_comes_about() -> None:
    seen = {(said.name, said.outcome) for case in CASES for said in case.said}
    known = {(name, outcome) for name, kind in EVENTS.items() for outcome in kind.severities if kind.topic != "audit"}
    assert known == seen


@pytest.mark.parametrize("event", UNTOLD, ids=lambda event: type(event).__name__)
def test_what_is_no_news_is_not_told(event: kinds.Event) -> None:
    assert events_of(event, new_context()) == ()


def test_every_other_event_is_for_metrics_alone() -> None:
    told = {RequestContext, *map(type, UNTOLD), *(type(case.event) for case in CASES)} - {Ended}
    assert set(get_args(kinds.Event)) - told == FOR_METRICS_ALONE
    assert set(EventMapping(LineOptions()).mappers) == told


def test_an_event_happened_when_it_is_said_to_have() -> None:
    assert {event.time for case in CASES for event in events_of(case.event, case.request_context)} == {MICROSECONDS}


# --- servers, which are told of when they change ---------------------------------------------------------------------


def test_a_server_that_stays_as_it_is_is_told_of_once() -> None:
    table = EventMapping(LineOptions())
    states = [True, True, None, True, False, False, True]
    tell, sought = table.mappers[kinds.HealthChecked], table.mappers[kinds.ProgramAvailabilityChanged]
    told = [tell(kinds.HealthChecked("reports", True, up), None, MICROSECONDS) for up in states]
    assert [[event.name for event in each] for each in told] == [
        ["upstream.up"],
        [],
        [],
        [],
        ["upstream.down"],
        [],
        ["upstream.up"],
    ]
    told = [sought(kinds.ProgramAvailabilityChanged("search", up), None, MICROSECONDS) for up in (False, False, True)]
    assert [[event.name for event in each] for each in told] == [["upstream.down"], [], ["upstream.up"]]


def test_servers_are_told_apart_and_another_of_the_same_name_is_new() -> None:
    table = EventMapping(LineOptions())
    tell = table.mappers[kinds.HealthChecked]
    for mount in ("reports", "search"):
        assert tell(kinds.HealthChecked(mount, True, True), None, MICROSECONDS) != ()
    table.mappers[kinds.UpstreamAdded](kinds.UpstreamAdded("reports"), None, MICROSECONDS)
    assert tell(kinds.HealthChecked("search", True, True), None, MICROSECONDS) == ()
    assert tell(kinds.HealthChecked("reports", True, True), None, MICROSECONDS) != ()


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [ANSWERED, OF_A_BATCH])
def test_what_is_no_request_has_no_line_of_one(event: Ended) -> None:
    assert events_of(event, new_context(id="")) == ()


@pytest.mark.parametrize("decision", ["fail_local", "fail_open"])
def test_a_request_that_a_rate_let_pass_without_the_shared_store_has_no_line_of_a_refusal(decision: str) -> None:
    assert events_of(kinds.RateLimitChecked("calls", "context", decision), new_context()) == ()


def test_an_event_is_of_the_request_as_it_was_then() -> None:
    request_context = new_context(caller=None)
    [event] = events_of(kinds.RateLimitChecked("calls", "ip", "shadow"), request_context)
    request_context.caller, request_context.status = new_context().caller, 500
    assert event.origin is not None
    assert (event.origin.caller, event.origin.status) == (None, None)


def test_an_answer_of_a_host_is_told_without_its_id_which_may_hold_a_task() -> None:
    [event] = events_of(ANSWERED, new_context(b'{"jsonrpc":"2.0","id":"task-1 input-1","result":{}}'))
    asked = summary_in(event.origin)
    assert (event.name, asked.request_id, asked.method) == ("rpc.request", None, None)


@covers("O-AUD-5")
def test_why_a_host_cancels_is_told() -> None:
    note_text = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"too slow"}}'
    [event] = events_of(ANSWERED, new_context(note_text))
    assert event.data == {"seconds": 0.25, "stated_reason": "too slow"}
    [silent] = events_of(ANSWERED, new_context(note_text.replace(b'"reason"', b'"other"')))
    assert silent.data == {"seconds": 0.25, "stated_reason": None}


def test_a_request_of_several_messages_says_how_many_and_an_answer_how_large_it_is() -> None:
    [event] = events_of(ANSWERED, new_context(None, parts=3, result_bytes=12))
    assert event.data == {"seconds": 0.25, "messages": 3, "result": {"bytes": 12}}


def test_a_task_that_expired_has_one_end() -> None:
    ends = [
        kinds.TaskExpired(of_task(), "working"),
        kinds.TaskFinished(of_task(), TaskStatus.FAILED, FaultReason.EXPIRED, timedelta(0), None),
    ]
    assert [event.name for reported in ends for event in events_of(reported, None)] == ["task.expired"]


# --- what is kept in memory ------------------------------------------------------------------------------------------


def test_an_event_keeps_neither_message_nor_record_but_for_the_last_of_a_request() -> None:
    for case in CASES:
        for event in events_of(case.event, case.request_context):
            if type(event.origin) is RequestContext:
                assert isinstance(case.event, Ended)
                kept: list[object] = [*event._replace(origin=None)]
            else:
                kept = [*event, *(event.origin or ()), *(event.subject or ())]
            assert not [each for each in kept if isinstance(each, RequestContext | Request | type(of_task()))]


def test_a_request_is_kept_until_its_last_event_is_a_line_where_nothing_in_it_is_large() -> None:
    def answer_of(request_context: RequestContext) -> AuditEvent:
        [event] = events_of(ANSWERED, request_context)
        return event

    request_context = new_context()
    assert answer_of(request_context).origin is request_context
    # Its text, and that of its parameters, which is most of it.
    assert answer_of(request_context).weight > 1.5 * len(CALL)
    longer = message_text("tools/call", name="t", arguments={"text": "x" * 1024})
    for other in (new_context(longer), new_context(agent="x" * 513), new_context(refusal="rate")):
        assert type(answer_of(other).origin) is EventOrigin


def test_what_is_kept_of_a_request_is_let_go_as_arguments_are() -> None:
    [event] = events_of(ANSWERED, new_context())
    light = without_payload(event)
    assert (type(light.origin), light.weight) == (EventOrigin, 0)
    kept, asked = summary_in(event.origin), summary_in(light.origin)
    assert kept.arguments is not None
    assert asked == kept._replace(arguments=kept.arguments._replace(text=None))


def test_what_large_arguments_weigh_is_known_and_can_be_let_go() -> None:
    large = message_text("tools/call", name="t", arguments={"text": "x" * 100_000})
    for reported in (ANSWERED, kinds.TaskCreated(of_task(), None)):
        [event] = events_of(reported, new_context(large))
        assert event.weight >= 100_000
        light = without_payload(event)
        assert light.weight == 0
        let_go = summary_in(light.origin).arguments
        assert let_go is not None
        assert let_go.text is None
        assert light._replace(origin=None) == event._replace(origin=None, weight=0)


def test_letters_that_take_four_bytes_weigh_as_much() -> None:
    large = message_text("tools/call", name="t", arguments={"text": "?" * 100_000})
    smiling = large.replace(b"?", "\N{SLIGHTLY SMILING FACE}".encode())
    [event] = events_of(ANSWERED, new_context(smiling))
    assert event.weight >= 400_000


def test_keys_of_arguments_are_kept_as_far_as_they_are_told() -> None:
    keys = {f"{number:02}" + "x" * 100_000: 1 for number in range(40)}
    [event] = events_of(ANSWERED, new_context(message_text("tools/call", name="t", arguments=keys)))
    arguments = summary_in(event.origin).arguments
    assert arguments is not None
    assert sum(map(len, arguments.keys or ())) < 32 * 260


def test_words_of_peers_are_kept_up_to_a_length() -> None:
    long = "x" * 100_000
    call = message_text("tools/call", name=long, arguments={long: 1})
    request_contexts = [
        new_context(call, client=client_of({"name": long, "version": long}), agent=long),
        new_context(message_text(long)),
        new_context(message_text("tasks/get", taskId=long)),
        new_context(f'{{"jsonrpc":"2.0","method":"{long}"}}'.encode()),
        new_context(f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"reason":"{long}"}}}}'.encode()),
    ]
    for request_context in request_contexts:
        [event] = events_of(ANSWERED, request_context)
        assert len(repr(without_payload(event))) < 5_000


def test_arguments_that_are_not_told_are_not_kept() -> None:
    telling = LineOptions(arguments="none")
    for reported in (ANSWERED, kinds.TaskCreated(of_task(), None)):
        [event] = events_of(reported, new_context(), telling)
        assert event.weight == 0
        assert type(event.origin) is EventOrigin
        assert event.origin.summary.arguments is None


def test_arguments_are_told_where_a_request_ends_and_where_a_task_is_made() -> None:
    with_arguments = {
        event.name
        for case in CASES
        for event in events_of(case.event, case.request_context)
        if summary_in(event.origin).arguments is not None
    }
    assert with_arguments == {"rpc.call", "rpc.rejected", "task.created"}


def test_a_result_is_kept_only_to_be_hashed() -> None:
    reported = kinds.TaskFinished(DONE, TaskStatus.COMPLETED, "ok", timedelta(0), 14)
    weights = [events_of(reported, None, LineOptions(results=how))[0].weight for how in ("none", "size", "hash")]  # type: ignore[arg-type]
    assert weights == [0, 0, getsizeof('{"content":[]}')]
    [event] = events_of(reported, None, LineOptions(results="hash"))
    assert (event.result, without_payload(event).result) == ('{"content":[]}', None)
    for nothing in (None, Faulted(error="{}", reason=FaultReason.TIMEOUT)):
        other = replace(reported, task=replace(DONE, outcome=nothing))
        assert events_of(other, None, LineOptions(results="hash"))[0].result is None


def test_an_event_that_keeps_nothing_is_light_as_it_is() -> None:
    event = internal_event("audit.gap", NOW, outcome="failure", severity="high", data={"cause": "torn"})
    assert without_payload(event) == event
    assert said_by((event,)) == (Said("audit.gap", "failure", None, "high"),)


# --- choosing events -------------------------------------------------------------------------------------------------


def test_events_are_chosen_by_globs() -> None:
    assert matching(["*"]) == EVENTS.keys()
    assert matching(["gateway.*", "audit.gap"]) == {
        "gateway.started",
        "gateway.stopping",
        "gateway.stopped",
        "audit.gap",
    }
    assert matching(["Gateway.*", "gateway"]) == frozenset()
