"""Every answer is a whole message under the host's id, valid by the published schema."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taskgate.domain.record import Faulted, FaultReason, InputRequest, Succeeded, TaskRecord, TaskStatus, ToolCall
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.extensions import BUILT_IN, SKILLS, ExtensionPolicy
from taskgate.protocol.host_requests import Relay, Retry, Subscription
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification, Params, Response
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.modern.rounds import Round
from taskgate.protocol.server_messages import Question
from unit.protocol.modern.judge import INFO, TOLD, check, check_task, read
from unit.protocol.modern_messages import changed

RecordMaker = Callable[..., TaskRecord]

DIALECT = ModernDownstream("0.1.0")
TOOLS = ",".join(f'{{"name":"{name}","inputSchema":{{"type":"object"}},"execution":{{}}}}' for name in "ab")
OWN_TOOLS = " , ".join(
    f'{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"x":true}}}},"outputSchema":{{"type":"array"}},"execution":0}}'
    for name in "ab"
)
PUBLIC, PRIVATE = '"public"', '"private"'
FORM = Question("elicitation/create", Params('{"message":"m","requestedSchema":{"type":"object","properties":{}}}'))
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
GATEWAY = "io.taskgate/gateway"
GATEWAY_INFO = {"name": "taskgate", "version": "0.1.0"}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def note(method: str, params: str) -> Notification:
    message = parse(f'{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}'.encode(), max_depth=64)
    assert isinstance(message, Notification)
    return message


def result_of(text: str, meta: object = TOLD) -> dict[str, Any]:
    message: dict[str, Any] = read(text)
    assert message.keys() == {"jsonrpc", "id", "result"}
    assert message["id"] == "h"
    check(message, "JSONRPCResultResponse")
    result: dict[str, Any] = message["result"]
    assert result.get("_meta") == meta
    return result


def error_of(text: str) -> dict[str, Any]:
    message: dict[str, Any] = read(text)
    assert (message.keys(), message["id"]) == ({"jsonrpc", "id", "error"}, "h")
    check(message, "JSONRPCErrorResponse")
    error: dict[str, Any] = message["error"]
    return error


def response(tail: str) -> Response:
    message = parse(f'{{"jsonrpc":"2.0","id":42,{tail}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def test_discovery() -> None:
    peer = Peer(revision=Revision.R2025_11_25, capabilities={"tools": {}}, info={})
    server = ServerDescription(peer=peer, capabilities='{"tools":{}}', instructions=None)
    text = DIALECT.discovery("h", server, offers_tasks=True, extensions=ExtensionPolicy())
    found = result_of(text, {GATEWAY: {"version": "0.1.0"}})
    assert (found["ttlMs"], list(found["capabilities"])) == (0, ["extensions", "tools"])
    check(found, "DiscoverResult")


@pytest.mark.parametrize("era", Era)
def test_an_answer_of_a_server(era: Era) -> None:
    given = response('"result":{"content":[]}')
    found = result_of(DIALECT.answer("h", "tools/call", given, era, INFO))
    assert found == {"resultType": "complete", "content": [], "_meta": TOLD}
    assert result_of(DIALECT.answer("h", "tools/call", given, era), None) == {"resultType": "complete", "content": []}


@pytest.mark.parametrize("era", Era)
def test_an_answer_of_a_server_to_a_method_of_an_extension(era: Era) -> None:
    given = response('"result":{"skills":[]}')
    found = result_of(DIALECT.answer("h", "skills/list", given, era, INFO, BUILT_IN[SKILLS]))
    assert found == {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "skills": [], "_meta": TOLD}


@pytest.mark.parametrize(("shows", "shown"), [(None, ["a", "b"]), (lambda name: name != "b", ["a"])])
def test_a_page_of_tools(shows: Callable[[str], bool] | None, shown: list[str]) -> None:
    page = response(f'"result":{{"tools":[{TOOLS}],"nextCursor":"n"}}')
    found = result_of(DIALECT.tools("h", page, Era.LEGACY, shows, INFO))
    assert [tool["name"] for tool in found["tools"]] == shown
    assert all(tool.keys() == {"name", "inputSchema"} for tool in found["tools"])
    assert (found["ttlMs"], found["cacheScope"], found["nextCursor"]) == (0, "private", "n")
    check(found, "ListToolsResult")


@pytest.mark.parametrize(("shows", "shown"), [(None, ["a", "b"]), (lambda name: name != "b", ["a"])])
def test_a_page_of_tools_of_a_server_of_this_era(shows: Callable[[str], bool] | None, shown: list[str]) -> None:
    own = OWN_TOOLS.replace(',"execution":0', "")
    listed = own if shows is None else own.split(" , ", maxsplit=1)[0]
    kept = '"resultType":"complete","ttlMs":9,"cacheScope":@,"nextCursor":"\\u006e"'
    page = response(f'"result":{{"tools":[{OWN_TOOLS}],{kept.replace("@", PUBLIC)}}}')
    text = DIALECT.tools("h", page, Era.MODERN, shows)
    found = result_of(text, None)
    assert [tool["name"] for tool in found["tools"]] == shown
    assert f'"tools":[{listed}],{kept.replace("@", PRIVATE)}' in text
    check(found, "ListToolsResult")


def test_a_refusal_to_list_tools() -> None:
    refused = response('"error":{"code":-32601,"message":"no"}')
    for era in Era:
        assert error_of(DIALECT.tools("h", refused, era)) == {"code": -32601, "message": "no"}
        assert error_of(DIALECT.tools("h", response('"result":[]'), era))["code"] == -32603
    round_ = response('"result":{"resultType":"input_required","requestState":"s"}')
    assert error_of(DIALECT.tools("h", round_, Era.MODERN))["code"] == -32603


def test_a_question_of_a_call_that_is_held() -> None:
    found = result_of(DIALECT.input_required("h", {"a": Question("roots/list", None), "b": FORM}, "s"))
    assert (found["resultType"], found["requestState"]) == ("input_required", "s")
    assert found["inputRequests"] == {
        "a": {"method": "roots/list", "params": {}},
        "b": {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": SCHEMA}},
    }
    check(found, "InputRequiredResult")


def test_an_answer_to_such_a_question_fits_or_does_not() -> None:
    assert DIALECT.is_valid_answer("elicitation/create", '{"result":{"action":"decline"}}')
    assert not DIALECT.is_valid_answer("elicitation/create", '{"result":{"action":"perhaps"}}')


def test_a_round_that_is_passed_on() -> None:
    asked = response('"result":{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}')
    assert DIALECT.round_of(asked) == Round(None)
    assert DIALECT.missing_capabilities(asked, Peer(revision=Revision.R2026_07_28, capabilities={}, info={})) == {
        "roots": {}
    }
    assert result_of(DIALECT.passed_round("h", asked, "ours", INFO))["resultType"] == "input_required"
    found = result_of(DIALECT.passed_round("h", asked, "ours"), None)
    assert (found["requestState"], found["inputRequests"]) == ("ours", {"k": {"method": "roots/list"}})
    check(found, "InputRequiredResult")


def test_a_request_that_is_sent_again_is_another_than_the_first() -> None:
    relay = Relay("h", "prompts/get", Params('{"name":"p"}'), None)
    brought = Retry(request=relay, answers={}, responses='{"k":{"roots":[]}}', state="ours")
    sent = DIALECT.with_answers(brought, "theirs").params
    assert sent == Params('{"inputResponses":{"k":{"roots":[]}},"requestState":"theirs","name":"p"}')
    assert DIALECT.digest(relay) != DIALECT.digest(changed(relay, params=sent))


def test_what_is_told_while_a_request_is_served() -> None:
    progress = note("progress", '{"progressToken":3,"progress":1}')
    assert read(DIALECT.notification(progress, "h"))["params"] == {"progressToken": "h", "progress": 1}
    assert read(DIALECT.progress("h", 0.5, "half"))["params"]["message"] == "half"
    event = note("events/active", f'{{"_meta":{{"{SUBSCRIPTION}":3}}}}')
    assert read(DIALECT.notification(event, None, "h"))["params"] == {"_meta": {SUBSCRIPTION: "h"}}
    line = note("message", '{"level":"error","data":1}')
    assert DIALECT.wants_log(line, "warning")
    assert not DIALECT.wants_log(line, None)


def test_what_is_told_on_a_stream_of_news(make_record: RecordMaker) -> None:
    granted = Subscription(tools=True)
    told = [
        read(DIALECT.subscription_granted("h", granted)),
        read(DIALECT.stream_notification("h", note("tools/list_changed", "{}"))),
        read(DIALECT.task_notification("h", make_record())),
    ]
    assert [message["params"]["_meta"] for message in told] == [{SUBSCRIPTION: "h"}] * 3
    ending = read(DIALECT.subscription_ended("h"))
    assert (ending["id"], ending["result"]["_meta"]) == ("h", {SUBSCRIPTION: "h", **TOLD})
    check(ending["result"], "SubscriptionsListenResult")


def test_a_task(make_record: RecordMaker) -> None:
    record = make_record()
    created, state = DIALECT.task_created("h", record), DIALECT.task_state("h", record)
    check_task(result_of(created), "CreateTaskResult")
    check_task(result_of(state), "GetTaskResult", "WorkingTask")
    assert (result_of(created)["resultType"], result_of(state)["resultType"]) == ("task", "complete")


def test_a_cancel_is_acknowledged_whether_the_task_had_ended_or_not(make_record: RecordMaker) -> None:
    cancelled = make_record(status=TaskStatus.CANCELLED)
    assert DIALECT.task_cancelled("h", cancelled) == DIALECT.task_cancelled("h", None) == DIALECT.acknowledgement("h")


def test_an_acknowledgement() -> None:
    text = DIALECT.acknowledgement("h")
    assert result_of(text) == {"resultType": "complete", "_meta": TOLD}
    check_task(result_of(text), "UpdateTaskResult", "CancelTaskResult")


def test_the_inputs_that_may_be_answered(make_record: RecordMaker) -> None:
    asked = InputRequest(key="input-1", method="roots/list", params="")
    of_old = InputRequest(key="input-2", method="tasks/result", params="{}")
    record = make_record(status=TaskStatus.INPUT_REQUIRED, inputs=(asked, of_old))
    assert DIALECT.open_inputs(record) == {"input-1": asked}


# --- tasks of the other era ----------------------------------------------------------------------------------------


def of_an_initialize_host(make_record: RecordMaker, **changes: Any) -> TaskRecord:
    peer = Peer(revision=Revision.R2025_11_25, capabilities={"tasks": {}}, info={})
    call = ToolCall(tool="t", peer=peer, host_session="s", progress_token=3, params=None)
    return make_record(call=call, **changes)


OF_OLD: dict[str, tuple[dict[str, Any], str]] = {
    "working": ({"status_message": "3/10"}, "WorkingTask"),
    "asked": (
        {
            "status": TaskStatus.INPUT_REQUIRED,
            "inputs": (
                InputRequest(key="input-1", method="roots/list", params="", claimed_by="a stream"),
                InputRequest(key="input-2", method="tasks/result", params='{"taskId":"host"}'),
            ),
        },
        "InputRequiredTask",
    ),
    "asked what only the other era hears": (
        {
            "status": TaskStatus.INPUT_REQUIRED,
            "inputs": (InputRequest(key="input-1", method="tasks/get", params='{"taskId":"host"}'),),
        },
        "WorkingTask",
    ),
    "failed by its tool": (
        {
            "status": TaskStatus.COMPLETED,
            "outcome": Succeeded(result='{"content":[],"isError":true}', tool_error=True),
            "tool_error": True,
        },
        "CompletedTask",
    ),
    "failed": (
        {
            "status": TaskStatus.FAILED,
            "outcome": Faulted(error='{"code":-32042,"message":"no"}', reason=FaultReason.JSONRPC_ERROR),
        },
        "FailedTask",
    ),
    "cancelled": ({"status": TaskStatus.CANCELLED}, "CancelledTask"),
}


@pytest.mark.parametrize(("changes", "name"), OF_OLD.values(), ids=OF_OLD)
def test_a_task_of_the_other_era_is_shown_in_the_words_of_this_one(
    make_record: RecordMaker, changes: dict[str, Any], name: str
) -> None:
    # AMB-7.
    record = of_an_initialize_host(make_record, **changes)
    found = result_of(DIALECT.task_state("h", record))
    check_task(found, "GetTaskResult", name)
    assert list(found.get("inputRequests", {})) == list(DIALECT.open_inputs(record))


def test_a_large_outcome_is_told_as_a_small_one(make_record: RecordMaker) -> None:
    result = '{"content":["é"],"_meta":{"x":1}}'
    small, large = (
        make_record(status=TaskStatus.COMPLETED, outcome=Succeeded(result=text, tool_error=False))
        for text in (result, LargeJson(result.encode()))
    )
    assert to_string(DIALECT.task_state("é", large)) == DIALECT.task_state("é", small)
    assert to_string(DIALECT.task_notification("é", large)) == DIALECT.task_notification("é", small)


@pytest.mark.parametrize("message", [None, '"pollIntervalMs":0'])
def test_a_poll_shows_the_record_and_the_interval_of_this_poll(make_record: RecordMaker, message: str | None) -> None:
    dialect = ModernDownstream("0.1.0")
    polled = make_record(status_message=message)
    changed, ended = (replace(polled, status=each) for each in (TaskStatus.INPUT_REQUIRED, TaskStatus.CANCELLED))
    for record, interval in ((polled, 70), (polled, 5000), (changed, 70), (ended, 0), (polled, 0), (polled, None)):
        shown, fresh = (each.task_state("h", record, interval) for each in (dialect, ModernDownstream("0.1.0")))
        assert shown == fresh
        usual = polled.poll_interval // timedelta(milliseconds=1)
        found = result_of(shown)
        assert (found["pollIntervalMs"], found.get("statusMessage")) == (
            usual if interval is None else interval,
            message,
        )
        assert found["status"] == record.status


# --- hosts that know no tasks -----------------------------------------------------------------------------------------


def test_a_text_of_the_gateway_is_the_result_of_a_tool() -> None:
    found = result_of(DIALECT.text_result("h", "Wait."), {"io.modelcontextprotocol/serverInfo": GATEWAY_INFO})
    content = [{"type": "text", "text": "Wait."}]
    assert (found["resultType"], found["content"], found["isError"]) == ("complete", content, False)
    check(found, "CallToolResult")


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("info", [None, INFO])
@pytest.mark.parametrize(
    "given", ['{"content":[]}', '{"resultType":"complete","content":[]}', '{"content":[],"_meta":{}}']
)
def test_an_ended_call_is_answered_as_it_would_have_been(
    make_record: RecordMaker, given: str, info: str | None, large: bool
) -> None:
    text = LargeJson(given.encode()) if large else given
    done = make_record(status=TaskStatus.COMPLETED, outcome=Succeeded(result=text, tool_error=False))
    told = read(to_string(DIALECT.call_outcome("h", done, info, Revision.R2026_07_28)))["result"]
    assert (told["resultType"], told["content"]) == ("complete", [])
    assert told.get("_meta") or ({} if info is None else TOLD) == {}


@pytest.mark.parametrize("large", [False, True])
def test_an_error_of_an_ended_call_is_its_error(make_record: RecordMaker, large: bool) -> None:
    text = '{"code":-32000,"message":"no"}'
    error = Faulted(error=LargeJson(text.encode()) if large else text, reason=FaultReason.JSONRPC_ERROR)
    failed = make_record(status=TaskStatus.FAILED, outcome=error)
    told = to_string(DIALECT.call_outcome("h", failed, None, Revision.R2026_07_28))
    assert error_of(told) == {"code": -32000, "message": "no"}
    cancelled = make_record(status=TaskStatus.CANCELLED)
    assert read(to_string(DIALECT.call_outcome("h", cancelled, None, Revision.R2026_07_28)))["error"]["code"] == -32800


def test_the_open_inputs_of_a_task_are_a_round(make_record: RecordMaker) -> None:
    asked = InputRequest(key="input-1", method="roots/list", params="")
    record = make_record(status=TaskStatus.INPUT_REQUIRED, inputs=(asked,), inputs_made=1)
    found = result_of(DIALECT.task_round("h", record, "s"), {"io.modelcontextprotocol/serverInfo": GATEWAY_INFO})
    assert found["resultType"] == "input_required"
    assert found["inputRequests"] == {"input-1": {"method": "roots/list", "params": {}}}
    assert found["requestState"] == "s"


def test_a_page_of_tools_has_those_of_the_gateway_too() -> None:
    page = response('"result":{"tools":[]}')
    told = DIALECT.tools("h", page, Era.LEGACY, own=lambda found: found.replace("[]", '["own"]'))
    assert read(to_string(told))["result"]["tools"] == ["own"]
