"""Cursors of the API of operators: nothing in them can be read, and only the gateway makes them."""

from secrets import token_bytes
from typing import Any

import pytest

from taskgate.clock import SystemEntropy
from taskgate.operators.access import ApiError
from taskgate.operators.cursors import MAX_CURSOR, ListCursors

OLD, NEW = token_bytes(32), token_bytes(32)
PLACE: list[Any] = ["0 17 7365637265742d6964"]


def cursors(*keys: bytes) -> ListCursors:
    return ListCursors(lambda: (keys[0], keys[1] if len(keys) > 1 else None), SystemEntropy())


def test_a_cursor_opens_for_its_list_at_each_gateway_with_the_key() -> None:
    cursor = cursors(NEW).seal(PLACE, "list")
    assert cursors(NEW).open(cursor, "list") == PLACE
    assert "7365637265742d6964" not in cursor


def test_a_cursor_under_the_key_before_still_opens() -> None:
    assert cursors(NEW, OLD).open(cursors(OLD).seal(PLACE, "list"), "list") == PLACE


@pytest.mark.parametrize("text", ["", "A", "A" * 40, "ä", "=" * 20, "\ud800", "A" * (MAX_CURSOR + 1)])
def test_a_text_that_no_gateway_made_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="start again"):
        cursors(NEW).open(text, "list")


@pytest.mark.parametrize("more", ["!!!", "=", "==", "\n", " ", "."])
def test_a_cursor_with_characters_around_it_is_refused(more: str) -> None:
    cursor = cursors(NEW).seal(PLACE, "list")
    for text in (cursor + more, more + cursor):
        with pytest.raises(ApiError, match="start again"):
            cursors(NEW).open(text, "list")


def test_a_cursor_has_one_spelling() -> None:
    # One byte in two characters: of the second, four bits are none of the byte.
    cursor = next(text for size in range(3) if len(text := cursors(NEW).seal(["a" * size], "list")) % 4 == 2)
    with pytest.raises(ApiError, match="start again"):
        cursors(NEW).open(cursor[:-1] + chr(ord(cursor[-1]) + 1), "list")


def test_a_changed_cursor_or_that_of_another_list_or_deployment_is_refused() -> None:
    cursor = cursors(NEW).seal(PLACE, "list")
    changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
    for keys, text, listing in ((NEW, cursor, "other"), (OLD, cursor, "list"), (NEW, changed[:-2], "list")):
        with pytest.raises(ApiError, match="start again"):
            cursors(keys).open(text, listing)
