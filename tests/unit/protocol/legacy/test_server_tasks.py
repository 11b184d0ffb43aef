"""Tasks of legacy servers: what they are asked, and what their answers show."""

import json
from datetime import timedelta
from typing import Any

import pytest

from helpers.schema import check_client_message
from requirements import covers
from taskgate.domain.record import TaskStatus
from taskgate.domain.versions import LEGACY, Revision
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.spans import members
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.legacy.upstream import MAX_TTL, LegacyServerTasks, LegacyUpstream
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.meta import related_task
from taskgate.protocol.server_messages import MAX_SERVER_TASK_ID, MAX_SUMMARY, ServerTask, TaskStatusNotification
from unit.protocol.legacy.task_messages import ID, RELATED, TIMES, answer, peer, reason_of, refusal, seen, task

# --- states -----------------------------------------------------------------------------------------------------------


NATIVE = LegacyServerTasks()
MINUTE = timedelta(minutes=1)
WORKING, FAILED = TaskStatus.WORKING, TaskStatus.FAILED


# --- what is asked -------------------------------------------------------------------------------------------------


@covers("L-TOOL-6")
@pytest.mark.parametrize("revision", LEGACY)
def test_a_server_makes_tasks_where_it_declares_to_in_the_one_revision_that_has_them(revision: Revision) -> None:
    declared: dict[str, Any] = {"requests": {"tools": {"call": {}}}}
    assert NATIVE.is_supported(peer(revision, tasks=declared)) is (revision is Revision.R2025_11_25)


@covers("L-TOOL-6")
@pytest.mark.parametrize(
    "said", [None, True, {}, {"requests": {}}, {"requests": {"tools": {}}}, {"requests": {"tools": {"call": True}}}]
)
def test_a_server_that_does_not_declare_it_makes_none(said: Any) -> None:
    assert not NATIVE.is_supported(peer(Revision.R2025_11_25, tasks=said))
    assert not NATIVE.is_supported(peer(Revision.R2025_11_25))


@covers("L-TOOL-6")
def test_the_wish_for_a_task_is_put_into_a_call_that_stays_as_it_is() -> None:
    params = Params('{ "name":"t", "arguments": {"a":1e999},"_meta":{"progressToken": ', " }}")
    wish = NATIVE.with_task(params, timedelta(seconds=90.5))
    assert wish == Params('{"task":{"ttl":90500}, ' + params.head[2:], params.tail)
    check_client_message(
        f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{wish.with_token(1)}}}', wants_task=True
    )


@pytest.mark.parametrize(
    ("head", "written"),
    [("{}", '{"task":{"ttl":60000}}'), (" { }", ' {"task":{"ttl":60000} }'), ("[]", "[]"), ("", "")],
)
def test_the_wish_is_put_into_any_object_and_into_nothing_else(head: str, written: str) -> None:
    assert NATIVE.with_task(Params(head), MINUTE) == Params(written)


@pytest.mark.parametrize(
    ("ttl", "written"),
    [(timedelta(), 1), (timedelta(microseconds=1500), 1), (MAX_TTL, 2**31 - 1), (timedelta(days=400), 2**31 - 1)],
)
def test_what_is_wanted_is_whole_and_fits_the_timers_of_released_servers(ttl: timedelta, written: int) -> None:
    assert json.loads(NATIVE.with_task(Params("{}"), ttl).head) == {"task": {"ttl": written}}


@covers("L-GET-3")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
def test_a_request_about_a_task_names_it_once_and_says_no_more(method: str) -> None:
    text = LegacyUpstream("1", ExtensionPolicy()).call(7, method, NATIVE.params('a"b'))
    assert json.loads(text) == {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"taskId": 'a"b'}}
    check_client_message(text)


# --- what is shown -------------------------------------------------------------------------------------------------


def test_the_handle_of_a_task_is_read_with_what_matters_of_it() -> None:
    handle = {"task": task(pollInterval=250, statusMessage="Gathering"), "_meta": {"a": 1}}
    expected = ServerTask(ID, WORKING, "Gathering", TIMES["lastUpdatedAt"], 0.25)
    assert NATIVE.read_created(answer(json.dumps(handle))) == expected


@pytest.mark.parametrize("missing", ["ttl", "createdAt", "lastUpdatedAt"])
def test_what_released_servers_leave_out_of_a_task_is_not_missed(missing: str) -> None:
    # mcp 1.30 drops `ttl: null`.
    said = task()
    del said[missing]
    made = NATIVE.read_created(answer(json.dumps({"task": said})))
    assert made is not None
    assert made.status is WORKING


@pytest.mark.parametrize(
    "result", ['{"content":[]}', "{}", "[]", "null", '{"task":null}', '{"task":{},"content":[]}', '{"task":"a"}']
)
def test_any_other_answer_to_a_call_is_its_own(result: str) -> None:
    assert NATIVE.read_created(answer(result)) is None
    assert NATIVE.read_created(refusal(-32603)) is None


