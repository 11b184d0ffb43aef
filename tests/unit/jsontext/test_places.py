"""Members of large objects are found in the bytes: the same that the strict parser finds in the text."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import MalformedMessage
from taskgate.jsontext import places
from taskgate.jsontext.places import read_places
from taskgate.jsontext.spans import MOST_MEMBERS, Members, members

META = {"_meta": {}}
LARGE = 2**20
TEXTS = {
    "empty": "{}",
    "spaced": '{ "a" : [ ] ,\n"b":\t{"c":"}"} , "d" : -1.5e+3 , "e" :null }',
    "escapes": r'{"a":"\"","b":"\\","c":["\\\"]}","\u00e9\\"],"_m\u0065ta":{"x":"{\\"}}',
    "nests": '{"_meta":{"_meta":{}},"a":[[[[{"b":[]}]]],[]],"c":[{},{}]}',
    "letters of several bytes": '{"é":"中","_meta":{"😀":[1]},"b":"é"}',
    "a large string": json.dumps({"a": 'x"\\' * LARGE, "_meta": {}}),
    "a large array": json.dumps({"a": [[1, "]"]] * (LARGE // 8), "_meta": {"b": [{}] * 1000}, "c": 1}),
    "a deep array": '{"a":' + "[" * 300 + "]" * 300 + ',"_meta":{}}',
    "many deep arrays": '{"a":[' + ("[" * 40 + "]" * 40 + ",") * 4000 + '1],"_meta":{}}',
}
BROKEN = (b"", b"[]", b"{", b'{"a"', b'{"a" 1}', b'{"a":', b'{"a":}', b'{"a":1', b'{"a":1 2}', b'{1:2}', b'{"a":[1}',
          b'{"a":"b}', b'{"a":[[]', b'{"a":1,}')  # fmt: skip


def found_in(found: Members, text: str) -> dict[str, Any]:
    """What is known of members; places in bytes, where they are places in `text`, which is empty where they are not."""

    def at(place: int) -> int:
        return place if text.isascii() else len(text[:place].encode())

    return {
        name: (at(each.key_at), at(each.start), at(each.end), each.members and found_in(each.members, text))
        for name, each in found.items()
    }


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_members_stand_where_the_strict_parser_finds_them(text: str) -> None:
    body = text.encode()
    known = found_in(members(text, META), text)
    assert found_in(read_places(body, META), "") == known
    assert {name: each.value for name, each in read_places(body, META).items()} == json.loads(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\[]{}é', max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\}', max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["_meta", "a", 'b"', "é"]), VALUES, max_size=4), st.booleans(), st.booleans())
def test_members_are_found_however_windows_fall(value: dict[str, Any], is_ascii: bool, is_spaced: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=1 if is_spaced else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "FIRST_WINDOW", 1)
        patch.setattr(places, "WINDOW", 3)
        found = read_places(text.encode(), META)
    assert found_in(found, "") == found_in(members(text, META), text)
    assert {name: each.value for name, each in found.items()} == value


@pytest.mark.parametrize("body", BROKEN)
def test_what_is_no_object_has_no_members(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"no |cut off"):
        read_places(body, META)


def test_a_walked_object_has_no_key_twice_and_others_may() -> None:
    assert set(read_places(b'{"a":{"b":1,"b":2}}', META)) == {"a"}
    for body in (b'{"a":1,"\\u0061":2}', b'{"_meta":{"b":1,"b":2}}'):
        with pytest.raises(MalformedMessage, match="twice"):
            read_places(body, META)


def test_a_walked_object_has_as_many_members_as_elsewhere() -> None:
    most = json.dumps({str(number): number for number in range(MOST_MEMBERS)}).encode()
    assert len(read_places(most, META)) == MOST_MEMBERS
    with pytest.raises(MalformedMessage, match="more than"):
        read_places(most[:-1] + b',"more":1}', META)


def test_a_member_tells_whether_it_is_an_object_or_an_array() -> None:
    found = read_places(b'{"a":{"b":1},"c":[1],"d":"{"}', META)
    assert [each.is_object for each in found.values()] == [True, False, False]
    assert [each.is_array for each in found.values()] == [False, True, False]


def test_places_in_a_large_object_take_the_memory_of_a_few_windows() -> None:
    body = json.dumps({"a": [[1]] * LARGE, "b": "x" * (4 * LARGE), "_meta": {}}).encode()
    tracemalloc.start()
    try:
        read_places(body, META)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * places.WINDOW < len(body)
