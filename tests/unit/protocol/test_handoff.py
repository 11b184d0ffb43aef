"""The gateway's own tools: what hosts list, what models read, and the handle that they bring."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import new_call, new_record
from requirements import covers
from taskgate.domain.listing import ListedTask, listed_task
from taskgate.domain.record import TaskStatus
from taskgate.protocol.handoff import (
    CANCEL,
    LIST,
    MOST_LINES,
    MOST_TOKENS,
    WAIT,
    GatewayTool,
    HandoffTools,
    add_list,
    hide_tools,
)

TOOLS = HandoffTools(WAIT, CANCEL)
SCHEMA = {"type": "object"}


def listed(page: Any, late: tuple[str, ...] = ("a",)) -> Any:
    """A page as hosts without tasks see it, where those tools may be handed off."""
    return json.loads(TOOLS.add_to(json.dumps(page), lambda name, _: name in late))


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **more}


def test_both_tools_are_at_the_end_of_the_last_page() -> None:
    page = listed({"tools": [tool("a")]})
    assert [each["name"] for each in page["tools"]] == ["a", "taskgate_wait", "taskgate_cancel"]
    assert [each["annotations"]["readOnlyHint"] for each in page["tools"][1:]] == [True, False]
    assert all(each["inputSchema"]["required"] == ["handle"] for each in page["tools"][1:])
    more = {"tools": [tool("a")], "nextCursor": "c"}
    assert listed(more) == more


def test_a_tool_that_may_be_handed_off_has_no_output_schema() -> None:
    tools = [tool("a", outputSchema=SCHEMA, title="A"), tool("b", outputSchema=SCHEMA), tool("c")]
    page = listed({"tools": tools, "nextCursor": "c"})
    assert page["tools"] == [tool("a", title="A"), *tools[1:]]


def test_hints_of_the_server_decide_too() -> None:
    def late(_: str, hints: Mapping[str, bool]) -> bool:
        return hints.get("readOnlyHint", False)

    tools = [tool("a", outputSchema=SCHEMA, annotations={"readOnlyHint": read}) for read in (True, False)]
    page = json.loads(TOOLS.add_to(json.dumps({"tools": tools}), late))
    assert ["outputSchema" in each for each in page["tools"][:2]] == [False, True]


def test_a_tool_of_the_server_with_such_a_name_is_left_out() -> None:
    page = listed({"tools": [tool("taskgate_wait", title="of the server"), tool("a")]})
    assert [each.get("title") for each in page["tools"]] == [None, "Wait for a call", "Cancel a call"]


def test_a_list_without_a_tool_that_may_be_handed_off_is_left_as_it_is() -> None:
    page = {"tools": [tool("b")]}
    assert listed(page) == page
    continued = json.loads(TOOLS.add_to(json.dumps(page), lambda *_: False, is_first=False))
    assert [each["name"] for each in continued["tools"]] == ["b", "taskgate_wait", "taskgate_cancel"]


@pytest.mark.parametrize("page", ["{}", '{"tools":{}}'])
def test_a_page_that_is_none_stays_as_it_is(page: str) -> None:
    assert TOOLS.add_to(page, lambda *_: True) == page
    assert hide_tools(page, TOOLS.names) == page
    assert add_list(page, TOOLS.names) == page


@covers("T72")
@pytest.mark.parametrize(
    "taken",
    [
        '{"name":"taskgate_wait"}',
        '{"name":"taskgate\\u005fcancel","inputSchema":{}}',
        '{"name":"a","name":"taskgate_wait"}',
        '{"name":"taskgate_tasks"}',
        '1,{"outputSchema":{}}',
    ],
)
def test_no_page_has_a_tool_that_passes_for_one_of_the_gateway(taken: str) -> None:
    page = f'{{"tools":[{taken}],"nextCursor":"c"}}'
    assert json.loads(hide_tools(page, TOOLS.names)) == {"tools": [], "nextCursor": "c"}
    assert TOOLS.add_to(page, lambda *_: True) == add_list(page, TOOLS.names) == hide_tools(page, TOOLS.names)


def test_tools_have_the_words_that_they_are_given() -> None:
    own = HandoffTools(GatewayTool("w", "W", "Waits."), GatewayTool("c", "C", "Ends."))
    page = json.loads(own.add_to('{"tools":[]}', lambda *_: False, is_first=False))
    assert [(each["name"], each["title"], each["description"]) for each in page["tools"]] == [
        ("w", "W", "Waits."),
        ("c", "C", "Ends."),
    ]
    assert (own.has("w"), own.has("taskgate_wait"), own.has(None)) == (True, False, False)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a bcd efgh", 4), ("1. é", 4), ("\U0001f642", 3)])
def test_the_tokens_of_both_tools_are_estimated(text: str, tokens: int) -> None:
    none = HandoffTools(GatewayTool("", "", ""), GatewayTool("", "", ""))
    assert HandoffTools(GatewayTool("", "", ""), GatewayTool("", "", text)).tokens - none.tokens == tokens
    assert TOOLS.tokens < MOST_TOKENS


# --- what models read of one call -------------------------------------------------------------------------------------


def test_a_call_that_ended_with_a_result_too_large_for_its_answer_is_to_be_waited_for() -> None:
    ended = new_record(id="id-0", call=new_call(tool="build"), status=TaskStatus.COMPLETED)
    assert TOOLS.handle_text(ended, "40 s", "9 of 10") == (
        "The call of build has ended. Its result is too large for this answer, which began before the end of the "
        "call: do not call build again for it. To get its result, call the tool taskgate_wait with "
        '{"handle": "id-0"}.'
    )


# --- the list of calls ------------------------------------------------------------------------------------------------


def test_all_other_tools_of_a_page_stay_as_they_are() -> None:
    page = '{"tools": [{"name": "a", "x": 1.0}],"nextCursor" : "c"}'
    assert hide_tools(page, TOOLS.names) == add_list(page, TOOLS.names) == page
    assert add_list(page.replace("nextCursor", "x"), frozenset()).startswith('{"tools": [{"name": "a", "x": 1.0},')


def test_the_list_of_calls_is_at_the_end_of_the_last_page_for_callers_who_have_it() -> None:
    page = json.dumps({"tools": [tool("a", outputSchema=SCHEMA)]})
    added = json.loads(TOOLS.add_to(page, lambda *_: True, lists=True))["tools"]
    assert [each["name"] for each in added] == ["a", "taskgate_wait", "taskgate_cancel", "taskgate_tasks"]
    alone = json.loads(add_list(page, frozenset()))["tools"]
    # A call that becomes a task has an instance of the schema all the same.
    assert alone == [tool("a", outputSchema=SCHEMA), added[-1]]
    assert added[-1]["inputSchema"] == {"type": "object", "additionalProperties": False}
    assert added[-1]["annotations"]["readOnlyHint"]


def test_the_list_of_calls_costs_a_model_few_tokens() -> None:
    bare = HandoffTools(GatewayTool("", "", ""), GatewayTool("", "", ""))
    assert HandoffTools(GatewayTool("", "", ""), GatewayTool("", "", LIST.description)).tokens - bare.tokens <= 120


def call(number: int = 0, **changes: Any) -> ListedTask:
    name = changes.pop("tool", "build")
    created = EPOCH - timedelta(seconds=40 * (number + 1))
    return listed_task(new_record(id=f"id-{number}", call=new_call(tool=name), created_at=created, **changes))


def lines(*tasks: ListedTask, is_whole: bool = True, knows_tasks: bool = False) -> list[str]:
    return TOOLS.calls_text(tasks, EPOCH, is_whole=is_whole, knows_tasks=knows_tasks).split("\n")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"status": TaskStatus.WORKING}, "still runs"),
        ({"status": TaskStatus.INPUT_REQUIRED}, "waits for an answer of the user"),
        ({"status": TaskStatus.COMPLETED}, "has ended"),
        ({"status": TaskStatus.COMPLETED, "tool_error": True}, "has failed"),
        ({"status": TaskStatus.FAILED}, "has failed"),
    ],
)
def test_a_line_says_what_a_call_is_and_how_its_handle_is_used(state: dict[str, Any], words: str) -> None:
    start = f"build, called 40 s ago, {words}: "
    assert lines(call(**state)) == [start + 'call taskgate_wait with {"handle": "id-0"}']
    assert lines(call(**state), knows_tasks=True) == [start + 'tasks/get with {"taskId": "id-0"}']


@covers("T71")
def test_the_name_of_a_tool_is_no_line_of_its_own() -> None:
    assert lines(call(tool='x\ny, called "1 s" ago')) == [
        '"x y, called \'1 s\' ago", called 40 s ago, still runs: call taskgate_wait with {"handle": "id-0"}'
    ]


@pytest.mark.parametrize(
    ("calls", "is_whole", "shown", "last"),
    [
        (20, True, 20, None),
        (21, True, 19, "Older calls that are not listed: 2"),
        (100, False, 19, "Older calls that are not listed: at least 81"),
        (3, False, 3, "Older calls that are not listed: perhaps more than 0"),
        (0, True, 0, "No call runs, and no result waits to be read."),
    ],
)
def test_a_list_has_few_lines_and_counts_the_rest(calls: int, is_whole: bool, shown: int, last: str | None) -> None:
    found = lines(*map(call, range(calls)), is_whole=is_whole)
    assert len(found) <= MOST_LINES
    ids = [f'"id-{number}"' in line for number, line in enumerate(found)]
    assert ids == [True] * shown + [False] * (last is not None)
    if last is not None:
        assert found[-1] == last
