"""What the last word of a server means for a task."""

import json
from typing import Any

import pytest

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.errors import UpstreamFailed
from taskgate.protocol import outcomes
from taskgate.protocol.envelope import Response
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.outcomes import MAX_SUMMARY


def response(**members: Any) -> Response:
    found = parse(json.dumps({"jsonrpc": "2.0", "id": 1, **members}).encode(), max_depth=64)
    assert isinstance(found, Response)
    return found


def test_an_error_is_a_fault_with_its_text_as_it_came() -> None:
    found = outcomes.outcome(response(error={"code": -32602, "message": "no", "data": {"a": 1}}))
    assert isinstance(found, CallFaulted)
    assert (json.loads(found.error), found.message, found.reason.value) == (
        {"code": -32602, "message": "no", "data": {"a": 1}}, "no", "jsonrpc_error",
    )  # fmt: skip


@pytest.mark.parametrize("kind", [{}, {"resultType": "complete"}])
def test_a_result_is_kept_as_it_came(kind: dict[str, Any]) -> None:
    result = {**kind, "content": [], "isError": False}
    found = outcomes.outcome(response(result=result))
    assert found == CallSucceeded(result=json.dumps(result), tool_error=False, message=None)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "image"}, "odd", {"text": 3}]}, "The tool reported an error"),
        ({"content": "odd"}, "The tool reported an error"),
        ({}, "The tool reported an error"),
        ({"content": [{"text": "x" * 2_000}]}, "x" * 999 + "…"),
        ({"content": [{"text": "\ud800"}]}, "?"),
    ],
)
def test_a_tools_error_has_its_text_for_people(result: dict[str, Any], message: str) -> None:
    found = outcomes.outcome(response(result={**result, "isError": True}))
    assert isinstance(found, CallSucceeded)
    assert (found.tool_error, found.message) == (True, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "text", "text": "no such column: 1" + ",2" * 60_000}], f"no such column: 1{',2' * 491}…"),
        ([{"type": "image", "data": "[" * 60_000}, {"type": "text", "text": "b"}], "b"),
        ([{}] * 60_000, "The tool reported an error"),
    ],
    ids=["a long text", "a long value beside it", "blocks"],
)
def test_a_tools_error_of_very_many_parts_has_its_text_too(content: list[Any], message: str) -> None:
    found = outcomes.outcome(response(result={"content": content, "isError": True}))
    assert isinstance(found, CallSucceeded)
    assert found.message == message


@pytest.mark.parametrize("result", [[], "text", {"task": {}}])
def test_what_is_no_tool_result_breaks_the_protocol(result: Any) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        outcomes.outcome(response(result=result))
    assert (failed.value.reason, failed.value.dispatched) == ("malformed", True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ""),
        ("x" * MAX_SUMMARY, "x" * MAX_SUMMARY),
        ("x" * (MAX_SUMMARY + 1), "x" * (MAX_SUMMARY - 1) + "…"),
        ("\ud800" * (MAX_SUMMARY + 5), "?" * (MAX_SUMMARY - 1) + "…"),
        ("é😀\n", "é😀\n"),
    ],
    ids=["empty", "the longest", "longer", "surrogates", "letters"],
)
def test_a_summary_is_bounded_and_can_be_written(text: str, told: str) -> None:
    assert outcomes.summary(text) == told
