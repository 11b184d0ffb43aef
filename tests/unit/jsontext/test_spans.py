"""Places in a JSON text agree with the standard parser."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import Written, arrays, messages, objects, scalars, texts, written
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext import spans
from taskgate.jsontext.depth import ALWAYS_ALLOWED
from taskgate.jsontext.spans import (
    Member,
    Members,
    elements,
    members,
    read_object,
    skip_space,
)

SHAPE = {"params": {"_meta": {}, "task": {}}, "result": {"_meta": {}}, "error": {}}


def walked(found: Members, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Member]]:
    for name, member in found.items():
        yield (*path, name), member
        yield from walked(member.members or {}, (*path, name))


def at_path(tree: Written, path: tuple[str, ...]) -> Any:
    for name in path:
        (tree,) = [value for key, value in tree if key == name]
    return tree


@given(messages())
def test_every_member_stands_where_its_place_says(text: str) -> None:
    tree = written(text)
    for path, member in walked(read_object(text, SHAPE)):
        assert written(text[member.start : member.end]) == at_path(tree, path)
        assert member.value == json.loads(text[member.start : member.end])
        key, colon = json.JSONDecoder().raw_decode(text, member.key_at)
        assert key == path[-1]
        assert text[colon : member.start].strip() == ":"


@given(messages())
def test_no_member_is_missed_and_none_is_made_up(text: str) -> None:
    found = read_object(text, SHAPE)
    assert list(found) == [key for key, _ in written(text)]
    for path, member in walked(found):
        opened = at_path(written(text), path)
        if member.members is not None:
            assert list(member.members) == [key for key, _ in opened]


@given(messages(), st.data())
def test_what_is_put_in_the_place_of_a_member_takes_its_place_in_the_tree(text: str, data: st.DataObject) -> None:
    path, member = data.draw(st.sampled_from(list(walked(read_object(text, SHAPE)))))
    expected = written(text)
    pairs = at_path(expected, path[:-1])
    pairs[[key for key, _ in pairs].index(path[-1])] = (path[-1], "\x07 put here")
    assert written(text[: member.start] + '"\\u0007 put here"' + text[member.end :]) == expected


@given(messages())
def test_no_letter_is_scanned_twice(text: str) -> None:
    scanned: list[tuple[int, int]] = []

    def counted(of: str, at: int) -> tuple[Any, int]:
        value, end = scan(of, at)
        scanned.append((at, end))
        return value, end

    scan = spans._SCAN
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "_SCAN", counted)
        read_object(text, SHAPE)
    assert all(end <= start for (_, end), (start, _) in pairwise(scanned))


def test_only_the_objects_of_the_shape_are_walked() -> None:
    text = '{"a": {"b": {"c": 1}, "x": {}}, "d": {"b": 2}, "e": [], "f": {}}'
    found = members(text, {"a": {"b": {}}, "e": {}, "f": {}})
    opened = {path: member.members is not None for path, member in walked(found)}
    assert opened == {
        ("a",): True,
        ("a", "b"): True,
        ("a", "b", "c"): False,
        ("a", "x"): False,
        ("d",): False,
        ("e",): False,
        ("f",): True,
    }
    assert found["f"].members == {}


def test_a_walked_object_has_its_value_too() -> None:
    found = members('{"a": {"b": {"c": [1, {"d": null}]}}}', {"a": {"b": {}}})
    assert found["a"].value == {"b": {"c": [1, {"d": None}]}}
    assert found["a"].members is not None
    assert found["a"].members["b"].value == {"c": [1, {"d": None}]}


def test_the_members_of_an_object_without_a_shape_are_its_own_only() -> None:
    found = members(' {"a": {"x": 1, "x": 2}}')
    assert list(found) == ["a"]
    assert found["a"].members is None


@pytest.mark.parametrize("text", ["[]", "1", '"{"', " null", "", "  "])
def test_what_is_no_object_has_no_members(text: str) -> None:
    assert members(text) == {}


@given(arrays(objects(texts, repeats=False) | arrays(texts) | scalars))
def test_every_element_of_an_array_stands_where_its_place_says(text: str) -> None:
    found = elements(text, {})
    assert [written(text[element.start : element.end]) for element in found] == written(text)


def test_the_elements_of_an_array_are_walked_by_the_shape() -> None:
    text = ' [ {"name":"a","execution":{"x":1}} , 2,[{}],"]" ] '
    first, *others = elements(text, {"execution": {}})
    assert first.members is not None
    assert first.members["execution"].members is not None
    assert text[first.key_at : first.end] == '{"name":"a","execution":{"x":1}}'
    assert [(other.value, other.members) for other in others] == [(2, None), ([{}], None), ("]", None)]


@pytest.mark.parametrize("text", ["[]", " [ ] ", "[\n]", "{}", "1", '"[1]"', "", " "])
def test_an_empty_array_and_what_is_no_array_have_no_elements(text: str) -> None:
    assert elements(text, {}) == []


def test_an_element_that_repeats_a_key_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        elements('[{"a":1,"a":2}]', {})


def test_more_elements_than_are_wanted_are_refused() -> None:
    assert len(elements("[1,2,3]", {}, 3)) == 3
    with pytest.raises(MalformedMessage):
        elements("[1,2,3]", {}, 2)


def test_white_space_is_that_of_json_and_no_other() -> None:
    assert skip_space(" \t\r\n x", 0) == 5
    assert skip_space("x", 0) == 0
    assert skip_space("", 0) == 0
    assert skip_space("x ", 1) == 2
    for other in "\x00\x0b\x0c\x1f\x7f\x85\xa0\u2028\ufeff":
        assert skip_space(f"{other} ", 0) == 0


def test_whether_a_member_is_an_object_is_told_without_its_value() -> None:
    found = spans.members('{"a":{"b":1},"c":{},"d":[1],"e":"{"}', {"a": {}})
    assert {name: member.is_object for name, member in found.items()} == {"a": True, "c": True, "d": False, "e": False}


def test_the_end_of_a_value_is_found_wherever_it_stands() -> None:
    assert spans.end_of_value('[[1], {"a":"]"}]', 6) == 15
    assert spans.end_of_value("7 ", 0) == 1


def test_a_body_with_too_many_arrays_for_its_size_is_refused_where_they_are_counted() -> None:
    body = b"[" + b",".join([b"[]"] * ALWAYS_ALLOWED) + b"]"
    assert spans.decode(body, 9) == body.decode()
    with pytest.raises(UnparsableMessage, match="too many arrays"):
        spans.decode(body, 9, counted=True)
