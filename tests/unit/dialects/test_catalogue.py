"""What a catalogue says of a tool is a value, and says nothing where its server did not."""

import pytest

from taskgate.dialects.catalogue import ListedTool, ToolPage


def test_a_tool_of_which_nothing_is_said_may_be_called_in_any_way() -> None:
    tool = ListedTool()

    assert (tool.support, dict(tool.mirrored)) == (None, {})


def test_what_is_said_of_one_tool_is_said_of_no_other() -> None:
    with pytest.raises(TypeError):
        ListedTool().mirrored["Region"] = ("region",)  # type: ignore[index]


def test_a_page_does_not_change() -> None:
    page = ToolPage(tools={"echo": ListedTool()}, cursor=None)

    with pytest.raises(AttributeError):
        page.cursor = '"2"'  # type: ignore[misc]
