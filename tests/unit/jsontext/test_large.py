"""Large objects are edited without a copy, and their members are found in the bytes."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import MalformedMessage
from taskgate.jsontext import large
from taskgate.jsontext.edits import splice
from taskgate.jsontext.large import WINDOW, JsonChunks, LargeJson, MessageText, read_members, to_string, wrap
from taskgate.jsontext.spans import MAX_MEMBERS, Members, members

# --- LargeJson and JsonChunks -----------------------------------------------------------------------------------------


TEXT = '{"a":"é😀","_meta":{"b":1},"c":[1,2]}'


def test_a_large_text_is_its_bytes() -> None:
    body = TEXT.encode()
    text = LargeJson(body)
    assert text.body is body
    assert len(text) == len(body)
    assert text.text() == TEXT
    assert text == LargeJson(bytes(bytearray(body)))
    assert text != LargeJson(b"{}")
    assert text != TEXT


def test_members_are_found_once() -> None:
    text = LargeJson(TEXT.encode())
    assert set(text.members) == {"a", "_meta", "c"}
    assert set(text.members["_meta"].members or ()) == {"b"}
    assert text.members is text.members


@pytest.mark.parametrize(("body", "error"), [(b"[1]", ValueError), (b'{"a":1,"a":2}', MalformedMessage)])
def test_what_is_no_object_with_keys_of_its_own_has_no_members(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        _ = LargeJson(body).members


@pytest.mark.parametrize("edits", [[], [(1, 1, '"é":1,')], [(8, 9, "中"), (1, 1, '"b":1,'), (3, 3, "")]])
def test_edits_are_those_of_a_string(edits: list[tuple[int, int, str]]) -> None:
    text = '{"a":"ab","c":[1,2]}'
    pieces = LargeJson(text.encode()).spliced(edits)
    assert pieces.encode().decode() == to_string(pieces) == splice(text, edits)
    assert len(pieces) == len(pieces.encode())


def test_edits_do_not_overlap() -> None:
    with pytest.raises(AssertionError):
        LargeJson(TEXT.encode()).spliced([(1, 4, ""), (2, 5, "")])


@pytest.mark.parametrize("text", ["[]", JsonChunks([b"[", memoryview(b"]")])])
def test_a_text_stands_between_two_others(text: MessageText) -> None:
    assert to_string(wrap('{"é":', text, "}")) == '{"é":[]}'


def test_pieces_leave_in_windows_and_in_order() -> None:
    body = bytes(range(256)) * (WINDOW // 100)
    pieces = JsonChunks([b"head", memoryview(body), b"", b"tail"])
    windows = list(pieces.windows())
    assert b"".join(windows) == b"head" + body + b"tail"
    assert {len(window) for window in windows[:-1]} == {WINDOW}
    assert len(windows[-1]) < WINDOW
    assert sum(map(len, windows)) == len(pieces)
    assert [*JsonChunks([b""]).windows()] == []
    assert [*JsonChunks([body[:WINDOW]]).windows()] == [body[:WINDOW]]


def test_a_line_has_no_break_but_those_around_it() -> None:
    text = json.dumps({"a": ["\n"]}, indent=1).replace("\n", "\r\n")
    assert JsonChunks([text.encode()]).line(b"head\n", b"\n") == b"head\n" + text.replace("\r\n", "  ").encode() + b"\n"


def peak_of(work: Any) -> int:
    tracemalloc.start()
    try:
        kept = work()
        assert kept is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_sent_of_a_large_text_is_no_copy_and_an_event_of_it_is_one() -> None:
    text = LargeJson(b'{"content":[],"_meta":{"a":1},"x":"' + b"x" * (16 * WINDOW) + b'"}')

    def sent() -> int:
        place = text.members["_meta"]
        return sum(map(len, wrap("head", text.spliced([(place.start, place.end, "{}")]), "tail").windows()))  # type: ignore[union-attr]

    assert peak_of(sent) < 3 * WINDOW
    assert peak_of(lambda: text.spliced([]).line(b"data: ", b"\n\n")) < len(text) + 5 * WINDOW


# --- members of a large object ----------------------------------------------------------------------------------------


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


@pytest.mark.thorough
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_members_stand_where_the_strict_parser_finds_them(text: str) -> None:
    body = text.encode()
    known = found_in(members(text, META), text)
    assert found_in(read_members(body, META), "") == known
    assert {name: each.value for name, each in read_members(body, META).items()} == json.loads(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\[]{}é', max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\}', max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["_meta", "a", 'b"', "é"]), VALUES, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1, large.FIRST_WINDOW // 3, large.WINDOW // 3]) | st.integers(0, large.FIRST_WINDOW),
)
def test_members_are_found_however_windows_fall(value: dict[str, Any], is_ascii: bool, spaces: int | None) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=spaces)
    found = read_members(text.encode(), META)
    assert found_in(found, "") == found_in(members(text, META), text)
    assert {name: each.value for name, each in found.items()} == value


@pytest.mark.parametrize("body", BROKEN)
def test_what_is_no_object_has_no_members(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"no |cut off"):
        read_members(body, META)


def test_a_walked_object_has_no_key_twice_and_others_may() -> None:
    assert set(read_members(b'{"a":{"b":1,"b":2}}', META)) == {"a"}
    for body in (b'{"a":1,"\\u0061":2}', b'{"_meta":{"b":1,"b":2}}'):
        with pytest.raises(MalformedMessage, match="twice"):
            read_members(body, META)


def test_a_walked_object_has_as_many_members_as_elsewhere() -> None:
    most = json.dumps({str(number): number for number in range(MAX_MEMBERS)}).encode()
    assert len(read_members(most, META)) == MAX_MEMBERS
    with pytest.raises(MalformedMessage, match="more than"):
        read_members(most[:-1] + b',"more":1}', META)


def test_a_member_tells_whether_it_is_an_object_or_an_array() -> None:
    found = read_members(b'{"a":{"b":1},"c":[1],"d":"{"}', META)
    assert [each.is_object for each in found.values()] == [True, False, False]
    assert [each.is_array for each in found.values()] == [False, True, False]


@pytest.mark.thorough
def test_places_in_a_large_object_take_the_memory_of_a_few_windows() -> None:
    body = json.dumps({"a": [[1]] * LARGE, "b": "x" * (4 * LARGE), "_meta": {}}).encode()
    tracemalloc.start()
    try:
        read_members(body, META)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * large.WINDOW < len(body)
