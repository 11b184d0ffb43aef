"""An object that comes again with the same text is read from the cache, at any position."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext import spans
from taskgate.jsontext.spans import LARGE, CachedObject, CachedShape, Members, read_object

# --- the cache --------------------------------------------------------------------------------------------------------


LEAD = '{"io.'


def known(text: str) -> CachedObject:
    return CachedObject(text, {}, 0)


def met(shape: CachedShape, text: str, times: int = 2) -> None:
    for _ in range(times):
        shape.add(known(text))


def test_an_object_is_known_from_the_second_time_on() -> None:
    shape = CachedShape(LEAD)
    met(shape, '{"io.a":1}', times=1)
    assert not shape.objects
    met(shape, '{"io.a":1}', times=1)
    assert [(found.text, found.size) for found in shape.objects] == [('{"io.a":1}', 10)]


@pytest.mark.parametrize("text", ['{"io.a":12}', '{"io.a":1 }', '{"io.a":2}', "{}", '{"io.a":1,"b":2}'])
def test_another_text_is_read_for_what_it_is_however_it_begins(text: str) -> None:
    shape = CachedShape(LEAD)
    met(shape, '{"io.a":1}')
    assert walked(text, shape) == walked(text, CachedShape(LEAD))


@pytest.mark.parametrize("text", ['{"io.a"', '{"io.a":1', "{"])
def test_what_only_begins_like_a_known_text_is_refused(text: str) -> None:
    shape = CachedShape(LEAD)
    met(shape, '{"io.a":1}')
    with pytest.raises(UnparsableMessage):
        read_object(f'{{"m":{text}', {"m": shape})


def test_the_newest_objects_are_remembered_and_no_more_of_them_than_are_looked_through() -> None:
    shape = CachedShape(LEAD)
    texts = [f'{{"io.a":{number}}}' for number in range(spans.MAX_CACHED + 1)]
    for text in texts:
        met(shape, text)
    assert [found.text for found in shape.objects] == texts[:0:-1]


def test_objects_that_are_met_once_are_not_counted_without_end() -> None:
    shape = CachedShape(LEAD)
    texts = [f'{{"io.a":{number}}}' for number in range(spans.MAX_SEEN_ONCE + 1)]
    for text in [*texts, texts[0], texts[-1]]:
        met(shape, text, times=1)
    # The first is forgotten with those that came before the last one.
    assert [found.text for found in shape.objects] == texts[-1:]


# --- reading ----------------------------------------------------------------------------------------------------------


VALUES = st.recursive(st.integers() | st.text(max_size=3) | st.none(), lambda inner: st.lists(inner, max_size=2))
OBJECTS = st.dictionaries(st.sampled_from(["io.a", "io.b", "c", "progressToken"]), VALUES | st.just({"}": {}}))


@given(
    objects=st.lists(OBJECTS, min_size=1, max_size=2),
    leads=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=8),
)
def test_a_walk_finds_the_same_whatever_was_read_before(
    objects: list[dict[str, Any]], leads: list[tuple[int, int]]
) -> None:
    shape = CachedShape(LEAD)
    for lead, which in leads:
        text = f'{" " * lead}{{"m": {json.dumps(objects[which % len(objects)])} ,"n":1}}'
        assert read_object(text, {"m": shape}) == read_object(text, {"m": {}})


def walked(text: str, shape: CachedShape) -> Members:
    found = read_object(f'{{"m":{text}}}', {"m": shape})["m"].members
    assert found is not None
    return found


def test_what_stands_where_it_stood_last_is_not_even_moved() -> None:
    shape, text = CachedShape(LEAD), '{"io.a":{"b":[1]},"io.c":"d"}'
    first, _, third = (walked(text, shape) for _ in range(3))
    assert third == first
    assert walked(text, shape) is third
    assert read_object(f'{{ "m":{text}}}', {"m": shape})["m"].members != third


def test_an_object_that_begins_otherwise_is_never_looked_for() -> None:
    shape = CachedShape(LEAD)
    text = '{"a":1,"io.a":2}'
    for _ in range(3):
        walked(text, shape)
    assert not shape.objects


@pytest.mark.parametrize(("length", "is_remembered"), [(LARGE, True), (LARGE + 1, False)])
def test_what_stands_in_a_long_text_is_not_remembered(length: int, is_remembered: bool) -> None:
    shape, head, tail = CachedShape(LEAD), '{"m":{"io.a":1},"n":"', '"}'
    text = f"{head}{'x' * (length - len(head) - len(tail))}{tail}"
    for _ in range(3):
        read_object(text, {"m": shape})
    assert [found.text for found in shape.objects] == ['{"io.a":1}'] * is_remembered


def test_an_object_with_a_key_twice_is_refused_every_time() -> None:
    shape = CachedShape(LEAD)
    for _ in range(3):
        with pytest.raises(MalformedMessage):
            walked('{"io.a":1,"io.a":1}', shape)


def test_an_object_in_a_long_text_is_not_looked_for_among_the_known() -> None:
    """Long texts are read in threads too, and where a known object stood last is one place for all."""
    shape, text = CachedShape(LEAD), '{"io.a":1}'
    for _ in range(2):
        walked(text, shape)
    (known_object,) = shape.objects
    before = known_object.at, known_object.members
    found = read_object(f'{{ "m":{text},"n":"{"x" * LARGE}"}}', {"m": shape})
    assert found["m"].value == {"io.a": 1}
    assert before == (known_object.at, known_object.members)
