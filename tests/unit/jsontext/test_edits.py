"""Edits change what they name in the tree and no other byte of the text."""

import json
from itertools import pairwise

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.json_texts import Written, messages, objects, texts, written
from taskgate.jsontext.edits import dump, insertion, removals, splice, splice_range
from taskgate.jsontext.spans import Members, members, read_object

SHAPE = {"params": {"_meta": {}, "task": {}}, "result": {"_meta": {}}, "error": {}}
flat = objects(texts, repeats=False, max_size=6)


def splice_one(text: str, edit: tuple[int, int, str]) -> str:
    return splice(text, [edit])


def without(tree: Written, names: set[str]) -> Written:
    return Written(pair for pair in tree if pair[0] not in names)


# --- splice --------------------------------------------------------------------------------------------------------


def test_edits_are_made_in_the_order_of_their_places() -> None:
    assert splice("abcdef", [(4, 5, "E"), (0, 1, ""), (2, 2, "-"), (2, 4, "C")]) == "b-CEf"


def test_no_edit_leaves_the_text() -> None:
    assert splice("abc", []) == "abc"


def test_edits_may_touch_and_may_stand_at_the_ends() -> None:
    assert splice("abc", [(0, 0, "<"), (0, 1, "A"), (1, 2, "B"), (3, 3, ">")]) == "<ABc>"


def test_edits_that_overlap_are_no_edits() -> None:
    with pytest.raises(AssertionError):
        splice("abcdef", [(0, 3, ""), (2, 4, "")])


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(0, 30), st.text(max_size=3)), max_size=8))
def test_a_splice_is_what_edits_from_the_back_give(text: str, marks: list[tuple[int, str]]) -> None:
    places = sorted(min(place, len(text)) for place, _ in marks)
    edits = [(start, end, by) for (start, end), (_, by) in zip(pairwise(places), marks, strict=False) if start < end]
    expected = text
    for start, end, by in reversed(edits):
        expected = expected[:start] + by + expected[end:]
    assert splice(text, edits[::-1]) == expected


@given(st.text(min_size=1, max_size=30), st.lists(st.tuples(st.integers(0, 30), st.text(max_size=3)), max_size=6))
def test_a_range_of_a_text_has_the_edits_in_it_and_no_others(text: str, marks: list[tuple[int, str]]) -> None:
    places = sorted(min(place, len(text)) for place, _ in marks)
    edits = [(start, end, by) for (start, end), (_, by) in zip(pairwise(places), marks, strict=False) if start < end]
    for begin in {0, *(start for start, _, _ in edits), *(end for _, end, _ in edits)}:
        before = [edit for edit in edits if edit[1] <= begin]
        behind = [edit for edit in edits if edit[0] >= begin]
        ranges = splice_range(text, 0, begin, edits), splice_range(text, begin, len(text), edits)
        assert ranges == (splice(text[:begin], before), splice(text, [(0, begin, ""), *behind] if begin else behind))


def test_an_edit_across_the_end_of_a_range_is_not_made() -> None:
    assert splice_range("abcdef", 1, 4, [(3, 5, "-")]) == "bcd"
    assert splice_range("abcdef", 1, 4, [(0, 2, "-"), (2, 3, "+")]) == "b+d"


# --- removals -----------------------------------------------------------------------------------------------------

REMOVED = {
    "the only one": ('{"x":1}', "{}"),
    "the only one, spaced": ('{ "x" : 1 }', "{  }"),
    "the only one, on its line": ('{\n  "x": 1\n}', "{\n  \n}"),
    "the first": ('{"x":1,"b":2}', '{"b":2}'),
    "the first, spaced": ('{ "x" : 1 , "b" : 2 }', '{ "b" : 2 }'),
    "the first, on its line": ('{\n  "x": 1,\n  "b": 2\n}', '{\n  "b": 2\n}'),
    "a middle one": ('{"a":0,"x":1,"b":2}', '{"a":0,"b":2}'),
    "a middle one, spaced": ('{ "a" : 0 , "x" : 1 , "b" : 2 }', None),
    "a middle one, on its line": ('{\r\n\t"a": 0,\r\n\t"x": 1,\r\n\t"b": 2\r\n}', '{\r\n\t"a": 0,\r\n\t"b": 2\r\n}'),
    "the last": ('{"a":0,"x":1}', '{"a":0}'),
    "the last, spaced": ('{ "a" : 0 , "x" : 1 }', None),
    "the last, on its line": ('{\n  "a": 0,\n  "x": 1\n}', '{\n  "a": 0\n}'),
    "an object": ('{"x":{"x":{},"y":[1,2]},"b":{"x":1}}', '{"b":{"x":1}}'),
    "between texts that look like JSON": ('{"a":",}","x":"{,","b":"\\","}', '{"a":",}","b":"\\","}'),
}


