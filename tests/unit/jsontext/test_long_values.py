"""The end of a value is where the standard parser finds it, and is found in time that grows with the value alone."""

import json
import sys
from contextlib import suppress
from itertools import product
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.json_texts import texts
from taskgate.jsontext import long_values
from taskgate.jsontext.long_values import FIRST_PIECE, WINDOW, NumberTooLarge, end_of_long_string, find_end


def longer(text: str, within: int) -> str:
    """That value with so much filled in that its first piece ends so many letters behind its beginning."""
    filler = "x" if text.startswith('"') else " "
    return text[:1] + filler * (FIRST_PIECE - within) + text[1:]


def within_windows(text: str, within: int) -> str:
    """A value of many windows. The first ends so many letters behind the beginning of `text`, or at the next comma."""
    return f"[{' ' * (WINDOW - within)}{text},{' ' * 4 * WINDOW}0]"


def refuse(name: str) -> None:
    raise ValueError(name)


def standard(text: str, at: int) -> int | None:
    """Where the standard parser ends; None where it finds no value."""
    try:
        return json.JSONDecoder(parse_constant=refuse).raw_decode(text, at)[1]  # type: ignore[arg-type]
    except ValueError:
        return None


def ended(text: str, at: int) -> int | None:
    try:
        return find_end(text, at)
    except NumberTooLarge:
        # The standard parser takes these, but they say so.
        return standard(text, at)
    except ValueError:
        return None


@given(
    texts.filter(lambda text: text[:1] in '{["'),
    st.sampled_from(["", "}", "]", ",", "  ", " }", ' ,"x":[]}', "\n}", "é", '"']),
    st.integers(0, 60),
)
@example('["\\ud800"]', "}", 9)
@example('"\\\\ud800"', "}", 9)
@example('["\\uD83D","\\uDE00","x"]', ',"\\ud800":1}', 9)
@example('["é😀"]', "}é", 9)
@example("[11]", "}", 9)
@example("[1e999]", "}", 9)
@example("[" * 300 + "]" * 300, "}", 9)
def test_a_value_ends_where_the_standard_parser_ends(text: str, tail: str, within: int) -> None:
    for lead, value in (
        *product(("", "é:"), (text, longer(text, within))),
        ("é:", within_windows(text, within)),
    ):
        whole = lead + value + tail
        assert ended(whole, len(lead)) == standard(whole, len(lead)) == len(lead) + len(value)


@given(st.text(alphabet='[]{}"\\a,: u0d8e19.-', min_size=1, max_size=40), st.integers(0, 40))
def test_what_the_standard_parser_refuses_has_no_end(text: str, within: int) -> None:
    for value in (text, longer(text, within), within_windows(text, within)):
        if value[0] in '{["':
            assert ended(value, 0) == standard(value, 0)


@pytest.mark.parametrize(
    "text", ["[NaN]", "[1,]", '["a', '["\x00"]', "[01]", '{"a"}', "[1", '["\\q"]', '["\\ud8 0"]', "]", ""]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        find_end(text + "," * 5000, 0)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400, '"\\ud800",1e999'])
def test_a_number_beyond_a_double_is_told(number: str) -> None:
    with pytest.raises(NumberTooLarge):
        find_end(f"[{number}],1", 0)


