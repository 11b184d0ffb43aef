"""Common messages are read fast, and read the same as by the full parse."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import messages, objects, scalars, spaces, strings, texts
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.protocol.jsonrpc import UsualProgress, fast_parse, parse, usual_progress
from taskgate.protocol.legacy.questions import encode_notification
from taskgate.protocol.messages import ENVELOPE, Message, Notification, Request, Response

# --- requests and responses -------------------------------------------------------------------------------------------


def walked(text: str) -> Message | None:
    """The message as the walk over all members reads it; None where that refuses it."""
    try:
        # A shape of the same content, but not the usual one itself, is always walked.
        return parse(text.encode(), max_depth=500, shape=dict(ENVELOPE))
    except (UnparsableMessage, MalformedMessage):
        return None


# --- what is read --------------------------------------------------------------------------------------------------

CALL = '{"name":"echo","arguments":{"text":"a \\"b\\" {"},"_meta":{"progressToken":3}}'
RESULT = '{"content":[{"type":"text","text":"}}"}],"isError":false,"_meta":{}}'
TASK = "0123456789_abcdef-ABCDEF01234567"
USUAL: dict[str, tuple[str, type[Message]]] = {
    "a call": (f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{CALL}}}', Request),
    "with spaces": (f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {CALL}}}', Request),
    "by a word": (f'{{"jsonrpc":"2.0","id":"é-1","method":"tools/call","params":{CALL}}}', Request),
    "by an empty word": ('{"jsonrpc":"2.0","id":"","method":"","params":{}}', Request),
    "by a negative number": ('{"jsonrpc":"2.0","id":-12,"method":"m","params":{}}', Request),
    "by nothing": ('{"jsonrpc":"2.0","id":-0,"method":"m","params":{ }}', Request),
    "the envelope behind": (f'{{"method":"tools/call","params":{CALL},"jsonrpc":"2.0","id":1}}', Request),
    "the envelope behind, a word": (f'{{"method":"m","params":{CALL}, "jsonrpc": "2.0", "id": "x"}}', Request),
    "a line break behind": (f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{CALL}\n}}\r\n', Request),
    "a notification": (f'{{"jsonrpc":"2.0","method":"m","params":{CALL}}}', Notification),
    "a notification, the envelope behind": (f'{{"method":"m","params":{CALL},"jsonrpc":"2.0"}} ', Notification),
    "a result": (f'{{"jsonrpc":"2.0","id":1,"result":{RESULT}}}', Response),
    "a poll": (f'{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"taskId":"{TASK}"}}}}', Request),
    "a poll, with spaces": (
        f'{{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {{"taskId": "{TASK}"}}}}',
        Request,
    ),
    "a poll, the envelope behind": (
        f'{{"method":"tasks/get","params":{{"taskId":"{TASK}"}},"jsonrpc":"2.0","id":1}}\n',
        Request,
    ),
    "a poll with more": (
        f'{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"taskId":"{TASK}","_meta":{{}}}}}}',
        Request,
    ),
    "a result that looks like the parameters of a poll": (
        f'{{"jsonrpc":"2.0","id":1,"result":{{"taskId":"{TASK}"}}}}',
        Response,
    ),
    "an empty result": ('{"jsonrpc":"2.0","id":1,"result":{}}', Response),
    "a result, the envelope behind": (f'{{"result":{RESULT},"jsonrpc":"2.0","id":"1"}}', Response),
}


def test_a_usual_poll_is_not_walked_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskgate.protocol.jsonrpc.walk", lambda *_: pytest.fail("walked"))
    for name in ("a poll", "a poll, with spaces", "a poll, the envelope behind"):
        assert isinstance(fast_parse(USUAL[name][0]), Request)


@pytest.mark.parametrize(("text", "kind"), USUAL.values(), ids=USUAL)
def test_a_usual_message_is_not_walked_from_its_start(
    text: str, kind: type[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskgate.protocol.jsonrpc.read_object", lambda *_: pytest.fail("walked"))
    assert type(parse(text.encode(), max_depth=9)) is kind


# --- what is not ---------------------------------------------------------------------------------------------------


LARGE = f'"large":"{"x" * 9000}"'


@pytest.mark.parametrize("id", ["7", '"seven"'])
@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ('"a":1,"a":2', MalformedMessage),
        (",".join(f'"k{number}":1' for number in range(5000)), MalformedMessage),
        ('"a":[1,}', UnparsableMessage),
        ('"a":[' + "[" * 9000, UnparsableMessage),
        ('"a":' + "9" * 5000, UnparsableMessage),
        ('"a":[1e999,"' + "x" * 300_000 + '"]', UnparsableMessage),
    ],
    ids=["a key twice", "many keys", "no JSON", "nested without end", "a long number", "a large number"],
)
def test_what_is_large_is_refused_as_the_walk_refuses_it(id: str, more: str, refusal: type[Exception]) -> None:
    text = f'{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{{LARGE},{more}}}}}'
    with pytest.raises(refusal) as told:
        parse(text.encode(), max_depth=100_000)
    with pytest.raises(refusal) as walked_:
        parse(text.encode(), max_depth=100_000, shape=dict(ENVELOPE))
    assert str(told.value) == str(walked_.value)
    if isinstance(told.value, MalformedMessage) and isinstance(walked_.value, MalformedMessage):
        assert told.value.id == walked_.value.id == json.loads(id)


def test_what_is_large_and_refused_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskgate.protocol.jsonrpc.read_object", lambda *_: pytest.fail("read again"))
    for more in ('"a":1,"a":2', '"a":[1,}'):
        with pytest.raises((MalformedMessage, UnparsableMessage)):
            parse(f'{{"jsonrpc":"2.0","id":7,"method":"m","params":{{{LARGE},{more}}}}}'.encode(), max_depth=9)


# --- all others ----------------------------------------------------------------------------------------------------

_ids = st.integers(-(2**65), 2**65).map(str) | strings() | st.sampled_from(["1.0", "01", "-0", "null", '"\x7f"'])


@st.composite
def usual_texts(draw: st.DrawFn) -> str:
    """Texts in the usual orders or nearly so, with anything in them."""
    inside = draw(objects(texts, repeats=draw(st.booleans())))
    meta = draw(objects(scalars))
    task = draw(st.sampled_from([TASK, TASK[:-1], TASK + "a", TASK[:-1] + "é"]))
    inside = draw(st.sampled_from([inside, f'{{"_meta":{meta}}}', f'{{"taskId":"{task}"}}', f'{{"taskId": "{task}"}}']))
    method = draw(strings() | st.just('"tools/call"'))
    call = f'"method":{method},"params":{inside}'
    core = call if draw(st.booleans()) else f'"result":{inside}'
    version = draw(st.sampled_from(['"jsonrpc":"2.0"', '"jsonrpc": "2.0"']))
    envelope = version + (f',"id":{draw(_ids)}' if draw(st.booleans()) else "")
    pairs = (envelope, core) if draw(st.booleans()) else (core, envelope)
    return f"{{{','.join(pairs)}{draw(spaces)}}}{draw(spaces)}"


@given(messages() | usual_texts())
def test_whatever_is_read_is_read_as_the_walk_reads_it(text: str) -> None:
    read = fast_parse(text)
    assert read is None or repr(read) == repr(walked(text))


@given(usual_texts() | st.sampled_from([text for text, _ in USUAL.values()]), st.data())
def test_a_letter_more_less_or_other_changes_both_readings_alike(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(["", '"', "{", "}", "[", "]", ",", ":", "\\", " ", "0", "1", "\n", "\x00", "é"]))
    spoilt = text[:at] + put + text[at + data.draw(st.integers(0, 1)) :]
    read = fast_parse(spoilt)
    assert read is None or repr(read) == repr(walked(spoilt))


@given(st.integers(-(10**18) + 1, 10**18 - 1) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=64))
def test_an_id_is_read_as_it_is_written(id: str | int) -> None:
    written = json.dumps(id, ensure_ascii=False)
    read = fast_parse(f'{{"jsonrpc":"2.0","id":{written},"result":{{}}}}')
    if "\\" in written:
        assert read is None
    else:
        assert isinstance(read, Response)
        assert (read.id, type(read.id)) == (id, type(id))
        assert read.text[slice(*read.id_span)] == written


# --- progress ---------------------------------------------------------------------------------------------------------


def walked_progress(text: str) -> Message | None:
    """The message as the walk reads it; None where that refuses it."""
    try:
        # A shape of the same content, but not the usual one itself, is always walked_progress.
        return parse(text.encode(), max_depth=500, shape=dict(ENVELOPE))
    except (UnparsableMessage, MalformedMessage):
        return None


def progress(params: str, *, before: str = '"jsonrpc":"2.0",', behind: str = "") -> str:
    return f'{{{before}"method":"notifications/progress","params":{params}{behind}}}'


PLAIN = '{"progressToken":1,"progress":2}'
USUAL_PROGRESS = {
    "the least": progress(PLAIN),
    "all of it": progress('{"progressToken":7,"progress":0.5,"total":10,"message":"on \N{EURO SIGN}"}'),
    "a token of the gateway's own, of 31 bits": progress('{"progressToken":2147483647,"progress":1}'),
    "negative": progress('{"progressToken":1,"progress":-0,"total":-0.25}'),
    "with spaces": progress('{"progressToken": 1, "progress": 2, "message": ""}', before='"jsonrpc": "2.0", '),
    "the version behind": progress(PLAIN, before="", behind=',"jsonrpc":"2.0"'),
}


def assert_same(read: UsualProgress, expected: Message | None) -> None:
    assert isinstance(expected, Notification)
    assert (read.method, read.params, read.text) == (expected.method, expected.params, expected.text)
    assert (read.params_text, read.params_at) == (expected.params_text, expected.params_at)
    assert (read.token, read.done) == tuple(expected.params[name].value for name in ("progressToken", "progress"))
    assert type(read.done) is type(expected.params["progress"].value)
    spliced = encode_notification(expected, "é")
    assert read.with_token('"é"'.encode()) == spliced.encode()
    assert f'"params":{read.params_with_token(b"7").decode()}' in encode_notification(expected, 7).replace(": {", ":{")


@pytest.mark.parametrize("text", USUAL_PROGRESS.values(), ids=USUAL_PROGRESS)
def test_what_nearly_all_servers_write_is_read_in_one_step_and_the_same(text: str) -> None:
    read = usual_progress(text.encode())
    assert read is not None
    assert_same(read, walked_progress(text))


plain_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.fixed_dictionaries(
        {"progressToken": plain_texts | st.integers(-(10**16), 10**16), "progress": numbers},
        optional={"total": numbers, "message": plain_texts},
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
    read = usual_progress(text.encode())
    if read is not None:
        assert_same(read, walked_progress(text))
