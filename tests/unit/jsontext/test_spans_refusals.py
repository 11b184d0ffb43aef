"""Nothing but JSON gets through: repeated keys, broken syntax, bytes that are no text, nests that are too deep."""

import pytest
from hypothesis import given

from helpers.json_texts import depth_of, texts, written
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import decode, members, read_object, read_pairs

SHAPE = {"params": {"_meta": {}, "task": {}}, "result": {"_meta": {}}, "error": {}}


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
