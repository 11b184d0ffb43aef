"""JSON-RPC messages are read strictly and written without a change of what the peers wrote."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.json_texts import messages, objects, texts, written
from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.edits import dump
from taskgate.protocol.jsonrpc import (
    ENVELOPE_NAMES,
    META_NAMES,
    PARAMS_NAMES,
    TASK_NAMES,
    error_text,
    fold,
    is_id,
    notification_text,
    parse,
    refuse_lookalikes,
    request_text,
    result_text,
    split_batch,
    timestamp,
    timestamp_of,
    with_id,
)
from taskgate.protocol.messages import Message, Notification, Request, Response
from taskgate.protocol.vocabulary import PROTOCOL_VERSION

DAY = timedelta(hours=23)

# --- times ------------------------------------------------------------------------------------------------------------

MOMENTS = st.datetimes(
    datetime(1, 1, 3),  # noqa: DTZ001
    datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.timedeltas(-DAY, DAY).map(timezone),
)


@given(MOMENTS)
@example(datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC))
@example(datetime(2026, 11, 27, 9, 5, 7, 1_999, UTC))
def test_a_time_is_written_in_utc_and_cut_to_the_millisecond(moment: datetime) -> None:
    written_by_library = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    since_1970 = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert timestamp(moment) == timestamp_of(since_1970) == written_by_library


# --- reading ----------------------------------------------------------------------------------------------------------


DEPTH = 300


def read(text: str) -> Message:
    return parse(text.encode(), max_depth=DEPTH)


# --- what passes ---------------------------------------------------------------------------------------------------


@given(messages())
def test_every_message_is_read_as_the_standard_parser_reads_it(text: str) -> None:
    message = read(text)
    tree = dict(written(text))
    assert message.text == text
    if isinstance(message, Response):
        start, end = message.id_span
        assert json.loads(text[start:end]) == message.id == tree["id"]
        assert (message.result is None, message.error is None) == ("result" not in tree, "error" not in tree)
    else:
        assert message.method == tree["method"]
        assert isinstance(message, Request) is ("id" in tree)
        assert ("params" in tree) is bool(message.params_text)
        if message.params_text:
            assert written(message.params_text) == tree["params"]
    if isinstance(message, Request):
        assert message.id == tree["id"]
        assert text[message.params_at :].startswith(message.params_text)


# --- what is no JSON-RPC -------------------------------------------------------------------------------------------


@given(st.integers(1 - 2**63, 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"]), max_size=64))
def test_every_bounded_string_and_integer_may_be_an_id(value: str | int) -> None:
    assert is_id(value)


# --- what is no JSON -----------------------------------------------------------------------------------------------

UNPARSABLE: dict[str, bytes] = {
    "nothing": b"",
    "a word": b"hello",
    "NaN for an id": b'{"jsonrpc":"2.0","id":NaN,"method":"m"}',
    "NaN below": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"x":[NaN]}}}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"result":-Infinity}',
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16"),
    "bad UTF-8 in the id": b'{"jsonrpc":"2.0","id":"\xff","method":"m"}',
    "a surrogate in UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
    "5,000 digits for an id": b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"m"}',
    "too deep": b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "far too deep": b'{"params":' + b"[" * 200_000,
    "cut off": b'{"jsonrpc":"2.0","id":1,"method":"m"',
    "two messages": b'{"jsonrpc":"2.0","id":1,"method":"m"}{}',
    "a repeated key before a syntax error": b'{"jsonrpc":"2.0","id":1,"id":2,"method":m}',
    "a repeated key and more behind": b'{"jsonrpc":"2.0","id":1,"method":"m","method":"m"}]',
}


@pytest.mark.parametrize("body", UNPARSABLE.values(), ids=UNPARSABLE)
def test_what_is_no_json_is_unparsable(body: bytes) -> None:
    with pytest.raises(UnparsableMessage):
        parse(body, max_depth=DEPTH)


def test_what_counts_as_too_much_of_a_host_is_read_of_a_server() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{"content":[' + b"[]," * 100_000 + b"0]}}"
    assert isinstance(parse(body, max_depth=9), Response)
    with pytest.raises(UnparsableMessage, match="too many arrays and objects"):
        parse(body, max_depth=9, max_members=4096)


@pytest.mark.parametrize("count", [2000, 5000])
def test_too_many_members_are_refused_under_the_id_where_it_can_be_told(count: int) -> None:
    members = ",".join(f'"k{number}":1' for number in range(count))
    with pytest.raises(MalformedMessage, match="more than 1000 members") as refused:
        parse(f'{{"jsonrpc":"2.0","id":7,"method":"m","params":{{{members}}}}}'.encode(), max_depth=9, max_members=1000)
    assert refused.value.id == 7
    with pytest.raises(MalformedMessage, match="more than 1000 members") as refused:
        parse(f'{{"jsonrpc":"2.0","id":7,"method":"m",{members}}}'.encode(), max_depth=9, max_members=1000)
    assert refused.value.id == (7 if count < 4096 else None)


# --- writing ----------------------------------------------------------------------------------------------------------


letters = st.characters(exclude_categories=["Cs"])
ids = st.integers(1 - 2**63, 2**63 - 1) | st.text(letters, max_size=64)
methods = st.text(letters, max_size=20)
results = objects(texts.filter(lambda text: not text.startswith("{")), repeats=False)


def response(text: str) -> Response:
    message = parse(text.encode(), max_depth=DEPTH)
    assert isinstance(message, Response)
    return message


# --- another id ----------------------------------------------------------------------------------------------------


@given(messages().filter(lambda text: '"method"' not in text), ids)
def test_any_response_under_another_id_keeps_every_other_byte(text: str, id: RequestId) -> None:
    before = response(text)
    after = with_id(before, id)
    start, end = before.id_span
    assert after.startswith(text[:start])
    assert after.endswith(text[end:])
    again = response(after)
    assert again.id == id
    assert with_id(again, before.id) == text[:start] + dump(before.id) + text[end:]


# --- writing -------------------------------------------------------------------------------------------------------


@given(ids, results)
def test_a_result_reads_back_and_is_not_touched(id: RequestId, result: str) -> None:
    message = response(result_text(id, result))
    assert message.id == id
    assert message.result is not None
    assert message.text[message.result.start : message.result.end] == result


@given(ids, st.text(letters), st.integers(-40000, 40000))
def test_an_error_reads_back_and_is_not_touched(id: RequestId, told: str, code: int) -> None:
    error = json.dumps({"code": code, "message": told})
    message = response(error_text(id, error))
    assert message.id == id
    assert message.error is not None
    assert message.text[message.error.start : message.error.end] == error


@given(ids, methods, results | st.none())
def test_a_request_reads_back(id: RequestId, method: str, params: str | None) -> None:
    message = parse(request_text(id, method, params).encode(), max_depth=DEPTH)
    assert isinstance(message, Request)
    assert (message.id, message.method, message.params_text) == (id, method, params or "")


@given(methods, results | st.none())
def test_a_notification_reads_back(method: str, params: str | None) -> None:
    message = parse(notification_text(method, params).encode(), max_depth=DEPTH)
    assert isinstance(message, Notification)
    assert (message.method, message.params_text) == (method, params or "")
    assert message.params.keys() == {key for key, _ in written(params)} if params else message.params == {}


# --- batches ----------------------------------------------------------------------------------------------------------


SPACES = st.text(" \t\r\n", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, min_size=1, max_size=8), SPACES)
def test_every_element_is_cut_out_as_it_was_written(values: list[object], space: str) -> None:
    written = [json.dumps(value) for value in values]
    body = f"{space}[{space}{f'{space},{space}'.join(written)}{space}]{space}"
    assert split_batch(body.encode(), max_depth=64) == [each.encode() for each in written]


# --- lookalike keys ---------------------------------------------------------------------------------------------------


LOOKALIKE_DEPTH = 64

# --- decoders ------------------------------------------------------------------------------------------------------

Match = Callable[[str], str]
DECODERS: dict[str, Match] = {
    "Go": lambda key: key.replace("\u017f", "s").replace("\u212a", "k").lower(),
    "ASCII": lambda key: "".join(letter.lower() if letter.isascii() else letter for letter in key),
    ".NET": lambda key: key.upper(),
    "Java": lambda key: "".join(letter.upper().lower()[:1] for letter in key),
    "C": lambda key: key.partition("\0")[0],
    "cJSON": lambda key: key.partition("\0")[0].lower(),
}
"""What each family of decoders compares keys by."""


def read_by(match: Match, pairs: list[tuple[str, Any]], names: frozenset[str]) -> dict[str, Any]:
    """The members of an object that a decoder knows, the last of several that it takes for one."""
    known = {match(name): name for name in names}
    return {known[match(key)]: value for key, value in pairs if match(key) in known}


def variants(name: str) -> st.SearchStrategy[str]:
    """Ways to write a name that one of the decoders takes for it."""
    others = {"s": "\u017fS", "k": "\u212aK", "i": "\u0130\u0131I"}
    letters = [st.sampled_from([letter, letter.upper(), *others.get(letter, "")]) for letter in name]
    return st.tuples(st.tuples(*letters).map("".join), st.sampled_from(["", "", "\0", "\0x"])).map("".join)


keys = st.sampled_from(sorted(PARAMS_NAMES)).flatmap(variants) | st.text(max_size=8)


@given(st.lists(st.tuples(keys, st.integers()), max_size=5, unique_by=lambda pair: pair[0]))
@example([("name", 1), ("Name", 2)])
@example([("name", 1), ("\u212aame", 2)])
@example([("arguments", 1), ("argument\u017f", 2)])
@example([("name", 1), ("name\0", 2)])
def test_a_message_that_passes_is_read_alike_by_every_decoder(pairs: list[tuple[str, int]]) -> None:
    params = ",".join(f"{json.dumps(key)}:{value}" for key, value in pairs)
    try:
        message = parse(
            f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{{params}}}}}'.encode(), max_depth=LOOKALIKE_DEPTH
        )
    except MalformedMessage:
        return
    assert isinstance(message, Request)
    ours = {name: member.value for name, member in message.params.items() if name in PARAMS_NAMES}
    for match in DECODERS.values():
        assert read_by(match, pairs, PARAMS_NAMES) == ours


# --- every place, however it is written -----------------------------------------------------------------------------

ALIKE = {
    "capital": ("Name", "name"),
    "capitals": ("NAME", "name"),
    "one capital inside": ("nAme", "name"),
    "long s": ("argument\u017f", "arguments"),
    "Kelvin": ("tas\u212a", "task"),
    "capital and NUL": ("Uri\0", "uri"),
    "NUL": ("name\0", "name"),
    "NUL and more": ("_meta\0x", "_meta"),
    "camel": ("taskid", "taskId"),
}


def envelope(params: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'.encode()


def escaped(key: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in key)


@pytest.mark.parametrize(("key", "name"), ALIKE.values(), ids=ALIKE)
@pytest.mark.parametrize("written", [lambda key: json.dumps(key)[1:-1], escaped], ids=["plain", "escaped"])
@pytest.mark.parametrize("more", ["", '"x":1,', f'"big":"{"x" * 9000}",'], ids=["alone", "beside others", "large"])
def test_a_parameter_that_folds_to_one_that_is_read_is_refused(
    key: str, name: str, written: Callable[[str], str], more: str
) -> None:
    for params in (f'{{{more}"{written(key)}":1}}', f'{{{more}"{name}":"a","{written(key)}":"b"}}'):
        with pytest.raises(MalformedMessage, match=f'"{name}"') as refused:
            parse(envelope(params), max_depth=LOOKALIKE_DEPTH)
        assert refused.value.id == 7


# --- what it costs --------------------------------------------------------------------------------------------------


def test_a_usual_message_is_folded_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskgate.protocol.jsonrpc.refuse_lookalikes", lambda *_: pytest.fail("folded"))
    meta = f'{{"{PROTOCOL_VERSION}":"2026-07-28","progressToken":1}}'
    call = parse(envelope(f'{{"name":"echo","arguments":{{"NAME":1}},"_meta":{meta},"task":{{"ttl":1}}}}'), max_depth=9)
    assert isinstance(call, Request)
    note = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}}'
    assert isinstance(parse(note, max_depth=9), Notification)


@pytest.mark.parametrize("names", [ENVELOPE_NAMES, PARAMS_NAMES, META_NAMES, TASK_NAMES])
def test_no_name_is_like_another(names: frozenset[str]) -> None:
    refuse_lookalikes(names, names)
    assert len({fold(name) for name in names}) == len(names)


@pytest.mark.parametrize("value", [None, True, False, 1.0, [], {}, b"1", 2**63, -(2**63), "\ud800", "é" * 129])
def test_other_values_are_no_ids(value: Any) -> None:
    assert not is_id(value)
