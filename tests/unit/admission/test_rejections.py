"""How a limit is told: as an error, with the status of HTTP, or as a result of the tool that was not called."""

import json
from datetime import timedelta

import pytest

from helpers.schema import check_server_message
from taskgate import errors
from taskgate.admission.refusals import refusal
from taskgate.admission.rejections import Rejections
from taskgate.admission.rules import RejectAs
from taskgate.domain.versions import Era
from taskgate.protocol.envelope import Request
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.streams.exchange import HttpReply
from unit.admission.live_rules import live
from unit.admission.test_callers import MOUNT

WAIT = timedelta(seconds=2.1)
OVER_LIMITS: list[errors.DownstreamError] = [
    errors.RateLimited(WAIT, "calls"),
    errors.TooManyTasks(1),
    errors.TooManyBytes(1),
    errors.QueueFull("No turn", retry_after=WAIT),
    errors.Penalized(WAIT),
]
over_limits = pytest.mark.parametrize("error", OVER_LIMITS, ids=lambda error: error.reason)


def request(method: str = "tools/call", params: str = '{"name":"build"}') -> Request:
    text = f'{{"jsonrpc":"2.0","id":"c","method":"{method}","params":{params}}}'
    message = parse(text.encode(), max_depth=8)
    assert isinstance(message, Request)
    return message


def told(error: Exception, message: Request, era: Era, reject_as: RejectAs) -> tuple[HttpReply, HttpReply]:
    """What is told usually, and what is told by these rules."""
    usual, _ = refusal(error, MOUNT, message, era)
    rejections = Rejections(live(reject_as=reject_as), ModernDownstream("0"))
    return usual, rejections.retold(usual, error, message, era)


@over_limits
@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("method", ["ping", "tools/call"])
def test_it_may_have_the_status_of_http(error: errors.DownstreamError, era: Era, method: str) -> None:
    usual, reply = told(error, request(method), era, RejectAs.HTTP)
    assert (usual.status, reply.status) == (200, 429)
    assert (reply.body, reply.headers) == (usual.body, usual.headers)


@over_limits
def test_it_may_be_a_result_of_the_tool(error: errors.DownstreamError) -> None:
    usual, reply = told(error, request(), Era.LEGACY, RejectAs.TOOL_ERROR)
    assert reply.body is not None
    result = json.loads(reply.body)["result"]
    assert set(result) == {"content", "isError"}
    assert result["content"][0]["text"].startswith(f"The tool was not called: {error}. Try again in ")
    assert (reply.status, reply.headers) == (200, usual.headers)
    check_server_message(reply.body, request_method="tools/call")


@over_limits
def test_in_the_modern_era_it_says_who_answers_and_that_it_is_complete(error: errors.DownstreamError) -> None:
    _, reply = told(error, request(), Era.MODERN, RejectAs.TOOL_ERROR)
    message = json.loads(reply.body or "")
    assert (message["id"], message["result"]["isError"], message["result"]["resultType"]) == ("c", True, "complete")
    assert message["result"]["_meta"] == {
        "io.modelcontextprotocol/serverInfo": {"name": "taskgate", "version": "0"},
    }
    usual = json.loads(told(error, request(), Era.LEGACY, RejectAs.TOOL_ERROR)[1].body or "")
    assert message["result"]["content"] == usual["result"]["content"]


def test_what_calls_no_tool_or_asks_for_a_task_has_no_result_of_a_tool() -> None:
    error, as_task = errors.TooManyTasks(1), request(params='{"name":"build","task":{}}')
    for message, era in (
        (request("prompts/get"), Era.MODERN),
        (request("ping"), Era.LEGACY),
        (as_task, Era.LEGACY),
    ):
        usual, reply = told(error, message, era, RejectAs.TOOL_ERROR)
        assert reply == usual
    # A host of the modern era asks for no task, whatever it writes.
    assert "isError" in (told(error, as_task, Era.MODERN, RejectAs.TOOL_ERROR)[1].body or "")


@over_limits
@pytest.mark.parametrize("era", Era)
def test_it_is_an_error_unless_the_operator_says_otherwise(error: errors.DownstreamError, era: Era) -> None:
    usual, reply = told(error, request(), era, RejectAs.JSONRPC)
    assert reply == usual
    assert json.loads(reply.body or "")["error"]["code"] == 429
