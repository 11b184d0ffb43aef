"""Positions in a JSON text agree with the standard parser, and only JSON is accepted."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import Written, arrays, depth_of, messages, objects, scalars, texts, written
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext import spans
from taskgate.jsontext.depth import ALWAYS_ALLOWED
from taskgate.jsontext.spans import (
    Member,
    Members,
    decode,
    elements,
    may_have_key,
    members,
    read_object,
    read_pairs,
    skip_space,
    span_with_comma,
)

# --- positions --------------------------------------------------------------------------------------------------------


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

    scan = spans.scan_value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "scan_value", counted)
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


# --- refusals ---------------------------------------------------------------------------------------------------------


# --- repeated keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":1,"b":2,"\\u0061":3}',
        '{"":1,"":2}',
        '{"params":{"x":1,"x":2}}',
        '{"params":{"_meta":{"x":1,"x":2}}}',
        '{"params":{"task":{"ttl":1,"ttl":2}}}',
        '{"params":{"task":1,"task":{}}}',
        '{"error":{"code":1,"code":2}}',
    ],
)
def test_a_key_that_stands_twice_in_a_walked_object_is_refused(text: str) -> None:
    with pytest.raises(MalformedMessage):
        read_object(text, SHAPE)


@pytest.mark.parametrize(
    "text",
    [
        '{"params":{"arguments":{"x":1,"x":2}}}',
        '{"params":[{"x":1,"x":2}]}',
        '{"params":{"_meta":{"deep":{"x":1,"x":2}}}}',
        '{"result":{"content":{"x":1,"x":2}}}',
        '{"other":{"x":1,"x":2}}',
    ],
)
def test_a_key_that_stands_twice_below_the_walked_objects_passes(text: str) -> None:
    found = read_object(text, SHAPE)
    (member,) = found.values()
    assert text[member.start : member.end] == text.partition(":")[2][:-1]


def test_the_pairs_of_an_object_are_all_there_in_their_order() -> None:
    pairs = read_pairs(' {"a":1,"b":[], "a" : {"c":2,"c":3} } ')
    assert [(key, member.value) for key, member in pairs] == [("a", 1), ("b", []), ("a", {"c": 3})]
    assert read_pairs("{}") == ()


@pytest.mark.parametrize("text", ["[]", '["a"]', "1", '"a"', "null"])
def test_what_is_no_object_has_no_pairs(text: str) -> None:
    assert read_pairs(text) == ()


# --- what is not JSON ----------------------------------------------------------------------------------------------

NOT_JSON = {
    "nothing": "",
    "white space only": " \t\r\n ",
    "a word": "hello",
    "a page": "<html></html>",
    "NaN": '{"a":NaN}',
    "Infinity": '{"a":Infinity}',
    "minus Infinity": '{"a":-Infinity}',
    "NaN deep inside": '{"a":{"b":[1,{"c":NaN}]}}',
    "NaN alone": "NaN",
    "trailing garbage": '{"a":1}x',
    "two documents": '{"a":1}{"b":2}',
    "two documents, two lines": '{"a":1}\n{"b":2}\n',
    "a trailing comma": '{"a":1,}',
    "a trailing comma inside": '{"a":[1,]}',
    "a leading comma": '{,"a":1}',
    "a missing comma": '{"a":1 "b":2}',
    "a missing colon": '{"a" 1}',
    "an equals sign": '{"a"=1}',
    "a missing value": '{"a":}',
    "a bare key": "{a:1}",
    "a number for a key": "{1:2}",
    "single quotes": "{'a':1}",
    "a comment": '{"a":1/**/}',
    "a leading zero": '{"a":01}',
    "a plus sign": '{"a":+1}',
    "a bare point": '{"a":.5}',
    "hexadecimal": '{"a":0x10}',
    "True": '{"a":True}',
    "an unknown escape": '{"a":"\\x41"}',
    "half an escape": '{"a":"\\u00g0"}',
    "a half escape in a key": '{"\\u00":1}',
    "a wrong bracket": '{"a":[1}',
    "a bracket too many": '{"a":1}}',
    "a no-break space": '{\xa0"a":1}',
    "a form feed": '\x0c{"a":1}',
    "a NUL behind": '{"a":1}\x00',
    "a mark in the middle": '{"a":\ufeff1}',
    "an array of garbage": '{"params":[}',
    "garbage in a walked object": '{"params":{"_meta":{"a"}}}',
    "5,000 digits": '{"a":' + "9" * 5000 + "}",
    "a broken array": "[1,2",
    "an array and more": "[] []",
}


@pytest.mark.parametrize("text", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(UnparsableMessage):
        read_object(text, SHAPE)
    with pytest.raises(UnparsableMessage):
        read_pairs(text)


@pytest.mark.parametrize("code", range(0x20))
@pytest.mark.parametrize("frame", ['{"a":"%s"}', '{"%s":1}', '{"params":{"arguments":["%s"]}}'])
def test_a_raw_control_character_in_a_string_is_refused(frame: str, code: int) -> None:
    with pytest.raises(UnparsableMessage):
        read_object(frame % chr(code), SHAPE)


def test_a_text_cut_off_anywhere_is_refused() -> None:
    text = '{"jsonrpc": "2.0", "params": {"_meta": {"t": 1e5}, "a": [true, "\\u00e9\\n", {}]}, "id": -1}'
    read_object(text, SHAPE)
    for end in range(len(text)):
        with pytest.raises(UnparsableMessage):
            read_object(text[:end], SHAPE)


@pytest.mark.parametrize("text", ["[]", '[{"a":1}]', "1", '"a"', "null", " true "])
def test_json_that_is_no_object_is_another_refusal(text: str) -> None:
    with pytest.raises(MalformedMessage):
        read_object(text, SHAPE)


def test_a_nest_that_the_parser_cannot_follow_is_refused() -> None:
    text = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(UnparsableMessage):
        read_object(text, SHAPE)
    with pytest.raises(UnparsableMessage):
        read_pairs(text)


def test_numbers_beyond_a_float_are_read() -> None:
    found = members('{"a":1e999,"b":-1e999,"c":12345678901234567890123}')
    assert [member.value for member in found.values()] == [float("inf"), float("-inf"), 12345678901234567890123]


# --- bytes ---------------------------------------------------------------------------------------------------------

BAD_BYTES = {
    "a bare continuation": b'{"a":"\x80"}',
    "a cut sequence": b'{"a":"\xe2\x82"}',
    "an overlong slash": b'{"a":"\xc0\xaf"}',
    "an encoded surrogate": b'{"a":"\xed\xa0\x80"}',
    "beyond Unicode": b'{"a":"\xf5\x80\x80\x80"}',
    "latin-1": '{"a":"é"}'.encode("latin-1"),
    "UTF-16 with a mark": '{"a":1}'.encode("utf-16"),
    "UTF-32 with a mark": '{"a":1}'.encode("utf-32"),
    "UTF-8 with a mark": '{"a":1}'.encode("utf-8-sig"),
    "a mark alone": b"\xef\xbb\xbf",
}


@pytest.mark.parametrize("body", BAD_BYTES.values(), ids=BAD_BYTES)
def test_bytes_that_are_no_plain_utf8_are_refused(body: bytes) -> None:
    with pytest.raises(UnparsableMessage):
        decode(body, 128)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_other_encodings_without_a_mark_are_no_json(encoding: str) -> None:
    text = decode('{"a":1}'.encode(encoding), 128)
    with pytest.raises(UnparsableMessage):
        read_object(text, SHAPE)


@given(texts)
def test_a_body_is_its_text_where_it_nests_no_deeper_than_allowed(text: str) -> None:
    depth = depth_of(written(text))
    assert decode(text.encode(), depth) == text
    if depth:
        with pytest.raises(UnparsableMessage):
            decode(text.encode(), depth - 1)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('{ "x" : 1 , "b":2}', '{ "b":2}'),
        ('{"a":0 , "x":1,"b":2}', '{"a":0,"b":2}'),
        ('{"a":0, "x":[1] }', '{"a":0 }'),
        ('{"x":1}', "{}"),
    ],
    ids=["first", "middle", "last", "only"],
)
def test_a_member_goes_with_one_comma(text: str, rest: str) -> None:
    found = members(text)
    start, end = span_with_comma(found, found["x"])
    assert text[:start] + text[end:] == rest


# --- may_have_key -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ('{"_meta":1}', True),
        (r'{"a":{"_m\u0065ta":1}}', True),
        (r'{"\u005F\u006deta":1}', True),
        (r'{"\u005Fmeto":1}', False),
        (r'{"meta":"\u00e9","a_meta":1,"_meta ":"_meta"}', True),
        (r'{"meta":"\u00e9","a_meta":1,"_meta ":1}', False),
        ("{}", False),
    ],
)
def test_a_key_that_stands_nowhere_is_told_from_one_that_may_stand_somewhere(text: str, may: bool) -> None:
    assert may_have_key(text, "_meta") is may
