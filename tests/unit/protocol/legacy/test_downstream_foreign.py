"""What servers and hosts of the modern era leave behind is shown to a host of this one in its own words."""

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
from taskgate.protocol.dialects import EraCrossing
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Response
from unit.protocol.legacy.judge import EVERY_HOST, check

RecordMaker = Callable[..., TaskRecord]

DIALECT = LegacyDownstream("0.1.0")


def response(text: str) -> Response:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


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
    state, page = DIALECT.task_state(1, record), DIALECT.task_page(1, [listed_task(record)], None)
    assert json.loads(state)["result"]["status"] == status
    assert json.loads(page)["result"] == {"tasks": [json.loads(state)["result"]]}
    check_server_message(state, request_method="tasks/get")
    check_server_message(page, request_method="tasks/list")
    if record.status.is_terminal:
        check_server_message(DIALECT.task_outcome(1, record), request_method="tasks/result")
