"""How deep a text nests is told without parsing it, and for garbage as far as a parser would go."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.json_texts import depth_of, strings, texts, written
from taskgate.jsontext import depth
from taskgate.jsontext.depth import is_deeper


@pytest.fixture(autouse=True, scope="module", params=["short", "long", "longer than a window"])
def length(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every text is short, then every text is long, then it fills several windows."""
    before = depth._LONG, depth.WINDOW
    depth._LONG = 1 << 62 if request.param == "short" else 0
    if request.param == "longer than a window":
        depth.WINDOW = 5
    yield
    depth._LONG, depth.WINDOW = before


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
    monkeypatch.setattr(depth, "WINDOW", 2**18)
    monkeypatch.setattr(depth, "accumulate", lambda _: pytest.fail("counted"))
    assert not is_deeper(b"[" + b'{"a":["]",{}]},' * 1000 + b"{}]", 5)


def test_what_folds_badly_is_counted_and_not_folded_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(Exception):
        """Somebody counts."""

    def count(_: object) -> None:
        raise Counted

    monkeypatch.setattr(depth, "accumulate", count)
    with pytest.raises(Counted):
        is_deeper(chains(100), 100)
