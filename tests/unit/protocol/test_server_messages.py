"""Messages of servers: questions, progress, outcomes, and drafts of requests."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.domain.events import CallSucceeded
from taskgate.protocol import server_messages
from taskgate.protocol.discovery import CataloguePage, ToolPage
from taskgate.protocol.jsonrpc import parse, usual_progress
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.server_messages import (
    MAX_SUMMARY,
    TEXT_STEP,
    RequestDraft,
    ServerSubscription,
    SubscriptionGrant,
    progress_done,
    read_progress,
    text_of_progress,
    text_progress,
)

# --- requests to modern servers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wants", "nothing"),
    [
        (ServerSubscription(), True),
        (ServerSubscription(tools=True), False),
        (ServerSubscription(prompts=True), False),
        (ServerSubscription(resources=True), False),
        (ServerSubscription(uris=("a:b",)), False),
        (ServerSubscription(tasks=("n1",)), False),
    ],
)
def test_nothing_is_wanted_where_neither_lists_nor_resources_nor_tasks_are(
    wants: ServerSubscription, nothing: bool
) -> None:
    assert wants.is_empty is nothing


def test_a_request_says_no_more_than_it_is_given() -> None:
    saying = RequestDraft(method="tools/list")
    assert (saying.params, saying.log_level, saying.answers, saying.state) == (None, None, None, None)
    assert not saying.wants_progress
    assert not saying.follows_tasks
    assert (saying.header_paths, saying.host_headers) == ({}, None)


def test_a_page_leaves_no_tool_out_unless_it_says_so() -> None:
    assert CataloguePage(page=ToolPage(tools={}, cursor=None)).refused == ()


def test_a_stream_tells_of_no_task_unless_it_says_so() -> None:
    assert SubscriptionGrant(frozenset()).tasks == frozenset()


# --- progress ---------------------------------------------------------------------------------------------------------


def told(**params: Any) -> Notification:
    """A progress notification."""
    message = parse(
        json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode(), max_depth=9
    )
    assert isinstance(message, Notification)
    return message


@covers("L-PROG-1")
@pytest.mark.parametrize("after", [0.0, 3, 12_345.5])
def test_progress_in_words_grows_with_every_word_and_comes_no_further(after: float) -> None:
    numbers = [progress_done(text_progress(4, "on", turn, after)) or 0.0 for turn in (1, 2, 3, 999, 1000)]
    assert after < numbers[0]
    assert sorted(set(numbers)) == numbers
    assert numbers[-1] < after + TEXT_STEP


def test_progress_in_words_is_told_to_people_in_those_words() -> None:
    found = text_progress(4, "half of it", 1)
    assert (found.method, found.params["progressToken"].value) == ("notifications/progress", 4)
    progress = read_progress(found)
    assert progress is not None
    assert progress.status_message == "half of it"
    assert (text_of_progress(found), text_of_progress(told(progress=1, message="half of it"))) == ("half of it", None)
    other = read_progress(text_progress("t", "half of it", 2, after=3))
    assert other is not None
    assert other.status_message == "3: half of it"


# --- outcomes ---------------------------------------------------------------------------------------------------------


def response(**members: Any) -> Response:
    found = parse(json.dumps({"jsonrpc": "2.0", "id": 1, **members}).encode(), max_depth=64)
    assert isinstance(found, Response)
    return found


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
    found = server_messages.call_outcome(response(result={**result, "isError": True}))
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
    found = server_messages.call_outcome(response(result={"content": content, "isError": True}))
    assert isinstance(found, CallSucceeded)
    assert found.message == message


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
    assert server_messages.status_text(text) == told


@pytest.mark.parametrize("number", ["2", "2.5"])
def test_usual_progress_has_its_number_at_hand(number: str) -> None:
    note = f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"progress":{number}}}}}'
    usual, parsed = usual_progress(note.encode()), parse(note.encode(), max_depth=9)
    assert usual is not None
    assert isinstance(parsed, Notification)
    assert progress_done(usual) == progress_done(parsed) == float(number)