@pytest.mark.parametrize(
    "said",
    [
        {"taskId": None},
        {"taskId": ""},
        {"taskId": 7},
        {"taskId": "x" * (MAX_SERVER_TASK_ID + 1)},
        {"taskId": "é" * (MAX_SERVER_TASK_ID // 2 + 1)},
        {"taskId": "\ud800"},
    ],
)
def test_a_task_that_cannot_be_followed_breaks_the_protocol(said: dict[str, Any]) -> None:
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_created(answer(json.dumps({"task": task(**said)})))
    assert reason_of(failure) == ("malformed", True)
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_state(ID, answer(json.dumps(task(**said))))
    assert reason_of(failure) == ("malformed", True)


@pytest.mark.parametrize("status", ["done", None, ["working"], 7])
def test_a_state_that_there_is_not_breaks_the_protocol_once_it_is_asked_for(status: Any) -> None:
    made = NATIVE.read_created(answer(json.dumps({"task": task(status=status)})))
    assert made is not None
    assert (made.id, made.status) == (ID, TaskStatus.WORKING)
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_state(ID, answer(json.dumps(task(status=status))))
    assert reason_of(failure) == ("malformed", True)


@pytest.mark.parametrize("status", TaskStatus)
def test_a_look_shows_how_a_task_is(status: TaskStatus) -> None:
    found = NATIVE.read_state(ID, answer(json.dumps(task(status=status))))
    assert found == ServerTask(ID, status, None, TIMES["lastUpdatedAt"])


@pytest.mark.parametrize("result", ["[]", "null", "{}", json.dumps(task(taskId="other"))])
def test_a_look_that_shows_another_task_or_none_breaks_the_protocol(result: str) -> None:
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_state(ID, answer(result))
    assert reason_of(failure) == ("malformed", True)


@pytest.mark.parametrize("code", [-32602, -32601])
def test_a_task_that_its_server_does_not_know_is_not_shown(code: int) -> None:
    assert NATIVE.read_state(ID, refusal(code)) is None


@pytest.mark.parametrize("code", [-32603, -32000, 429])
def test_any_other_refusal_tells_nothing_of_a_task(code: int) -> None:
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_state(ID, refusal(code))
    assert reason_of(failure) == ("refused", True)


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [
        (1000, 1.0),
        (0.5, 0.0005),
        (2**53 - 1, (2**53 - 1) / 1000),
        (2**53, None),
        (0, None),
        (-1, None),
        (True, None),
        ("9", None),
        (None, None),
    ],
)
def test_the_interval_is_read_where_it_is_a_span(interval: Any, seconds: float | None) -> None:
    found = NATIVE.read_state(ID, answer(json.dumps(task(pollInterval=interval))))
    assert found is not None
    assert found.interval == seconds


@pytest.mark.parametrize(
    ("said", "message"),
    [("on", "on"), ("", None), (7, None), ("a\ud800", "a?"), ("x" * 9_999, "x" * (MAX_SUMMARY - 1) + "…")],
)
def test_what_a_task_says_of_itself_is_bounded_and_can_be_written(said: Any, message: str | None) -> None:
    found = NATIVE.read_state(ID, answer(json.dumps(task(statusMessage=said, lastUpdatedAt=7))))
    assert found is not None
    assert (found.message, found.updated) == (message, None)


def test_a_server_tells_by_itself_how_a_task_is() -> None:
    def heard(params: Any) -> object:
        note = {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": params}
        return LegacyUpstream("1", ExtensionPolicy()).decode(json.dumps(note).encode(), None)

    assert heard(task(status="failed", statusMessage="No")) == TaskStatusNotification(
        ServerTask(ID, FAILED, "No", TIMES["lastUpdatedAt"])
    )
    assert heard({"taskId": ID}) is None
    assert heard([]) is None


@pytest.mark.parametrize(
    ("meta", "id_"),
    [
        (f"{{{RELATED}}}", ID),
        ("{}", None),
        ('{"io.modelcontextprotocol/related-task":"a"}', None),
        ('{"io.modelcontextprotocol/related-task":{"taskId":7}}', None),
    ],
)
def test_a_message_may_say_which_task_it_belongs_to(meta: str, id_: str | None) -> None:
    assert related_task(members(meta)) == id_


# --- outcomes ---------------------------------------------------------------------------------------------------------


WORKING, COMPLETED, FAILED = TaskStatus.WORKING, TaskStatus.COMPLETED, TaskStatus.FAILED


ODD = r'"content": [ {"type":"text","text":"\u00e9\/ud800"} ], "structuredContent":{"a":1e999,"a":1}'


@covers("L-RES-3")
@pytest.mark.parametrize(
    ("result", "own"),
    [
        (f'{{ {ODD} ,"_meta": {{{RELATED}}} }}', f"{{ {ODD} }}"),
        (f'{{"_meta":{{{RELATED}}},{ODD}}}', f"{{{ODD}}}"),
        (f'{{"_meta":{{ "a" :1,{RELATED},"b":[ ]}},{ODD}}}', f'{{"_meta":{{ "a" :1,"b":[ ]}},{ODD}}}'),
        (
            f'{{{ODD},"_meta":{{"io.modelcontextprotocol/x":1}}}}',
            f'{{{ODD},"_meta":{{"io.modelcontextprotocol/x":1}}}}',
        ),
        (f"{{{ODD}}}", f"{{{ODD}}}"),
    ],
)
@pytest.mark.parametrize("status", TaskStatus)
def test_a_result_is_the_calls_own_but_for_the_key_of_the_task(status: TaskStatus, result: str, own: str) -> None:
    came = NATIVE.read_outcome(seen(status), answer(result))
    assert came is not None
    assert came.text == f'{{ "jsonrpc":"2.0","result" : {own} ,"id": 5 }}'
    assert came.result is not None
    assert came.text[came.result.start : came.result.end] == own
    assert came.text[slice(*came.id_span)] == "5"


@pytest.mark.parametrize("result", ['{"isError":true}', '{"structuredContent":{}}', '{"content":null}'])
def test_a_result_need_not_be_whole(result: str) -> None:
    came = NATIVE.read_outcome(seen(WORKING), answer(result))
    assert came is not None
    assert came.text.count(result) == 1


@covers("L-RES-2")
def test_the_error_of_a_task_that_failed_is_the_calls_own() -> None:
    for code in (-32602, -32603, 7):
        response = refusal(code, "Bad arguments")
        assert NATIVE.read_outcome(seen(FAILED), response) is response


def test_a_task_that_failed_and_kept_no_result_is_an_error_of_its_tool() -> None:
    # mcp 1.30 keeps none, and the TypeScript SDK says which task has none.
    for response in (answer(f'{{"_meta":{{{RELATED}}}}}'), refusal(-32603, f"Task {ID} has no result stored")):
        came = NATIVE.read_outcome(seen(FAILED, "boom"), response)
        assert came is not None
        assert json.loads(came.text)["result"] == {"content": [{"type": "text", "text": "boom"}], "isError": True}
        assert ID not in came.text
    silent = NATIVE.read_outcome(seen(FAILED), answer("{}"))
    assert silent is not None
    assert json.loads(silent.text)["result"]["content"][0]["text"] == "The server's task failed"


def test_a_short_id_may_stand_in_an_error_by_chance() -> None:
    response = refusal(-32001, "Bad")
    assert NATIVE.read_outcome(seen(FAILED, id_="1"), response) is response


@pytest.mark.parametrize("response", [answer("{}"), refusal(-32602)])
def test_a_task_that_its_server_cancelled_has_failed(response: Response) -> None:
    with pytest.raises(UpstreamFailed, match="cancelled") as failure:
        NATIVE.read_outcome(seen(TaskStatus.CANCELLED), response)
    assert reason_of(failure) == ("closed", True)


@pytest.mark.parametrize(("code", "reason"), [(-32602, "call_lost"), (-32601, "call_lost"), (-32603, "refused")])
def test_a_result_that_was_there_may_be_lost_or_not_be_told_for_now(code: int, reason: str) -> None:
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_outcome(seen(COMPLETED), refusal(code, f"Task {ID}"))
    assert reason_of(failure) == (reason, True)
    assert ID not in str(failure.value)


@pytest.mark.parametrize("result", ["{}", f'{{"_meta":{{{RELATED}}}}}'])
def test_a_task_that_is_complete_and_kept_no_result_breaks_the_protocol(result: str) -> None:
    with pytest.raises(UpstreamFailed, match="has no result") as failure:
        NATIVE.read_outcome(seen(COMPLETED), answer(result))
    assert reason_of(failure) == ("malformed", True)


def test_a_result_that_is_none_of_a_tool_is_passed_on_as_what_it_is() -> None:
    came = NATIVE.read_outcome(seen(COMPLETED), answer(f'{{"x":1,"_meta":{{{RELATED}}}}}'))
    assert came is not None
    assert came.result is not None
    assert came.text[came.result.start : came.result.end] == '{"x":1}'
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_outcome(seen(COMPLETED), answer("[]"))
    assert reason_of(failure) == ("malformed", True)


@pytest.mark.parametrize("status", [WORKING, TaskStatus.INPUT_REQUIRED])
@pytest.mark.parametrize("response", [answer("{}"), answer("[]"), refusal(-32602), refusal(-32603)])
def test_before_a_task_is_seen_to_be_over_only_a_result_says_that_it_is(status: TaskStatus, response: Response) -> None:
    assert NATIVE.read_outcome(seen(status), response) is None
