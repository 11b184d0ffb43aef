"""Progress notifications that are read in a single step are read as the walk over all members reads them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.protocol.envelope import ENVELOPE, Message, Notification
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.usual import read_usual


def walked(text: str) -> Message | None:
    """The message as the walk reads it; None where that refuses it."""
    try:
        # A shape of the same content, but not the usual one itself, is always walked.
        return parse(text.encode(), max_depth=500, shape=dict(ENVELOPE))
    except (UnparsableMessage, MalformedMessage):
        return None


def progress(params: str, *, before: str = '"jsonrpc":"2.0",', behind: str = "") -> str:
    return f'{{{before}"method":"notifications/progress","params":{params}{behind}}}'


PLAIN = '{"progressToken":1,"progress":2}'
USUAL = {
    "the least": progress(PLAIN),
    "all of it": progress('{"progressToken":"a","progress":0.5,"total":10,"message":"on \N{EURO SIGN}"}'),
    "a token of the gateway's own, of 52 bits": progress('{"progressToken":4503599627370496,"progress":1}'),
    "negative": progress('{"progressToken":-1,"progress":-0,"total":-0.25}'),
    "with spaces": progress('{"progressToken": 1, "progress": 2, "message": ""}', before='"jsonrpc": "2.0", '),
    "the version behind": progress(PLAIN, before="", behind=',"jsonrpc":"2.0"'),
}


@pytest.mark.parametrize("text", USUAL.values(), ids=USUAL)
def test_what_nearly_all_servers_write_is_read_in_one_step_and_the_same(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = walked(text)
    monkeypatch.setattr("taskgate.protocol.usual.walk", lambda *_: pytest.fail("walked"))
    read = read_usual(text)
    assert read == expected
    assert isinstance(read, Notification)
    assert isinstance(expected, Notification)
    kinds = [type(member.value) for member in read.params.values()]
    assert kinds == [type(member.value) for member in expected.params.values()]


ODD = {
    "no version": progress(PLAIN, before=""),
    "the version twice": progress(PLAIN, behind=',"jsonrpc":"2.0"'),
    "another version": progress(PLAIN, before='"jsonrpc":"1.0",'),
    "an id": progress(PLAIN, before='"jsonrpc":"2.0","id":1,'),
    "a token that stands twice": progress('{"progressToken":1,"progress":2,"progressToken":3}'),
    "another order": progress('{"progress":2,"progressToken":1}'),
    "more members": progress('{"progressToken":1,"progress":2,"_meta":{"a":1}}'),
    "a number that is none": progress('{"progressToken":01,"progress":2}'),
    "a fraction that is none": progress('{"progressToken":1,"progress":2.}'),
    "an exponent": progress('{"progressToken":1,"progress":2e5}'),
    "an escape": progress(r'{"progressToken":1,"progress":2,"message":"\u0041"}'),
    "a line break in a text": progress('{"progressToken":1,"progress":2,"message":"a\nb"}'),
    "null": progress('{"progressToken":null,"progress":2}'),
    "something behind": progress(PLAIN) + "x",
    "not closed": progress(PLAIN)[:-1],
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_what_is_written_in_another_way_is_read_as_ever(text: str) -> None:
    read = read_usual(text)
    assert read is None or read == walked(text)
    if walked(text) is None:
        assert read is None


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.fixed_dictionaries(
        {"progressToken": texts | st.integers(-(10**16), 10**16), "progress": numbers},
        optional={"total": numbers, "message": texts},
    ),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.booleans(),
)
def test_any_progress_is_read_the_same_whoever_reads_it(
    params: dict[str, object], separators: tuple[str, str], leads: bool
) -> None:
    envelope = {"jsonrpc": "2.0"}
    body = {"method": "notifications/progress", "params": params}
    text = json.dumps(envelope | body if leads else body | envelope, separators=separators, ensure_ascii=False)
    read = read_usual(text)
    assert read is None or read == walked(text)
