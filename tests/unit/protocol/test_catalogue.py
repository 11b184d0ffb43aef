"""What a catalogue says of a tool is a value, and says nothing where its server did not."""

from typing import Any

import pytest

from taskgate.domain.policy import APP_ONLY
from taskgate.protocol.catalogue import CatalogueBounds, ListedTool, ToolPage, hints_of
from taskgate.protocol.envelope import Response
from taskgate.protocol.jsonrpc import parse


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


@pytest.mark.parametrize(
    ("meta", "is_app_only"),
    [
        ({"ui": {"visibility": ["app"]}}, True),
        ({"ui": {"visibility": ["app", "other"], "resourceUri": "ui://a"}}, True),
        ({"ui": {"visibility": []}}, True),
        ({"ui": {"visibility": ["app", "model"]}}, False),
        ({"ui": {"visibility": ["model"]}}, False),
        ({"ui": {"visibility": [["model"], "model"]}}, False),
        ({"ui": {"visibility": "app"}}, False),
        ({"ui": {"visibility": {"app": True}}}, False),
        ({"ui": {"visibility": None}}, False),
        ({"ui": {"resourceUri": "ui://a"}}, False),
        ({"ui": ["visibility"]}, False),
        ({"ui/visibility": ["app"]}, False),
        (["ui"], False),
        (None, False),
    ],
)
def test_a_tool_is_for_views_alone_where_its_list_of_callers_lacks_the_model(meta: Any, is_app_only: bool) -> None:
    found = {APP_ONLY: True} if is_app_only else {}
    assert dict(hints_of({"_meta": meta})) == found
    assert dict(hints_of({"_meta": meta, "annotations": KNOWN})) == {**KNOWN, **found}


def test_hints_do_not_change() -> None:
    for tool in ({}, {"annotations": KNOWN}, {"_meta": {"ui": {"visibility": ["app"]}}}):
        with pytest.raises(TypeError):
            hints_of(tool)["readOnlyHint"] = False  # type: ignore[index]


def test_a_page_does_not_change() -> None:
    page = ToolPage(tools={"echo": ListedTool()}, cursor=None)

    with pytest.raises(AttributeError):
        page.cursor = '"2"'  # type: ignore[misc]


def answer(body: str) -> Response:
    read = parse(f'{{"jsonrpc":"2.0","id":1,{body}}}'.encode(), max_depth=64)
    assert isinstance(read, Response)
    return read


@pytest.mark.parametrize(
    ("body", "tools", "size"),
    [
        ('"result":{"tools":[{},1,{}]}', 3, 53),
        ('"result":{"tools":[],"x":"é"}', 0, 55),
        ('"result":{"tools":{}}', 0, 46),
        ('"result":[]', 0, 36),
        ('"result":{"other":[1]}', 0, 47),
        ('"error":{"code":1,"message":"no"}', 0, 58),
    ],
)
def test_a_page_takes_its_tools_and_its_bytes_from_the_bounds(body: str, tools: int, size: int) -> None:
    assert CatalogueBounds(3, 100).less(answer(body)) == CatalogueBounds(3 - tools, 100 - size)


@pytest.mark.parametrize(("bounds", "fits"), [((2, 49), True), ((1, 49), False), ((2, 48), False)])
def test_a_page_beyond_either_bound_leaves_nothing(bounds: tuple[int, int], fits: bool) -> None:
    assert (CatalogueBounds(*bounds).less(answer('"result":{"tools":[1,2]}')) is not None) is fits
