"""What a catalogue says of a tool is a value, and says nothing where its server did not."""

from typing import Any

import pytest

from taskgate.dialects.catalogue import ListedTool, ToolPage, hints_of


def test_a_tool_of_which_nothing_is_said_may_be_called_in_any_way() -> None:
    tool = ListedTool()

    assert (tool.support, dict(tool.mirrored), dict(tool.hints)) == (None, {}, {})


def test_what_is_said_of_one_tool_is_said_of_no_other() -> None:
    with pytest.raises(TypeError):
        ListedTool().mirrored["Region"] = ("region",)  # type: ignore[index]


KNOWN = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


@pytest.mark.parametrize(
    ("tool", "hints"),
    [
        ({"annotations": KNOWN}, KNOWN),
        ({"annotations": {**KNOWN, "title": "t", "cheapHint": True}}, KNOWN),
        ({"annotations": {"readOnlyHint": 1, "destructiveHint": None, "idempotentHint": "true"}}, {}),
        ({"annotations": {}}, {}),
        ({"annotations": None}, {}),
        ({"annotations": ["readOnlyHint"]}, {}),
        ({}, {}),
    ],
)
def test_hints_are_the_known_annotations_that_are_true_or_false(tool: dict[str, Any], hints: dict[str, bool]) -> None:
    assert dict(hints_of(tool)) == hints


def test_hints_do_not_change() -> None:
    for tool in ({}, {"annotations": KNOWN}):
        with pytest.raises(TypeError):
            hints_of(tool)["readOnlyHint"] = False  # type: ignore[index]


def test_a_page_does_not_change() -> None:
    page = ToolPage(tools={"echo": ListedTool()}, cursor=None)

    with pytest.raises(AttributeError):
        page.cursor = '"2"'  # type: ignore[misc]
