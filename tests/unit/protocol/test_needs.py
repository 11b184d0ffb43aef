"""What requests lack is put together so that who declares it all can be asked all of it."""

from typing import Any

import pytest

from taskgate.protocol.needs import together

FORMS: dict[str, Any] = {"elicitation": {}}
PAGES: dict[str, Any] = {"elicitation": {"url": {}}}
TOOLS: dict[str, Any] = {"sampling": {"tools": {}}}


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({}, FORMS, FORMS),
        (PAGES, {}, PAGES),
        (FORMS, FORMS, FORMS),
        (PAGES, PAGES, PAGES),
        ({"elicitation": {"form": {}}}, PAGES, {"elicitation": {"form": {}, "url": {}}}),
        ({"sampling": {}}, TOOLS, TOOLS),
        (TOOLS, {"roots": {}}, {"sampling": {"tools": {}}, "roots": {}}),
    ],
)
def test_what_either_lacks_is_lacked(one: dict[str, Any], other: dict[str, Any], both: dict[str, Any]) -> None:
    assert together(one, other) == both
    assert together(other, one) == both


def test_forms_are_named_where_pages_are_asked_for_too() -> None:
    assert together(FORMS, PAGES) == together(PAGES, FORMS) == {"elicitation": {"form": {}, "url": {}}}


def test_neither_is_changed() -> None:
    one: dict[str, Any] = {"elicitation": {}}
    together(one, PAGES)["elicitation"]["form"] = 1
    assert (one, PAGES) == ({"elicitation": {}}, {"elicitation": {"url": {}}})
