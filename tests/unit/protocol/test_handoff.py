"""The gateway's own two tools: what hosts list, what models read, and the handle that they bring."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from requirements import covers
from taskgate.protocol.handoff import (
    CANCEL,
    MOST_TOKENS,
    WAIT,
    GatewayTool,
    HandoffTools,
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
    assert TOOLS.hide_in(page) == page


@covers("T72")
@pytest.mark.parametrize(
    "taken",
    [
        '{"name":"taskgate_wait"}',
        '{"name":"taskgate\\u005fcancel","inputSchema":{}}',
        '{"name":"a","name":"taskgate_wait"}',
        '1,{"outputSchema":{}}',
    ],
)
def test_no_page_has_a_tool_that_passes_for_one_of_the_gateway(taken: str) -> None:
    page = f'{{"tools":[{taken}],"nextCursor":"c"}}'
    assert json.loads(TOOLS.hide_in(page)) == {"tools": [], "nextCursor": "c"}
    assert TOOLS.add_to(page, lambda *_: True) == TOOLS.hide_in(page)


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
