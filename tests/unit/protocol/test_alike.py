"""What the gateway reads is what decoders read that fold case, in every place that decides."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskgate.errors import MalformedMessage
from taskgate.protocol.alike import ENVELOPE_NAMES, META_NAMES, PARAMS_NAMES, TASK_NAMES, fold, refuse_alike
from taskgate.protocol.envelope import Notification, Request
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.vocabulary import CLIENT_CAPABILITIES, IDEMPOTENCY_KEY, PROTOCOL_VERSION

DEPTH = 64

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
        message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{{params}}}}}'.encode(), max_depth=DEPTH)
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
            parse(envelope(params), max_depth=DEPTH)
        assert refused.value.id == 7


META = [
    "ProgressToken",
    IDEMPOTENCY_KEY.upper(),
    f"{IDEMPOTENCY_KEY}\0",
    PROTOCOL_VERSION.lower(),
    CLIENT_CAPABILITIES.replace("s", "\u017f"),
    "Traceparent",
]


@pytest.mark.parametrize("key", META)
@pytest.mark.parametrize("lead", ["{", '{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'])
def test_a_key_of_meta_that_folds_to_one_of_the_protocol_or_ours_is_refused(key: str, lead: str) -> None:
    for _ in range(3):
        # An object that was met before is remembered.
        with pytest.raises(MalformedMessage):
            parse(envelope(f'{{"_meta":{lead}{json.dumps(key)}:1}}}}'), max_depth=DEPTH)


def test_a_member_of_a_wish_for_a_task_that_folds_to_one_that_is_read_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        parse(envelope('{"task":{"ttl":1,"TTL":2}}'), max_depth=DEPTH)


@pytest.mark.parametrize("key", ["Method", "PARAMS", "Id", "jsonrpc\0", "Re\u017fult"])
def test_a_member_of_a_message_that_folds_to_one_of_json_rpc_is_refused(key: str) -> None:
    with pytest.raises(MalformedMessage) as refused:
        parse(f'{{"jsonrpc":"2.0","id":7,"method":"ping",{json.dumps(key)}:1}}'.encode(), max_depth=DEPTH)
    assert refused.value.id == 7


def test_a_notification_is_judged_as_a_request_is() -> None:
    with pytest.raises(MalformedMessage) as refused:
        parse(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"RequestId":1}}', max_depth=DEPTH)
    assert refused.value.id is None


@pytest.mark.parametrize(
    "params",
    [
        '{"name":"echo","arguments":{"Name":1,"NAME":2,"name":3}}',
        '{"name":"echo","names":1,"na me":2,"naïve":3,"":4,"\\u0000":5}',
        '{"_meta":{"com.example/Name":1,"name":2,"Name":3},"task":{"Name":1}}',
        '{"ref":{"Name":1,"name":2}}',
    ],
)
def test_keys_that_fold_to_nothing_that_is_read_pass(params: str) -> None:
    assert isinstance(parse(envelope(params), max_depth=DEPTH), Request)


def test_what_a_server_answers_is_left_to_its_reader() -> None:
    parse(b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"Content":[],"_meta":{"ProgressToken":1}}}', max_depth=DEPTH)


# --- what it costs --------------------------------------------------------------------------------------------------


def test_a_usual_message_is_folded_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskgate.protocol.jsonrpc.refuse_alike", lambda *_: pytest.fail("folded"))
    meta = f'{{"{PROTOCOL_VERSION}":"2026-07-28","progressToken":1}}'
    call = parse(envelope(f'{{"name":"echo","arguments":{{"NAME":1}},"_meta":{meta},"task":{{"ttl":1}}}}'), max_depth=9)
    assert isinstance(call, Request)
    note = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}}'
    assert isinstance(parse(note, max_depth=9), Notification)


@pytest.mark.parametrize("names", [ENVELOPE_NAMES, PARAMS_NAMES, META_NAMES, TASK_NAMES])
def test_no_name_is_like_another(names: frozenset[str]) -> None:
    refuse_alike(names, names)
    assert len({fold(name) for name in names}) == len(names)
