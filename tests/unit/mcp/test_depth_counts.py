"""How many arrays and objects a body has is told by its bytes, in time that what stands in strings cannot stretch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.mcp import depth
from taskgate.mcp.depth import ALWAYS_ALLOWED, BYTES_EACH, has_too_many


@pytest.mark.parametrize("one", [b"[]", b"{}", b'["x"]', b'{"a":"["}'])
def test_a_small_body_may_have_so_many_and_no_more(one: bytes) -> None:
    assert not has_too_many(b"[" + b",".join([one] * (ALWAYS_ALLOWED - 1)) + b"]")
    assert has_too_many(b"[" + b",".join([one] * ALWAYS_ALLOWED) + b"]" + b" " * 9)


def test_a_large_body_may_have_one_for_each_so_many_bytes() -> None:
    size = 2 * ALWAYS_ALLOWED * BYTES_EACH
    body = b"[" + b",".join([b"[]"] * (2 * ALWAYS_ALLOWED - 2)) + b"]"
    assert not has_too_many(body + b" " * (size - len(body)))
    assert has_too_many(body)


@pytest.mark.parametrize("string", [b'"[[[["', rb'"\"[["', rb'"[[\\"', b'"{}{}"'])
def test_what_stands_in_strings_does_not_count(string: bytes) -> None:
    assert not has_too_many(b"[" + b",".join([string] * 100_000) + b"]")


def test_closing_brackets_without_end_are_too_many() -> None:
    assert has_too_many(b'{"a":' + b"[" * 100_000 + b"]" * 200_000)


@pytest.mark.parametrize("body", [b'"[",[],', b'"[",', b'[],"[[",'])
def test_twice_the_strings_with_brackets_in_them_are_no_more_pieces_than_are_looked_at(body: bytes) -> None:
    for count in (200_000, 400_000):
        whole = b"[" + body * count + b"0]"
        pieces = depth._pieces(whole, 4 * ALWAYS_ALLOWED)
        assert len(pieces) <= 4 * ALWAYS_ALLOWED + 1
        assert has_too_many(whole) is (body.count(b"[]") > 0)


@given(st.text(alphabet='[]{}"\\a', max_size=60).map(str.encode))
def test_between_two_quotes_that_are_left_there_is_a_bracket(body: bytes) -> None:
    assert b"" not in depth._pieces(body)[1:-1]
