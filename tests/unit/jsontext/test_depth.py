"""Depth and size of a JSON text are checked without a parser, and garbage only as far as a parser would read it."""

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.json_texts import depth_of, strings, texts, written
from taskgate.jsontext import depth
from taskgate.jsontext.depth import ALWAYS_ALLOWED, BYTES_EACH, WINDOW, brackets, has_too_many_containers, window

# --- nesting depth ----------------------------------------------------------------------------------------------------


def is_deeper(body: bytes, limit: int) -> bool:
    """The one answer for a body as it is, and for long ones with the same brackets, some across the end of a window."""
    before = [0, *range(WINDOW - len(body), WINDOW, 5 if len(body) < 200 else len(body) // 10)]
    answers = {depth.is_deeper(b" " * spaces + body + b" " * 8192, limit) for spaces in before}
    (answer,) = answers | {depth.is_deeper(body, limit)}
    return answer


@given(texts)
def test_a_body_is_told_just_when_it_nests_deeper_than_allowed(text: str) -> None:
    levels = depth_of(written(text))
    assert not is_deeper(text.encode(), levels)
    if levels:
        assert is_deeper(text.encode(), levels - 1)


@given(st.lists(strings(), max_size=6).map(",".join))
def test_brackets_inside_strings_do_not_nest(joined: str) -> None:
    assert not is_deeper(f"[{joined}]".encode(), 1)


@pytest.mark.parametrize("string", [r'"\\"', r'"\""', r'"\\\""', r'"\\\\"', r'"a\\","\\"', r'"[\"[\\"'])
def test_a_string_ends_at_its_own_quote_whatever_stands_before_it(string: str) -> None:
    body = f'[{string},[[["x"]]]]'.encode()
    assert is_deeper(body, 3)
    assert not is_deeper(body, 4)


def nest_before_the_first_mistake(body: bytes) -> int:
    """How deep a parser can get: it stops at a backslash outside a string and at a bracket too many."""
    depth = deepest = 0
    inside = escaped = False
    for byte in body:
        letter = chr(byte)
        if inside:
            inside = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            inside = True
        else:
            depth += (letter in "[{") - (letter in "]}")
            if depth < 0 or letter == "\\":
                break
            deepest = max(deepest, depth)
    return deepest


@given(st.text(alphabet='[]{}"\\a,:', max_size=60).map(str.encode), st.integers(0, 6))
@example(b'["\\\\", "\\\\\\"[[[[", [[["', 2)
def test_garbage_that_passes_leads_no_parser_deeper_than_allowed(body: bytes, limit: int) -> None:
    if not is_deeper(body, limit):
        assert nest_before_the_first_mistake(body) <= limit


@given(st.binary(max_size=200), st.integers(0, 4))
def test_the_depth_of_any_bytes_has_an_answer(body: bytes, limit: int) -> None:
    assert is_deeper(body, limit) in (True, False)


def counted(body: bytes) -> int:
    """The deepest place of a text, brackets in strings left out, counted one by one."""
    level = deepest = 0
    for outside in body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]:
        for letter in outside:
            level += (letter in b"[{") - (letter in b"]}")
            deepest = max(deepest, level)
    return deepest


@given(st.text(alphabet='[]{}"\\a', max_size=60).map(str.encode), st.integers(0, 8))
def test_the_depth_is_the_one_that_counting_gives(body: bytes, limit: int) -> None:
    assert is_deeper(body, limit) is (counted(body) > limit)


def wide(levels: int) -> bytes:
    return b"[]" if levels == 1 else b"[" + wide(levels - 1) + b"{}" + wide(levels - 1) + b"]"


def chains(levels: int) -> bytes:
    return b"[" + b",".join([b"[" * (levels - 1) + b"]" * (levels - 1)] * 20) + b"]"


@pytest.mark.parametrize("nest", [wide, chains])
@pytest.mark.parametrize("levels", [2, 3, 8, 12])
def test_nests_beside_each_other_are_as_deep_as_the_deepest(nest: Callable[[int], bytes], levels: int) -> None:
    assert not is_deeper(nest(levels), levels)
    assert is_deeper(nest(levels), levels - 1)


def test_what_is_long_and_flat_folds_away_without_being_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "accumulate", lambda _: pytest.fail("counted"))
    assert not depth.is_deeper(b"[" + b'{"a":["]",{}]},' * 1000 + b"{}]", 5)


def test_what_folds_badly_is_counted_and_not_folded_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(Exception):
        """The brackets are counted."""

    def count(_: object) -> None:
        raise Counted

    monkeypatch.setattr(depth, "accumulate", count)
    with pytest.raises(Counted):
        depth.is_deeper(chains(100), 100)


# --- number of arrays and objects -------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", [b"[]", b"{}", b'["x"]', b'{"a":"["}'])
def test_a_small_body_may_have_so_many_and_no_more(one: bytes) -> None:
    assert not has_too_many_containers(b"[" + b",".join([one] * (ALWAYS_ALLOWED - 1)) + b"]")
    assert has_too_many_containers(b"[" + b",".join([one] * ALWAYS_ALLOWED) + b"]" + b" " * 9)


def test_a_large_body_may_have_one_for_each_so_many_bytes() -> None:
    size = 2 * ALWAYS_ALLOWED * BYTES_EACH
    body = b"[" + b",".join([b"[]"] * (2 * ALWAYS_ALLOWED - 2)) + b"]"
    assert not has_too_many_containers(body + b" " * (size - len(body)))
    assert has_too_many_containers(body)


@pytest.mark.parametrize("string", [b'"[[[["', rb'"\"[["', rb'"[[\\"', b'"{}{}"'])
def test_what_stands_in_strings_does_not_count(string: bytes) -> None:
    assert not has_too_many_containers(b"[" + b",".join([string] * 100_000) + b"]")


def test_closing_brackets_without_end_are_too_many() -> None:
    assert has_too_many_containers(b'{"a":' + b"[" * 100_000 + b"]" * 200_000)


@pytest.mark.thorough
@pytest.mark.parametrize("body", [b'"[",[],', b'"[",', b'[],"[[",', rb'"\"[",'])
def test_brackets_are_counted_window_by_window(body: bytes) -> None:
    for count in (100_000, 200_000, 400_000):
        whole = b"[" + body * count + b"0]"
        tracemalloc.start()
        found = has_too_many_containers(whole)
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
