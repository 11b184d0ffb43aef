"""An object that is written again to the letter is read as it was, wherever it stands."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import MalformedMessage
from taskgate.jsontext.familiar import Familiar
from taskgate.jsontext.spans import LARGE, Members, read_object

LEAD = '{"io.'
VALUES = st.recursive(st.integers() | st.text(max_size=3) | st.none(), lambda inner: st.lists(inner, max_size=2))
OBJECTS = st.dictionaries(st.sampled_from(["io.a", "io.b", "c", "progressToken"]), VALUES | st.just({"}": {}}))


@given(
    objects=st.lists(OBJECTS, min_size=1, max_size=2),
    leads=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=8),
)
def test_a_walk_finds_the_same_whatever_was_read_before(
    objects: list[dict[str, Any]], leads: list[tuple[int, int]]
) -> None:
    shape = Familiar(LEAD)
    for lead, which in leads:
        text = f'{" " * lead}{{"m": {json.dumps(objects[which % len(objects)])} ,"n":1}}'
        assert read_object(text, {"m": shape}) == read_object(text, {"m": {}})


def walked(text: str, shape: Familiar) -> Members:
    found = read_object(f'{{"m":{text}}}', {"m": shape})["m"].members
    assert found is not None
    return found


def test_what_stands_where_it_stood_last_is_not_even_moved() -> None:
    shape, text = Familiar(LEAD), '{"io.a":{"b":[1]},"io.c":"d"}'
    first, _, third = (walked(text, shape) for _ in range(3))
    assert third == first
    assert walked(text, shape) is third
    assert read_object(f'{{ "m":{text}}}', {"m": shape})["m"].members != third


def test_an_object_that_begins_otherwise_is_never_looked_for() -> None:
    shape = Familiar(LEAD)
    for _ in range(3):
        walked('{"a":1,"io.a":2}', shape)
    assert (shape._met, shape._known) == (set(), [])


@pytest.mark.parametrize(("length", "is_remembered"), [(LARGE, True), (LARGE + 1, False)])
def test_what_stands_in_a_long_text_is_not_remembered(length: int, is_remembered: bool) -> None:
    shape, head, tail = Familiar(LEAD), '{"m":{"io.a":1},"n":"', '"}'
    text = f"{head}{'x' * (length - len(head) - len(tail))}{tail}"
    for _ in range(3):
        read_object(text, {"m": shape})
    assert [known.text for known in shape._known] == (['{"io.a":1}'] if is_remembered else [])


def test_an_object_with_a_key_twice_is_refused_every_time() -> None:
    shape = Familiar(LEAD)
    for _ in range(3):
        with pytest.raises(MalformedMessage):
            walked('{"io.a":1,"io.a":1}', shape)


def test_an_object_in_a_long_text_is_not_looked_for_among_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts are read in threads too, and where a known object stood last is one place for all."""
    shape, text = Familiar(LEAD), '{"io.a":1}'
    for _ in range(2):
        walked(text, shape)
    monkeypatch.setattr(Familiar, "find", lambda *_: pytest.fail("looked for"))
    found = read_object(f'{{"m":{text},"n":"{"x" * LARGE}"}}', {"m": shape})
    assert found["m"].value == {"io.a": 1}