@pytest.mark.parametrize(("text", "left"), REMOVED.values(), ids=REMOVED)
def test_a_member_is_cut_out_with_one_comma(text: str, left: str | None) -> None:
    cut = splice(text, removals(members(text), ("x",)))
    assert written(cut) == without(written(text), {"x"})
    assert left in (None, cut)


@given(messages(), st.data())
def test_a_removal_takes_one_member_and_nothing_else(text: str, data: st.DataObject) -> None:
    envelope = read_object(text, SHAPE)
    opened = [found for found in (envelope, *(member.members for member in envelope.values())) if found]
    found = data.draw(st.sampled_from(opened))
    name = data.draw(st.sampled_from(sorted(found)))
    ((start, end, by),) = removals(found, {name})
    assert by == ""
    cut = text[start:end]
    before, after = cut[: found[name].key_at - start], cut[found[name].end - start :]
    assert (before + after).strip() in ("", ",")
    expected = written(text)
    place = expected if found is envelope else next(v for k, v in expected if envelope[k].members is found)
    place[:] = without(place, {name})
    assert written(text[:start] + text[end:]) == expected


@given(flat, st.data())
@example('{"a":1,"b":2,"c":3}', None)
def test_any_choice_of_members_is_cut_out_and_every_other_byte_of_value_stays(
    text: str, data: st.DataObject | None
) -> None:
    found = members(text)
    names = data.draw(st.sets(st.sampled_from(sorted(found)))) if data and found else {"a", "b"} & set(found)
    edits = removals(found, names)
    assert all(by == "" for _, _, by in edits)
    cut = splice(text, edits)
    assert written(cut) == without(written(text), names)
    kept = [text[member.key_at : member.end] for name, member in found.items() if name not in names]
    assert [cut[member.key_at : member.end] for member in members(cut).values()] == kept


def test_a_run_of_members_is_cut_out_at_once() -> None:
    text = '{ "a":1 , "b":2 , "c":3 , "d":4 , "e":5 }'
    found: Members = members(text)
    assert splice(text, removals(found, ("a", "b"))) == '{ "c":3 , "d":4 , "e":5 }'
    assert splice(text, removals(found, ("b", "c"))) == '{ "a":1 , "d":4 , "e":5 }'
    assert splice(text, removals(found, ("d", "e"))) == '{ "a":1 , "b":2 , "c":3 }'
    assert splice(text, removals(found, ("a", "c", "e"))) == '{ "b":2 , "d":4 }'
    assert splice(text, removals(found, "abcde")) == "{  }"


def test_names_that_are_not_there_cut_nothing() -> None:
    assert removals(members('{"a":1}'), ("x",)) == []
    assert removals({}, ("x",)) == []


# --- insertion -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "grown"),
    [
        ("{}", '{"k":[1]}'),
        ("{ }", '{"k":[1] }'),
        (" \n{\n\t}\n", ' \n{"k":[1]\n\t}\n'),
        ('{"a":1}', '{"k":[1],"a":1}'),
        ('{ "a":1 }', '{"k":[1], "a":1 }'),
        ('{"a":{}}', '{"k":[1],"a":{}}'),
        ('{"{":"}"}', '{"k":[1],"{":"}"}'),
        ('{\n  "}": {}\n}', '{"k":[1],\n  "}": {}\n}'),
    ],
)
def test_a_member_is_put_first(text: str, grown: str) -> None:
    assert splice_one(text, insertion(text, "k", "[1]")) == grown


@given(flat, texts, st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=5).map(lambda end: "new" + end))
def test_an_insertion_adds_one_member_and_changes_nothing(text: str, value: str, key: str) -> None:
    start, end, put = insertion(text, key, value)
    assert start == end
    assert written(text[:start] + put + text[end:]) == Written([(key, written(value)), *written(text)])


def test_a_member_can_take_the_place_of_another_where_a_third_stays() -> None:
    text = '{"task":{}, "name":"x"}'
    edits = [*removals(members(text), {"task"}), insertion(text, "_meta", "{}")]
    assert splice(text, edits) == '{"_meta":{},"name":"x"}'


# --- dump ----------------------------------------------------------------------------------------------------------


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])) | st.integers(-(2**63), 2**63 - 1) | st.none())
def test_what_is_dumped_reads_back_and_holds_no_line_break(value: str | int | None) -> None:
    text = dump({"k": [value]})
    assert json.loads(text) == {"k": [value]}
    assert not set("\r\n") & set(text)


def test_what_is_no_json_value_is_a_mistake_of_ours() -> None:
    with pytest.raises(orjson.JSONEncodeError):
        dump("\ud800")
