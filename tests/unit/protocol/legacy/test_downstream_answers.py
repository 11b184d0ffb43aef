"""Responses to legacy hosts: of servers of either era, and of the gateway."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helpers.schema import RELATED_TASK, check_server_message
from requirements import covers
from taskgate.domain.listing import listed_task
from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import Faulted, FaultReason, InputRequest, Succeeded, TaskRecord, TaskStatus, ToolCall
from taskgate.domain.versions import Peer, Revision
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.host_requests import CallTool
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.results import EraCrossing
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.polled_tasks import MOST
from unit.protocol.legacy.judge import EVERY_HOST, check

# --- legacy servers ---------------------------------------------------------------------------------------------------


RecordMaker = Callable[..., TaskRecord]

DIALECT = LegacyDownstream("0.1.0")
USUAL = 2000
"""The poll interval of a record, in milliseconds."""
ODD = r'"content":[{"type":"text","text":"\u00e9\/ \ud83d\ude00"}],"structuredContent":{"a":1,"a":12345678901234567890}'
IDS = [(7, "7"), (0, "0"), (-(2**63) + 1, "-9223372036854775807"), ("", '""'), ('a"\\é\n', r'"a\"\\é\n"')]


def response(text: str) -> Response:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def notification(text: str) -> Notification:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Notification)
    return message


@pytest.mark.parametrize(("id_", "told"), IDS)
def test_a_ping_is_answered_with_nothing(id_: int | str, told: str) -> None:
    text = DIALECT.pong(id_)
    assert text == f'{{"jsonrpc":"2.0","id":{told},"result":{{}}}}'
    check_server_message(text, request_method="ping")


# --- a server's answer ---------------------------------------------------------------------------------------------

ANSWERS: dict[str, tuple[str, str]] = {
    "a result": (f'{{"jsonrpc":"2.0","id":@,"result":{{{ODD}}}}}', "tools/call"),
    "another order, odd spaces": (f' {{ "result" : {{ {ODD} }} ,\n"id" : @ , "jsonrpc":"2.0" }} ', "tools/call"),
    "an error": (
        '{"id":@,"error":{ "code":-32042 ,"message":"\\u00e9","data":{"a":1e999,"a":2} },"jsonrpc":"2.0"}',
        "tools/call",
    ),
    "a result that mentions ids": ('{"jsonrpc":"2.0","result":{"id":5,"content":[]},"id":@}', "tools/call"),
}


@pytest.mark.parametrize(("id_", "told"), IDS)
@pytest.mark.parametrize(("text", "method"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("theirs", ["41", '"\\u0034"'])
def test_an_answer_keeps_every_byte_but_its_id(text: str, method: str, theirs: str, id_: int | str, told: str) -> None:
    answer = DIALECT.answer(id_, response(text.replace("@", theirs)))
    assert answer == text.replace("@", told)
    check_server_message(answer, request_method=method)


CLAIMED = r'"io.model\u0063ontextprotocol/related-task":{"taskId":"of-the-server"}'


@pytest.mark.parametrize(
    ("meta", "left"),
    [
        (f'"_meta":{{{CLAIMED}}},', ""),
        (
            f'"_meta":{{"a/b": 1,{CLAIMED},"io.modelcontextprotocol/x":2}},',
            '"_meta":{"a/b": 1,"io.modelcontextprotocol/x":2},',
        ),
        (f',"_meta":{{{CLAIMED}, "c" : [ ] }}', ',"_meta":{"c" : [ ] }'),
        (r'"_meta":{"a":1,"io.t\u0061skgate/x":{}},', '"_meta":{"a":1},'),
        (',"_meta":{"io.taskgate/gateway":{}}', ""),
    ],
)
@pytest.mark.parametrize("name", ["answer", "tools"])
def test_a_task_or_gateway_that_a_server_names_in_a_plain_result_is_cut_out_and_every_other_byte_stays(
    meta: str, left: str, name: str
) -> None:
    # T23: the host would take the answer for one of a task of that id. X-EXT-27.
    body = '{@"tools":[]}' if meta.endswith(",") else '{"tools":[]@}'
    given = response(f'{{"jsonrpc":"2.0","id":3,"result":{body.replace("@", meta)}}}')
    told = DIALECT.answer(9, given) if name == "answer" else DIALECT.tools(9, given, None)
    assert told == f'{{"jsonrpc":"2.0","id":9,"result":{body.replace("@", left)}}}'


@pytest.mark.parametrize("meta", ['"_meta":{"a/b":1}', '"_meta":null', '"_meta":[1]'])
def test_metadata_of_a_server_that_names_neither_stays_to_the_byte(meta: str) -> None:
    text = f'{{"jsonrpc":"2.0","id":3,"result":{{{meta},"tools":[]}}}}'
    assert DIALECT.answer(3, response(text)) == text
    assert DIALECT.tools(3, response(text), None) == text


# --- a page of tools -----------------------------------------------------------------------------------------------


def test_a_page_of_tools_tells_of_tasks_under_the_hosts_id() -> None:
    page = '{ "tools":[{"name":"t","inputSchema":{"type":"object"}}] , "nextCursor":"\\u0063"}'
    seen = DIALECT.tools("a", response(f'{{"jsonrpc":"2.0","id":3,"result":{page}}}'), lambda *_: TaskSupport.REQUIRED)
    told = page.replace('{"name"', '{"execution":{"taskSupport":"required"},"name"')
    assert seen == f'{{"jsonrpc":"2.0","id":"a","result":{told}}}'
    check_server_message(seen, request_method="tools/list")


@pytest.mark.parametrize("large", [False, True])
def test_a_tool_that_is_not_for_a_host_is_left_out_of_its_page(large: bool) -> None:
    padding = "x" * 70_000 if large else ""
    tools = [f'{{"name":"{name}","inputSchema":{{"type":"object"}},"title":"{padding}"}}' for name in "th"]
    page = response(f'{{"jsonrpc":"2.0","id":3,"result":{{"tools":[{",".join(tools)}]}}}}')
    seen = DIALECT.tools(4, page, None, lambda tool: tool == "t")
    assert seen == f'{{"jsonrpc":"2.0","id":4,"result":{{"tools":[{tools[0]}]}}}}'
    check_server_message(seen, request_method="tools/list")
    assert len(json.loads(DIALECT.tools(4, page, None, None))["result"]["tools"]) == 2


def test_an_error_instead_of_tools_hides_nothing() -> None:
    text = '{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}'
    assert DIALECT.tools(3, response(text), None, lambda _: False) == text


def test_a_page_of_tools_for_a_host_without_tasks_says_nothing_of_them() -> None:
    page = '{"tools":[{"name":"t","execution":{"taskSupport":"required"},"inputSchema":{"type":"object"}}]}'
    seen = DIALECT.tools(4, response(f'{{"jsonrpc":"2.0","id":3,"result":{page}}}'), None)
    assert seen == '{"jsonrpc":"2.0","id":4,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}'
    check_server_message(seen, request_method="tools/list")


@pytest.mark.parametrize(
    "page", ["{}", "[]", "null", '"tools"', '{"tools":{}}', '{"tools":[{"name":"t","a":1,"a":2}]}']
)
def test_a_page_that_is_none_passes_as_it_came(page: str) -> None:
    answer = response(f'{{"jsonrpc":"2.0","id":3,"result":{page}}}')
    assert DIALECT.tools(4, answer, lambda *_: TaskSupport.OPTIONAL) == f'{{"jsonrpc":"2.0","id":4,"result":{page}}}'


def test_a_refusal_to_list_tools_passes_under_the_hosts_id() -> None:
    text = '{"error":{"code":-32601 , "message":"no"}, "id":@,"jsonrpc":"2.0"}'
    seen = DIALECT.tools("é", response(text.replace("@", "3")), lambda *_: TaskSupport.OPTIONAL)
    assert seen == text.replace("@", '"é"')
    check_server_message(seen, request_method="tools/list")


# --- notifications -------------------------------------------------------------------------------------------------

PROGRESS = (
    '{ "method":"notifications/progress","params":{"progress":1.50, "progressToken" : @ ,"total":3},"jsonrpc":"2.0"}'
)


@pytest.mark.parametrize(("token", "told"), IDS)
def test_progress_comes_under_the_hosts_own_token(token: int | str, told: str) -> None:
    text = DIALECT.notification(notification(PROGRESS.replace("@", "41")), token)
    assert text == PROGRESS.replace("@", told)
    check_server_message(text, request_method="tools/call")


UNCHANGED = {
    "progress of a call without a token": (PROGRESS.replace("@", "41"), None),
    "a log line": (
        '{"jsonrpc":"2.0", "method":"notifications/message","params":{"level":"info","data":{"a":1,"a":2}}}',
        "p",
    ),
    "news without params": ('{ "jsonrpc":"2.0","method":"notifications/tools/list_changed" }', "p"),
    "news of a session": ('{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}', None),
}


@pytest.mark.parametrize(("text", "token"), UNCHANGED.values(), ids=UNCHANGED)
def test_any_other_notification_passes_as_it_came(text: str, token: str | None) -> None:
    told = DIALECT.notification(notification(text), token)
    assert told == text
    check_server_message(told, request_method=None)


# --- tasks ---------------------------------------------------------------------------------------------------------

RESULT = f"{{ {ODD} }}"
ERROR = r'{ "code":-32000,"message":"\u00e9","data":{"a":1,"a":12345678901234567890123} }'
SUCCEEDED = Succeeded(result=RESULT, tool_error=False)
FAILED_TOOL = Succeeded(result='{"content":[],"isError":true}', tool_error=True)
FAULTED = Faulted(error=ERROR, reason=FaultReason.JSONRPC_ERROR)

STATES: dict[str, tuple[dict[str, Any], str]] = {
    "working": ({}, "working"),
    "waiting": ({"status": TaskStatus.INPUT_REQUIRED, "status_message": "Which é?"}, "input_required"),
    "completed": ({"status": TaskStatus.COMPLETED, "outcome": SUCCEEDED}, "completed"),
    "completed, as a head": ({"status": TaskStatus.COMPLETED, "tool_error": True}, "failed"),
    "failed by its tool": (
        {"status": TaskStatus.COMPLETED, "outcome": FAILED_TOOL, "tool_error": True, "status_message": "no"},
        "failed",
    ),
    "failed": ({"status": TaskStatus.FAILED, "outcome": FAULTED, "status_message": "é"}, "failed"),
    "cancelled": ({"status": TaskStatus.CANCELLED}, "cancelled"),
}


@pytest.mark.parametrize(("changes", "status"), STATES.values(), ids=STATES)
def test_a_state_is_the_flat_task(make_record: RecordMaker, changes: dict[str, Any], status: str) -> None:
    record = make_record(**changes)
    for method in ("tasks/get", "tasks/cancel"):
        text = DIALECT.task_state("a", record, USUAL)
        result = json.loads(text)["result"]
        assert (result["taskId"], result["status"], result.get("statusMessage")) == (
            record.id,
            status,
            record.status_message,
        )
        assert "_meta" not in result
        check_server_message(text, request_method=method)


@pytest.mark.parametrize("message", [None, '"pollInterval":0', 'é"}'])
def test_a_poll_shows_the_record_and_the_interval_of_this_poll(make_record: RecordMaker, message: str | None) -> None:
    polled = make_record(status_message=message)
    changed = replace(polled, status=TaskStatus.CANCELLED, status_message="over")
    shown = []
    for record, interval in ((polled, USUAL), (polled, 70), (polled, 5000), (changed, 70), (polled, 0)):
        result = json.loads(DIALECT.task_state(1, record, interval))["result"]
        shown.append((result["status"], result.get("statusMessage"), result["pollInterval"]))
    here = [("working", message, each) for each in (USUAL, 70, 5000, 0)]
    assert shown == [*here[:3], ("cancelled", "over", 70), here[3]]


def test_a_poll_shows_its_own_task_among_more_than_are_kept(make_record: RecordMaker) -> None:
    dialect = LegacyDownstream("1")
    records = [make_record(id=f"{number:032}") for number in range(MOST + 2)]
    for _ in range(2):
        shown = [json.loads(dialect.task_state(1, record, USUAL))["result"]["taskId"] for record in records]
        assert shown == [record.id for record in records]


def test_a_cancelled_task_is_shown_as_its_state(make_record: RecordMaker) -> None:
    record = make_record(status=TaskStatus.CANCELLED)
    text = DIALECT.task_cancelled("a", record)
    assert json.loads(text) == json.loads(DIALECT.task_state("a", record, USUAL))
    check_server_message(text, request_method="tasks/cancel")


@covers("L-NOTIF-1")
@pytest.mark.parametrize(("changes", "status"), STATES.values(), ids=STATES)
def test_a_change_of_state_is_told_with_the_whole_task(
    make_record: RecordMaker, changes: dict[str, Any], status: str
) -> None:
    record = make_record(**changes)
    text = DIALECT.task_status(record)
    message = json.loads(text)
    assert message["method"] == "notifications/tasks/status"
    assert message["params"] == json.loads(DIALECT.task_state(1, record, USUAL))["result"]
    assert message["params"]["status"] == status
    check_server_message(text, request_method=None)


@pytest.mark.parametrize(("id_", "told"), IDS)
def test_a_handle_answers_the_call(make_record: RecordMaker, id_: int | str, told: str) -> None:
    record = make_record()
    text = DIALECT.task_created(id_, record, None)
    assert text.startswith(f'{{"jsonrpc":"2.0","id":{told},"result":{{')
    result = json.loads(text)["result"]
    assert (result["task"]["taskId"], result["task"]["status"]) == (record.id, "working")
    check_server_message(text, request_method="tools/call", as_task=True)


@covers("L-CREATE-4")
def test_a_handle_brings_what_a_model_may_be_told_for_now(make_record: RecordMaker) -> None:
    text = DIALECT.task_created(1, make_record(), "wait")
    assert json.loads(text)["result"]["_meta"]["io.modelcontextprotocol/model-immediate-response"] == "wait"
    check_server_message(text, request_method="tools/call", as_task=True)


@covers("L-RES-2", "L-RES-3", "T-1")
@pytest.mark.parametrize("outcome", [SUCCEEDED, FAILED_TOOL], ids=["done", "error of the tool"])
def test_an_outcome_is_the_result_of_the_call_related_to_its_task(make_record: RecordMaker, outcome: Succeeded) -> None:
    # A tool's error is a success response.
    record = make_record(status=TaskStatus.COMPLETED, outcome=outcome, tool_error=outcome.tool_error)
    text = DIALECT.task_outcome(8, record)
    related = f'"_meta":{{"{RELATED_TASK}":{{"taskId":"{record.id}"}}}},'
    assert text == f'{{"jsonrpc":"2.0","id":8,"result":{{{related}{outcome.result[1:]}}}'
    check_server_message(text, request_method="tasks/result")


@covers("L-RES-2", "L-RES-3")
def test_the_outcome_of_a_failed_task_is_the_error_of_the_call_to_the_byte(make_record: RecordMaker) -> None:
    # An error object stays unmodified.
    text = DIALECT.task_outcome("é", make_record(status=TaskStatus.FAILED, outcome=FAULTED))
    assert text == f'{{"jsonrpc":"2.0","id":"é","error":{ERROR}}}'
    check_server_message(text, request_method="tasks/result")


def test_a_cancelled_task_has_an_error_for_an_outcome(make_record: RecordMaker) -> None:
    # AMB-1.
    text = DIALECT.task_outcome(9, make_record(status=TaskStatus.CANCELLED))
    assert text == '{"jsonrpc":"2.0","id":9,"error":{"code":-32800,"message":"Task was cancelled"}}'
    check_server_message(text, request_method="tasks/result")


@covers("L-LIST-1")
def test_a_page_of_tasks_is_answered_under_the_hosts_id(make_record: RecordMaker) -> None:
    text = DIALECT.task_page("x", [listed_task(make_record())], "c")
    answer = json.loads(text)
    assert (answer["id"], len(answer["result"]["tasks"]), answer["result"]["nextCursor"]) == ("x", 1, "c")
    check_server_message(text, request_method="tasks/list")
    last = DIALECT.task_page(1, [], None)
    assert json.loads(last)["result"] == {"tasks": []}
    check_server_message(last, request_method="tasks/list")


# --- modern servers ---------------------------------------------------------------------------------------------------


CLEAN = '{"content":[{"type":"text","text":"[1]"}]}'
THEIRS = '"_meta":{"io.modelcontextprotocol/serverInfo":{}}'
FOREIGN = f'{{"resultType":"complete","content":[],"structuredContent":[1],{THEIRS}}}'


@covers("B-CONV-1", "B-CONV-3")
@EVERY_HOST
def test_an_answer_of_the_modern_era_is_made_to_fit(host: Revision) -> None:
    given = response(f'{{"jsonrpc":"2.0","id":3,"result":{FOREIGN}}}')
    assert DIALECT.answer(4, given, EraCrossing("tools/call", host)) == f'{{"jsonrpc":"2.0","id":4,"result":{CLEAN}}}'
    check(CLEAN, "CallToolResult", host)
    assert DIALECT.answer(4, given) == f'{{"jsonrpc":"2.0","id":4,"result":{FOREIGN}}}'


@covers("B-CONV-2", "T-29")
@EVERY_HOST
@pytest.mark.parametrize("shows", [None, lambda tool: tool == "t"], ids=["all", "some"])
def test_a_page_of_tools_of_the_modern_era_is_made_to_fit(host: Revision, shows: Callable[[str], bool] | None) -> None:
    hidden = "" if shows is None else ',{"name":"h","inputSchema":{"type":"object"}}'
    tool = '{"name":"t","inputSchema":{"type":"object","properties":{"a":true}},"outputSchema":{"type":"array"}}'
    page = f'{{"resultType":"complete","ttlMs":9,"cacheScope":"public","tools":[{tool}{hidden}]}}'
    given = response(f'{{"jsonrpc":"2.0","id":3,"result":{page}}}')
    support = (lambda *_: TaskSupport.OPTIONAL) if host.has_tasks else None
    told = json.loads(DIALECT.tools(4, given, support, shows, EraCrossing("tools/list", host)))["result"]
    seen = {"name": "t", "inputSchema": {"type": "object", "properties": {"a": {}}}}
    assert told == {"tools": [seen | ({"execution": {"taskSupport": "optional"}} if host.has_tasks else {})]}
    check(told, "ListToolsResult", host)


def test_what_is_no_page_of_the_modern_era_is_the_servers_fault() -> None:
    foreign = EraCrossing("tools/list", Revision.R2025_11_25)
    for result in ("[]", '{"resultType":"input_required","requestState":"s"}'):
        given = response(f'{{"jsonrpc":"2.0","id":3,"result":{result}}}')
        assert json.loads(DIALECT.tools(4, given, None, None, foreign))["error"]["code"] == -32603
    refused = response('{"jsonrpc":"2.0","id":3,"error":{"code":-32021,"message":"no"}}')
    assert json.loads(DIALECT.tools(4, refused, None, None, foreign))["error"]["code"] == -32603
    assert json.loads(DIALECT.tools(4, refused, None))["error"]["code"] == -32021


@covers("B-CONV-1", "B-CONV-3", "B-CONV-8")
def test_an_outcome_of_a_server_of_the_modern_era_is_made_to_fit(make_record: RecordMaker) -> None:
    done = make_record(status=TaskStatus.COMPLETED, outcome=Succeeded(result=FOREIGN, tool_error=False))
    text = DIALECT.task_outcome(8, done)
    related = f',"_meta":{{"{RELATED_TASK}":{{"taskId":"{done.id}"}}}}}}'
    assert text == f'{{"jsonrpc":"2.0","id":8,"result":{CLEAN[:-1]}{related}}}'
    check_server_message(text, request_method="tasks/result")
    error = Faulted(error='{"code":-32021,"message":"no"}', reason=FaultReason.JSONRPC_ERROR)
    told = to_string(DIALECT.task_outcome(8, make_record(status=TaskStatus.FAILED, outcome=error)))
    assert json.loads(told)["error"] == {"code": -32603, "message": "no", "data": {"upstreamCode": -32021}}
    check_server_message(told, request_method="tasks/result")


@pytest.mark.parametrize("code", [-32021, -32000])
def test_a_large_outcome_is_told_as_a_small_one(make_record: RecordMaker, code: int) -> None:
    for outcome in (
        Succeeded(result=FOREIGN, tool_error=False),
        Faulted(error=f'{{"code":{code},"message":"é"}}', reason=FaultReason.JSONRPC_ERROR),
    ):
        status = TaskStatus.COMPLETED if isinstance(outcome, Succeeded) else TaskStatus.FAILED
        small = make_record(status=status, outcome=outcome)
        name, text = ("result", FOREIGN) if isinstance(outcome, Succeeded) else ("error", str(outcome.error))
        large = replace(small, outcome=replace(outcome, **{name: LargeJson(text.encode())}))  # type: ignore[arg-type]
        assert to_string(DIALECT.task_outcome(8, large)) == DIALECT.task_outcome(8, small)


def of_a_modern_host(make_record: RecordMaker, **changes: Any) -> TaskRecord:
    peer = Peer(revision=Revision.R2026_07_28, capabilities={"extensions": {}}, info={})
    call = ToolCall(tool="t", peer=peer, host_session=None, progress_token=None, params=None)
    return make_record(call=call, **changes)


OF_THE_OTHER_ERA: dict[str, tuple[dict[str, Any], str]] = {
    "working": ({"status_message": "3/10"}, "working"),
    "completed": (
        {"status": TaskStatus.COMPLETED, "outcome": Succeeded(result=FOREIGN, tool_error=False)},
        "completed",
    ),
    "failed by its tool": (
        {
            "status": TaskStatus.COMPLETED,
            "outcome": Succeeded(result='{"content":[],"isError":true}', tool_error=True),
            "tool_error": True,
        },
        "failed",
    ),
    "failed": (
        {
            "status": TaskStatus.FAILED,
            "outcome": Faulted(error='{"code":-32602,"message":"no"}', reason=FaultReason.JSONRPC_ERROR),
        },
        "failed",
    ),
    "cancelled": ({"status": TaskStatus.CANCELLED}, "cancelled"),
    "asked": (
        {
            "status": TaskStatus.INPUT_REQUIRED,
            "inputs": (InputRequest(key="input-1", method="roots/list", params=""),),
        },
        "input_required",
    ),
}


@covers("L-LIST-3")
@pytest.mark.parametrize(("changes", "status"), OF_THE_OTHER_ERA.values(), ids=OF_THE_OTHER_ERA)
def test_a_task_of_the_modern_era_is_shown_in_the_words_of_this_one(
    make_record: RecordMaker, changes: dict[str, Any], status: str
) -> None:
    # AMB-7: what a look shows, a list shows too.
    record = of_a_modern_host(make_record, **changes)
    state, page = DIALECT.task_state(1, record, USUAL), DIALECT.task_page(1, [listed_task(record)], None)
    assert json.loads(state)["result"]["status"] == status
    assert json.loads(page)["result"] == {"tasks": [json.loads(state)["result"]]}
    check_server_message(state, request_method="tasks/get")
    check_server_message(page, request_method="tasks/list")
    if record.status.is_terminal:
        check_server_message(DIALECT.task_outcome(1, record), request_method="tasks/result")


# --- hosts that know no tasks -----------------------------------------------------------------------------------------


def test_a_text_of_the_gateway_is_the_result_of_a_tool() -> None:
    told = json.loads(DIALECT.text_result(1, "Wait."))
    assert told["result"] == {"content": [{"type": "text", "text": "Wait."}], "isError": False}
    check_server_message(json.dumps(told), request_method="tools/call")


def test_an_ended_call_is_answered_as_its_server_answered_it(make_record: RecordMaker) -> None:
    done = make_record(status=TaskStatus.COMPLETED, outcome=Succeeded(result=f"{{{ODD}}}", tool_error=False))
    told = to_string(DIALECT.call_outcome(1, done, None, Revision.R2025_06_18))
    assert told == f'{{"jsonrpc":"2.0","id":1,"result":{{{ODD}}}}}'
    error = Faulted(error='{"code":-32050,"message":"no"}', reason=FaultReason.JSONRPC_ERROR)
    failed = make_record(status=TaskStatus.FAILED, outcome=error)
    told = to_string(DIALECT.call_outcome(1, failed, None, Revision.R2025_06_18))
    assert json.loads(told)["error"] == {"code": -32050, "message": "no"}


def test_a_page_of_tools_has_those_of_the_gateway_too() -> None:
    page = response('{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}')
    told = DIALECT.tools(1, page, None, own=lambda found: found.replace("[]", '["own"]'))
    assert json.loads(to_string(told))["result"] == {"tools": ["own"]}


def test_a_call_that_may_be_handed_off_can_be_stored() -> None:
    text = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":"p"}}}'
    message = parse(text.encode(), max_depth=64)
    peer = Peer(revision=Revision.R2025_06_18, capabilities={}, info={})
    for hands_off in (False, True):
        intent = DIALECT.decode(message, peer, offers_tasks=True, extensions=ExtensionPolicy(), hands_off=hands_off)
        assert isinstance(intent, CallTool)
        assert (intent.stored_params is not None, intent.wants_task) == (hands_off, False)
        assert hands_off is ("progressToken" not in (intent.stored_params or "progressToken"))
