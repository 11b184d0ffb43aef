"""How many arrays and objects a body has is told by its bytes, in time that what stands in strings cannot stretch."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.jsontext.depth import ALWAYS_ALLOWED, BYTES_EACH, WINDOW, brackets, has_too_many, window


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


@pytest.mark.parametrize("body", [b'"[",[],', b'"[",', b'[],"[[",', rb'"\"[",'])
def test_brackets_are_counted_window_by_window(body: bytes) -> None:
    for count in (100_000, 200_000, 400_000):
        whole = b"[" + body * count + b"0]"
        tracemalloc.start()
        found = has_too_many(whole)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found is (1 + body.count(b"[]") * count > max(ALWAYS_ALLOWED, len(whole) // BYTES_EACH))
        assert peak < 50 * WINDOW, "the memory of a window, whatever the size of the text"


@given(st.text(alphabet='[]{}"\\a', max_size=60).map(str.encode), st.integers(1, 9))
def test_the_brackets_outside_strings_are_the_same_in_windows_of_any_size(body: bytes, size: int) -> None:
    at, is_inside, found = 0, False, b""
    while piece := window(body, at, size):
        outside, is_inside = brackets(piece, is_inside=is_inside)
        found, at = found + outside, at + len(piece)
    assert at == len(body)
    assert (found, is_inside) == brackets(window(body, 0, len(body)))
    outside = b"".join(body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    assert found == bytes(letter for letter in outside if letter in b"[]{}")