def looks(text: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The letters of each piece that is parsed, or written, for a value at the start of a text."""
    looked: list[int] = []

    def loads(piece: str) -> Any:
        looked.append(len(piece))
        return orjson.loads(piece)

    def dumps(piece: str) -> bytes:
        looked.append(len(piece))
        return orjson.dumps(piece)

    with monkeypatch.context() as patch, suppress(ValueError):
        counting = SimpleNamespace(loads=loads, dumps=dumps, JSONDecodeError=orjson.JSONDecodeError)
        patch.setattr(long_values, "orjson", counting)
        find_end(text, 0)
    return looked


def letters_looked_at(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    return sum(looks(text, monkeypatch))


def test_what_stands_behind_a_value_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    value = "[" + "1," * 5000 + "1]"
    costs = [letters_looked_at(value + "," * behind, monkeypatch) for behind in (1_000_000, 2_000_000, 4_000_000)]
    assert costs[0] == costs[1] == costs[2] <= 6 * len(value)


def test_a_value_that_fills_its_text_is_looked_at_little_more_than_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (100_000, 200_000, 1_000_000):
        text = "[" + "1," * (size // 2) + "1]}"
        assert letters_looked_at(text, monkeypatch) <= 1.6 * len(text) + 100


def test_what_is_no_json_is_looked_at_no_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (100_000, 200_000, 1_000_000):
        text = "[" + "1," * (size // 2) + "1}"
        assert letters_looked_at(text, monkeypatch) <= 1.6 * len(text) + 100


SHAPES = {
    "numbers": "0,",
    "arrays": "[],",
    "members": '{"a":1,"b":[2]},',
    "commas in strings": '{"a,,":",,,,,,,,,,,,,"},',
    "quotes in strings": r'"\",",',
    "names in names": '{"a":{"b":{"c":{"d":{"e":{"f":"g"}}}}}},',
    "nests": "[" * 20 + "0" + "]" * 20 + ",",
    "not JSON": '"a,""b,"',
}


@pytest.mark.parametrize("one", SHAPES.values(), ids=SHAPES)
def test_no_piece_is_longer_than_four_windows(one: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (6 * WINDOW, 12 * WINDOW):
        looked = looks(f"[{one * (size // len(one))}0],", monkeypatch)
        assert max(looked) <= 4 * WINDOW, "a thread that looks at them lets others run in between"


@pytest.mark.parametrize("one", [one for name, one in SHAPES.items() if name != "not JSON"])
def test_a_value_of_many_windows_ends_before_what_follows(one: str) -> None:
    for size in (6 * WINDOW, 6 * WINDOW + 100, 6 * WINDOW + 200):
        value = f"[{one * (size // len(one))}0]"
        assert find_end(f'{value} ,"x":[{"0," * WINDOW}0]', 0) == len(value)


def test_behind_a_long_string_pieces_are_short_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'["a","{"a," * 3 * WINDOW}","b",{"0," * 6 * WINDOW}0]'
    assert find_end(text + ",1]", 0) == len(text)
    looked = looks(text + ",1]", monkeypatch)
    assert sum(size > 4 * WINDOW for size in looked) == 1
    assert len(looked) > 10
    assert sum(looked) <= 1.6 * len(text)


@pytest.mark.parametrize(
    "behind",
    ['"a"' * WINDOW, '"a"' * WINDOW + ",1]", "0," * WINDOW, '"' + "a" * 3 * WINDOW],
    ids=["strings", "strings and an end", "numbers", "a string"],
)
def test_what_breaks_off_behind_many_windows_is_refused(behind: str) -> None:
    with pytest.raises(ValueError):
        find_end("[" + "0," * 2 * WINDOW + behind, 0)


@pytest.mark.parametrize("one", SHAPES.values(), ids=SHAPES)
def test_twice_the_text_takes_twice_the_work(one: str) -> None:
    def steps(size: int) -> int:
        taken = 0

        def count(frame: Any, event: str, _: Any) -> None:
            nonlocal taken
            taken += event == "c_call"

        sys.setprofile(count)
        try:
            with suppress(ValueError):
                find_end(f"[{one * (size // len(one))}0],", 0)
        finally:
            sys.setprofile(None)
        return taken

    small, large = steps(5 * WINDOW), steps(10 * WINDOW)
    assert large <= 2.5 * small


@pytest.mark.parametrize("behind", ["", ',"b":[1,{"c":2.5}]', ',"b":"' + "é" * 300_000 + '"'])
def test_a_value_of_few_long_strings_is_parsed_once(behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'{{"a\\"":1,"text":"{"x" * 400_000}"{behind}}}'
    assert find_end(text + "}}", 0) == len(text)
    assert letters_looked_at(text, monkeypatch) <= len(text) + 5 * FIRST_PIECE


@pytest.mark.parametrize("wrong", ["\n", "\\x", '"', '",', "\\"])
def test_a_long_string_that_is_no_json_is_refused(wrong: str) -> None:
    text = f'{{"text":"{"x" * 400_000}{wrong}{"x" * 400_000}"}}'
    assert ended(text + "}}", 0) == standard(text + "}}", 0)
    with pytest.raises(ValueError):
        find_end(text + "}}", 0)


def test_a_value_of_many_long_strings_ends_where_the_standard_parser_ends_it() -> None:
    # Each is longer than all behind it, so that it pays to leave it out.
    strings = ",".join(f'"{"x" * (2 * FIRST_PIECE << halved)}"' for halved in range(10, 0, -1))
    text = f"[{strings},1]"
    assert find_end(text + "}}", 0) == len(text)


LETTERS = ["a", "\x7f", "é", "\u2028", "\U0001f600"]
NO_LETTERS = ["\n", "\x00", "\x1f", "\\n", "\\", "\ud800", "\udfff"]


@pytest.mark.parametrize("letter", LETTERS)
def test_the_quote_ends_a_long_string(letter: str) -> None:
    for size in (FIRST_PIECE, WINDOW - 1, WINDOW, 2 * WINDOW + 1):
        text = f'["{letter * size}","{"x" * size}"]'
        assert end_of_long_string(text, 1) == size + 3
    assert end_of_long_string(f'["{letter * (FIRST_PIECE - 2)}"]', 1) is None
    assert end_of_long_string(f'["{letter * WINDOW}', 1) is None


@pytest.mark.parametrize("wrong", NO_LETTERS)
def test_a_long_string_with_escapes_or_without_json_has_its_end_told_by_a_parser(wrong: str) -> None:
    size = 2 * WINDOW
    for at in (0, 1, WINDOW - 1, WINDOW, size - 1, size):
        assert end_of_long_string(f'"{"é" * at}{wrong}{"é" * (size - at)}"', 0) is None
