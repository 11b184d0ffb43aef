"""Every answer is a whole message under the host's id, valid by the published schema."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taskgate.domain.record import Faulted, FaultReason, Succeeded, TaskRecord, TaskStatus
from taskgate.domain.versions import Era, Revision
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.protocol.host_requests import Relay, Retry
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.modern.downstream import ModernDownstream
from unit.protocol.modern.judge import INFO, TOLD, check, read
from unit.protocol.modern_messages import changed

RecordMaker = Callable[..., TaskRecord]

DIALECT = ModernDownstream("0.1.0")
TOOLS = ",".join(f'{{"name":"{name}","inputSchema":{{"type":"object"}},"execution":{{}}}}' for name in "ab")
OWN_TOOLS = " , ".join(
    f'{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"x":true}}}},"outputSchema":{{"type":"array"}},"execution":0}}'
    for name in "ab"
)
PUBLIC, PRIVATE = '"public"', '"private"'


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


def test_a_request_that_is_sent_again_is_another_than_the_first() -> None:
    relay = Relay("h", "prompts/get", Params('{"name":"p"}'), None)
    brought = Retry(request=relay, answers={}, responses='{"k":{"roots":[]}}', state="ours")
    sent = DIALECT.with_answers(brought, "theirs").params
    assert sent == Params('{"inputResponses":{"k":{"roots":[]}},"requestState":"theirs","name":"p"}')
    assert DIALECT.digest(relay) != DIALECT.digest(changed(relay, params=sent))


# --- tasks of the other era ----------------------------------------------------------------------------------------


def test_a_large_outcome_is_told_as_a_small_one(make_record: RecordMaker) -> None:
    result = '{"content":["é"],"_meta":{"x":1}}'
    small, large = (
        make_record(status=TaskStatus.COMPLETED, outcome=Succeeded(result=text, tool_error=False))
        for text in (result, LargeJson(result.encode()))
    )
    assert to_string(DIALECT.task_state("é", large)) == DIALECT.task_state("é", small)
    assert to_string(DIALECT.task_notification("é", large)) == DIALECT.task_notification("é", small)


# --- hosts that know no tasks -----------------------------------------------------------------------------------------


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


def test_a_page_of_tools_has_those_of_the_gateway_too() -> None:
    page = response('"result":{"tools":[]}')
    told = DIALECT.tools("h", page, Era.LEGACY, own=lambda found: found.replace("[]", '["own"]'))
    assert read(to_string(told))["result"]["tools"] == ["own"]


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
