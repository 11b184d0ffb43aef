"""A line that is filled in says, byte for byte, what its document would."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.auth.context import ANONYMOUS
from taskgate.domain.record import OwnerKey, Succeeded, TaskRecord, TaskStatus
from taskgate.domain.versions import client_of
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.chain import canonical
from taskgate.telemetry.auditlog.events import AuditEvent, without_payload
from taskgate.telemetry.auditlog.formats import line_templates
from taskgate.telemetry.auditlog.formats.native import NativeRenderer, rounded
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.settings import LineOptions
from taskgate.telemetry.request_context import Caller, RequestContext
from unit.telemetry.auditlog.audit_cases import (
    ANSWERED,
    CALLER,
    CASES,
    IDENTITY,
    KEY,
    OF_A_BATCH,
    TASK_ID,
    SetSpan,
    events_of,
    message_text,
    new_context,
    of_task,
)

PREV = b'"' + b"0" * 64 + b'"'
WORDS = st.text(max_size=40) | st.sampled_from(["%", "%b%d%%", "\0", "\\", '"', "\N{SNOWMAN}", TASK_ID, "x" * 300])


def new_renderer(**telling: Any) -> Renderer:
    return Renderer(LineOptions(**telling), key=KEY, node="gw-1")


def written_of(render: Renderer, event: AuditEvent, seq: int = 7, prev: bytes = PREV) -> bytes:
    """The line as it is written of the document."""
    tied = None if prev == b"null" else prev[1:-1].decode()
    return canonical({**render(event), "seq": seq, "prev": tied})


def last_of(request_context: RequestContext, **changes: Any) -> AuditEvent:
    [event] = events_of(ANSWERED._replace(**changes), request_context)
    return event


@covers("O-AUD-2", "O-AUD-4")
@pytest.mark.parametrize("identity", ["full", "pseudonymous"])
@pytest.mark.parametrize("results", ["none", "size", "hash"])
@pytest.mark.parametrize("arguments", ["none", "keys", "hash", "full"])
def test_whatever_is_told_a_line_is_the_same_or_is_written_of_its_document(
    arguments: str, results: str, identity: str
) -> None:
    render = new_renderer(arguments=arguments, results=results, identity=identity)
    for case in (*CASES, *CASES):
        for event in events_of(case.event, case.request_context, LineOptions(arguments=arguments)):  # type: ignore[arg-type]
            line = render.template_line(event, 7, PREV)
            assert line in (None, written_of(render, event))


# Of heads, not of JSON: bytes that are no UTF-8 are lone surrogates.
HEAD_WORDS = WORDS | st.sampled_from(["\udcff", "a\r\nb\u2028", '\x7f\x00"', "%b" * 100_000])
REQUESTS = st.sampled_from(["tools/call", "tools/list", "tasks/get"])
IDS = st.integers(-(2**60), 2**60) | WORDS
ARGUMENTS = st.dictionaries(WORDS, WORDS | st.integers(), max_size=40) | st.none() | st.just([1])


VISITS = st.fixed_dictionaries(
    {
        "client": st.builds(lambda *words: client_of(dict(zip(("name", "version"), words, strict=True))), WORDS, WORDS),
        "agent": HEAD_WORDS | st.none(),
        "path": HEAD_WORDS,
        "error": st.none() | WORDS,
        "task": st.none() | st.just(TASK_ID),
        "caller": st.sampled_from([ANONYMOUS, CALLER, None]),
        "result_bytes": st.none() | st.integers(0, 2**40),
    }
)
TIES = st.tuples(st.integers(1, 2**50), st.sampled_from([PREV, b"null"]))


@given(REQUESTS, WORDS, ARGUMENTS, VISITS, IDS, st.floats(0, 1e6), TIES)
def test_whatever_peers_say_a_line_is_the_same(
    method: str, tool: str, arguments: Any, said: dict[str, Any], id: int | str, seconds: float, tie: tuple[int, bytes]
) -> None:
    """Of two requests that differ in what is filled in, and of one that differs in its words."""
    params = {"name": tool, "taskId": TASK_ID} if arguments is None else {"name": tool, "arguments": arguments}
    body = message_text(method, **params)
    first, second = new_context(body, **said), new_context(body, **{**said, "id": "abcdefgh-2"})
    assert first.message is not None
    second.message = first.message._replace(id=id)
    if second.result_bytes is not None:
        second.result_bytes += 1
    other = new_context(body, **{**said, "path": f"{said['path']}%s"})
    for request_context, took in ((first, 0.5), (second, seconds), (other, seconds)):
        event = last_of(request_context, seconds=took)
        assert RENDER.template_line(event, *tie) in (None, written_of(RENDER, event, *tie))


RENDER = new_renderer()


@given(st.floats(-1e6, 1e6))
def test_numbers_have_six_digits_after_the_point(value: float) -> None:
    written = Decimal(repr(rounded(value)))
    assert abs(written - Decimal(value)) <= Decimal("5.01e-7")
    assert written == written.quantize(Decimal("0.000001"))


@pytest.mark.parametrize("value", [1e6, 562949954.1970735, -1e300, float("inf")])
def test_large_numbers_are_rounded_exactly(value: float) -> None:
    assert rounded(value) == round(value, 6)


def test_lines_of_usual_requests_are_filled_in() -> None:
    render = new_renderer()
    bodies = [message_text("tools/call", name="t", arguments={}), message_text("tools/list"), message_text("ping")]
    bodies.append(message_text("tasks/get", taskId=TASK_ID))
    for request_context in (new_context(), new_context(error="tool_error"), *map(new_context, bodies)):
        event = last_of(request_context)
        assert render.template_line(event, 7, PREV) == written_of(render, event)


LONG: dict[str, Any] = {"arguments": {"text": "x" * 100, "\N{SNOWMAN}": ["y" * 5000, {"z": '\\"'}], "\ud800": None}}


@covers("O-AUD-4")
@pytest.mark.parametrize(
    "request_context",
    [
        new_context(refusal="rate", status=429),
        new_context(agent="x" * 600, task=TASK_ID, result_bytes=7),
        new_context(message_text("tools/call", name="t", arguments={"a": "x" * 2000}), caller=None),
        new_context(message_text("tools/call", name="t", **LONG), result_bytes=7, error="tool_error"),
        new_context(message_text("tools/call", name="t", arguments=["x" * 5000])),
        new_context(message_text("tools/call", name="t", arguments={"a": "x" * 50_000, "b": 1, 'a"': []})),
        new_context(message_text("tools/call", name="x" * 50_000, arguments={"a": 1})),
        new_context(message_text("tools/call", name="t", arguments={str(key): "x" * 200 for key in range(40)})),
        new_context(message_text("tasks/get", taskId=TASK_ID, more="x" * 2000)),
        new_context(message_text("tools/list", cursor="x" * 2000)),
    ],
)
def test_lines_of_long_and_of_refused_requests_are_filled_in(request_context: RequestContext) -> None:
    render = new_renderer()
    for seconds in (0.5, 0.25):
        event = last_of(request_context, seconds=seconds)
        assert render.template_line(event, 7, PREV) == written_of(render, event)


def of_a_task(task: TaskRecord, seconds: float) -> list[events.Event]:
    """What a usual task has lines of."""
    lasting = timedelta(seconds=seconds)
    ended = replace(task, status=TaskStatus.COMPLETED, outcome=Succeeded(result='{"content":[]}', tool_error=False))
    return [
        events.TaskCreated(task, None),
        events.TaskDispatched(task, lasting),
        events.TaskTransitioned(task, TaskStatus.WORKING),
        events.TaskTransitioned(ended, TaskStatus.WORKING),
        events.TaskFinished(ended, TaskStatus.COMPLETED, "ok", lasting, int(seconds)),
        events.TaskRetrieved(ended, lasting),
        events.TaskRetrieved(ended, None),
        events.InputRequestOpened(task, f"k{seconds}", "elicitation"),
    ]


TASK_IDS = st.text("abcXYZ019-_", min_size=32, max_size=32)


@covers("O-AUD-4")
@given(WORDS, IDS, TASK_IDS, TASK_IDS, ARGUMENTS, VISITS, st.floats(0, 1e6), TIES)
def test_lines_of_usual_tasks_are_filled_in_and_the_same(
    tool: str, id: int | str, task: str, owner: str, arguments: Any, said: dict[str, Any], seconds: float, tie: Any
) -> None:
    """Of two tasks that differ in what is filled in, within their requests and after those."""
    said = {**said, "caller": CALLER}
    first = new_context(message_text("tools/call", name=tool, arguments=arguments or {}), **said)
    second = new_context(message_text("tools/call", name=tool, arguments=arguments or {}), **said)
    assert second.message is not None
    second.message, second.id = second.message._replace(id=id), "abcdefgh-2"
    other = replace(of_task(), id=task, owner=OwnerKey(owner, "reports"))
    for request_context, record, took in ((first, of_task(), 0.5), (second, other, seconds)):
        for within in (request_context, request_context.for_background()):
            for event in of_a_task(record, took):
                [line_event] = events_of(event, within)
                line = RENDER.template_line(line_event, *tie)
                assert line == written_of(RENDER, line_event, *tie)


def test_lines_of_other_events_of_tasks_are_written_of_their_documents() -> None:
    created = events.TaskCreated(of_task(), None)
    for request_context in (None, new_context(span=SetSpan()), new_context(caller=None)):
        [event] = events_of(created, request_context)
        assert new_renderer().template_line(event, 7, PREV) is None
    [event] = events_of(created, new_context())
    assert new_renderer(arguments="full").template_line(event, 7, PREV) is None
    assert new_renderer().template_line(without_payload(event), 7, PREV) is None
    # A digest of a result takes long: it is made on the sink's thread.
    finished = of_a_task(of_task(), 1.0)[4]
    [hashed] = events_of(finished, new_context(), LineOptions(results="hash"))
    assert new_renderer(results="hash").template_line(hashed, 7, PREV) is None
    [_, clamped] = events_of(events.TaskCreated(of_task(), "clamped_max"), new_context())
    assert new_renderer().template_line(clamped, 7, PREV) is None


@pytest.mark.parametrize(
    "request_context",
    [
        new_context(span=SetSpan()),
        new_context(parts=2),
        new_context(None, verb="GET"),
        new_context(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'),
        new_context(parts=2, agent="x" * 600),
        new_context(message_text("tools/call", name="t", arguments={str(key) * 256: "x" for key in range(5)})),
    ],
)
def test_other_lines_are_written_of_their_documents(request_context: RequestContext) -> None:
    assert new_renderer().template_line(last_of(request_context), 7, PREV) is None


@pytest.mark.parametrize("telling", [{"arguments": "full"}, {"arguments": "keys"}, {"format": "ocsf"}])
def test_what_tells_more_than_digests_is_written_of_its_document(telling: dict[str, Any]) -> None:
    assert new_renderer(**telling).template_line(last_of(new_context()), 7, PREV) is None


def test_the_time_of_a_whole_second_has_all_digits_too() -> None:
    render = new_renderer()
    long = new_context(message_text("tools/call", name="t", arguments={"a": "x" * 2000}))
    refused = new_context(refusal="rate", status=429)
    of_requests = [last_of(each) for each in (new_context(), long, refused)]
    of_a_task = events_of(events.TaskCreated(of_task(), None), new_context())
    for event in (*of_requests, *of_a_task):
        of_a_second = event._replace(time=1_767_225_600_000_000)
        line = render.template_line(of_a_second, 7, PREV)
        assert line is not None
        assert b'"time":"2026-01-01T00:00:00.000000Z"' in line
        assert line == written_of(render, of_a_second)


def test_a_message_that_came_with_others_has_no_time_and_is_written_of_its_document() -> None:
    [event] = events_of(OF_A_BATCH, new_context())
    assert new_renderer().template_line(event, 7, PREV) is None


def test_who_asks_is_told_of_each_request_anew() -> None:
    """The same caller comes with one token after the other, which say more of them than who they are."""
    render = new_renderer()
    for jti in ("one", "two", "one"):
        caller = replace(CALLER, identity=replace(IDENTITY, claims={"jti": jti}))
        event = last_of(new_context(caller=caller))
        line = render.template_line(event, 7, PREV)
        assert line == written_of(render, event)
        assert f'"jti":"{jti}"'.encode() in line


def test_templates_and_actors_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    document, actor = NativeRenderer.document, line_templates.actor_of_caller
    # As with tokens, which are remembered.
    callers = [replace(CALLER, key=f"caller-{number}") for number in range(line_templates.MAX_TEMPLATES + 1)]

    def count_document(renderer: NativeRenderer, event: AuditEvent) -> dict[str, Any]:
        made.append("template")
        return document(renderer, event)

    def count_actor(caller: Caller, *, full: bool) -> dict[str, Any]:
        made.append("actor")
        return actor(caller, full=full)

    def made_for(number: int) -> list[str]:
        event = last_of(new_context(path=f"/{number}", caller=callers[number]))
        expected = written_of(reference, event)
        made.clear()
        assert render.template_line(event, 7, PREV) == expected
        return [*made]

    monkeypatch.setattr(NativeRenderer, "document", count_document)
    monkeypatch.setattr(line_templates, "actor_of_caller", count_actor)
    render, reference = new_renderer(), new_renderer()
    for number in range(line_templates.MAX_TEMPLATES):
        made_for(number)
    assert [made_for(number) for number in range(line_templates.MAX_TEMPLATES)] == [[]] * line_templates.MAX_TEMPLATES
    for number in (line_templates.MAX_TEMPLATES, 0):
        assert sorted(made_for(number)) == ["actor", "template"]
        assert made_for(number) == []
