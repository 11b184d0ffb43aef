"""Responses to legacy hosts: of servers of either era, and of the gateway."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from helpers.schema import check_server_message
from requirements import covers
from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import Faulted, FaultReason, Succeeded, TaskRecord, TaskStatus
from taskgate.domain.versions import Revision
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.results import EraCrossing
from taskgate.protocol.messages import Response
from taskgate.protocol.polled_tasks import MOST
from unit.protocol.legacy.judge import EVERY_HOST, check

# --- legacy servers ---------------------------------------------------------------------------------------------------


RecordMaker = Callable[..., TaskRecord]

DIALECT = LegacyDownstream("0.1.0")
USUAL = 2000
"""The poll interval of a record, in milliseconds."""


def response(text: str) -> Response:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


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


# --- tasks ---------------------------------------------------------------------------------------------------------


def test_a_poll_shows_its_own_task_among_more_than_are_kept(make_record: RecordMaker) -> None:
    dialect = LegacyDownstream("1")
    records = [make_record(id=f"{number:032}") for number in range(MOST + 2)]
    for _ in range(2):
        shown = [json.loads(dialect.task_state(1, record, USUAL))["result"]["taskId"] for record in records]
        assert shown == [record.id for record in records]


# --- modern servers ---------------------------------------------------------------------------------------------------


THEIRS = '"_meta":{"io.modelcontextprotocol/serverInfo":{}}'
FOREIGN = f'{{"resultType":"complete","content":[],"structuredContent":[1],{THEIRS}}}'


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


# --- hosts that know no tasks -----------------------------------------------------------------------------------------


def test_a_page_of_tools_has_those_of_the_gateway_too() -> None:
    page = response('{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}')
    told = DIALECT.tools(1, page, None, own=lambda found: found.replace("[]", '["own"]'))
    assert json.loads(to_string(told))["result"] == {"tools": ["own"]}


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
