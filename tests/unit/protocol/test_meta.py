"""Edits of an object and its _meta change what they name and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import MalformedMessage
from taskgate.jsontext.spans import Member
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Request
from taskgate.protocol.meta import (
    HOP_KEYS,
    ObjectEdit,
    TraceKeys,
    edit_object,
    edits_for,
    legacy_hop_keys,
    read_trace_keys,
    with_trace_keys,
)

# --- edits ------------------------------------------------------------------------------------------------------------


Y = "io.modelcontextprotocol/related-task"
Z = "io.modelcontextprotocol/serverInfo"

CHANGES: dict[str, tuple[str, ObjectEdit, str]] = {
    "nothing": ('{ "a" : 1 }', ObjectEdit(), '{ "a" : 1 }'),
    "a new member comes first": ('{"a": 1}', ObjectEdit(put={"b": "2"}), '{"b":2,"a": 1}'),
    "in the order they are given": ("{}", ObjectEdit(put={"b": "2", "c": "3"}), '{"b":2,"c":3}'),
    "into an object of white space": ("{ }", ObjectEdit(put={"b": "2"}), '{"b":2 }'),
    "one that is there is replaced in its place": ('{"a":1, "b" : 0}', ObjectEdit(put={"b": "2"}), '{"a":1, "b" : 2}'),
    "one goes": ('{"a":1,"b":0}', ObjectEdit(drop=("b",)), '{"a":1}'),
    "the only one goes": ('{"b":0}', ObjectEdit(drop=("b",)), "{}"),
    "one goes as another comes": ('{"b":0}', ObjectEdit(put={"c": "1"}, drop=("b",)), '{"c":1}'),
    "all go as one comes": ('{ "a":1,"b":0}', ObjectEdit(put={"c": "1"}, drop=("b", "a")), '{"c":1 }'),
    "the first goes as one comes": ('{"b":0,"a":1}', ObjectEdit(put={"c": "1"}, drop=("b",)), '{"c":1,"a":1}'),
    "what is put is not dropped": ('{"b":0}', ObjectEdit(put={"b": "1"}, drop=("b",)), '{"b":1}'),
    "put and new together": ('{"b":0}', ObjectEdit(put={"b": "1", "c": "2"}, drop=("b",)), '{"c":2,"b":1}'),
    "a key of this hop goes": (f'{{"_meta":{{"x":1,"{Y}":2}}}}', ObjectEdit(), '{"_meta":{"x":1}}'),
    "any other key of the protocol stays": (
        '{"_meta":{"io.modelcontextprotocol/other":1,"io.modelcontextprotocol.skills/x":2}}',
        ObjectEdit(),
        '{"_meta":{"io.modelcontextprotocol/other":1,"io.modelcontextprotocol.skills/x":2}}',
    ),
    "whatever begins as our keys do goes": (
        '{"_meta":{"io.taskgate/x":{},"io.taskgatex/a":1}}',
        ObjectEdit(),
        '{"_meta":{"io.taskgatex/a":1}}',
    ),
    "and where both are of one era": (
        f'{{"_meta":{{"io.taskgate/x":{{}},"{Y}":1}}}}',
        ObjectEdit(keeps_hop=True),
        f'{{"_meta":{{"{Y}":1}}}}',
    ),
    "but for what is to stay": (
        f'{{"_meta":{{"{Z}":{{}},"{Y}":1,"io.taskgate/x":1}}}}',
        ObjectEdit(meta_keep=(Z,)),
        f'{{"_meta":{{"{Z}":{{}}}}}}',
    ),
    "but for what is put": (
        '{"_meta":{"io.taskgate/gateway":{},"io.taskgate/x":1}}',
        ObjectEdit(meta_put={"io.taskgate/gateway": '{"a":1}'}),
        '{"_meta":{"io.taskgate/gateway":{"a":1}}}',
    ),
    "a key of ours goes": (
        '{"_meta":{"io.taskgate/gateway":{},"io.taskgate/idempotency-key":"k"}}',
        ObjectEdit(),
        "{}",
    ),
    "and with it a meta that has no other": (f'{{"a":1,"_meta":{{"{Y}":2}}}}', ObjectEdit(), '{"a":1}'),
    "however it is written": ('{"_meta":{"io.modelcontextprotocol\\/related-task":{}}}', ObjectEdit(), "{}"),
    "an empty meta stays": ('{"_meta":{}}', ObjectEdit(), '{"_meta":{}}'),
    "a meta that is no object goes": ('{"_meta":[],"a":1}', ObjectEdit(), '{"a":1}'),
    "a meta of our own": ('{"a":1}', ObjectEdit(meta_put={Z: "3"}), f'{{"_meta":{{"{Z}":3}},"a":1}}'),
    "one of several keys": (
        "{}",
        ObjectEdit(meta_put={Z: "3", "x": "1"}),
        f'{{"_meta":{{"{Z}":3,"x":1}}}}',
    ),
    "instead of one that is no object": ('{"_meta":1}', ObjectEdit(meta_put={Z: "3"}), f'{{"_meta":{{"{Z}":3}}}}'),
    "in one that is there": (
        f'{{"_meta":{{"{Y}":2, "x": 1}}}}',
        ObjectEdit(meta_put={Z: "3"}),
        f'{{"_meta":{{"{Z}":3,"x": 1}}}}',
    ),
    "in one that loses all": (
        f'{{"_meta":{{"{Y}":2}}}}',
        ObjectEdit(meta_put={Z: "3"}),
        f'{{"_meta":{{"{Z}":3}}}}',
    ),
    "over a server's": (
        f'{{"_meta":{{"{Z}":2,"x":1}}}}',
        ObjectEdit(meta_put={Z: "3"}),
        f'{{"_meta":{{"{Z}":3,"x":1}}}}',
    ),
    "a named key of meta goes": ('{"_meta":{"x":1,"t":2}}', ObjectEdit(meta_drop=("t",)), '{"_meta":{"x":1}}'),
    "a whole meta goes": ('{"_meta":{"x":1},"a":1}', ObjectEdit(drop=("_meta",)), '{"a":1}'),
    "whatever is in it": (f'{{"_meta":{{"x":1,"{Y}":2}},"a":1}}', ObjectEdit(drop=("_meta",)), '{"a":1}'),
    "a meta put by hand": ('{"_meta":{"x":1}}', ObjectEdit(put={"_meta": "{}"}, drop=("_meta",)), '{"_meta":{}}'),
    "below meta nothing": (f'{{"_meta":{{"x":{{"{Y}":1}}}}}}', ObjectEdit(), f'{{"_meta":{{"x":{{"{Y}":1}}}}}}'),
    "a key of a hop where both are of one era": (
        f'{{"_meta":{{"x":1,"{Y}":2,"t":3}}}}',
        ObjectEdit(meta_put={Z: "3"}, meta_drop=("t",), keeps_hop=True),
        f'{{"_meta":{{"{Z}":3,"x":1,"{Y}":2}}}}',
    ),
    "space before": ('  {"a":1}', ObjectEdit(put={"b": "2"}), '  {"b":2,"a":1}'),
}


@pytest.mark.parametrize(("text", "change", "expected"), CHANGES.values(), ids=CHANGES)
def test_an_object_is_changed_as_it_is_told(text: str, change: ObjectEdit, expected: str) -> None:
    assert edit_object(text, change) == expected


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '{"_meta":{"a":1,"a":1}}'])
def test_a_repeated_key_is_refused(text: str) -> None:
    with pytest.raises(MalformedMessage):
        edit_object(text, ObjectEdit())


HOP = {
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/serverInfo",
    "io.modelcontextprotocol/logLevel",
    "io.modelcontextprotocol/subscriptionId",
    "io.modelcontextprotocol/related-task",
    "io.modelcontextprotocol/model-immediate-response",
    "io.taskgate/idempotency-key",
    "io.taskgate/gateway",
}


def test_the_keys_that_concern_one_hop_are_named_one_by_one() -> None:
    # X-EXT-27.
    assert HOP == HOP_KEYS


@pytest.mark.parametrize("name", sorted(HOP))
def test_such_a_key_goes(name: str) -> None:
    assert edit_object(f'{{"_meta":{{"a":1,"{name}":2}}}}', ObjectEdit()) == '{"_meta":{"a":1}}'


def test_between_two_sides_of_the_legacy_era_few_keys_do_not_cross() -> None:
    others = {"a", "io.taskgatex/a", "io.modelcontextprotocol/other", *HOP}
    related, stream = "io.modelcontextprotocol/related-task", "io.modelcontextprotocol/subscriptionId"
    gone = {related, stream, "io.taskgate/x", "io.taskgate/gateway", "io.taskgate/idempotency-key"}
    assert legacy_hop_keys({*others, "io.taskgate/x"}) == gone
    assert legacy_hop_keys({"a"}) == set()


@pytest.mark.parametrize("put", [{}, {"x": "1"}], ids=["nothing put", "something put"])
@pytest.mark.parametrize("keeps_hop", [True, False])
def test_very_many_keys_that_go_take_a_time_that_grows_no_faster_than_they_do(
    put: dict[str, str], keeps_hop: bool
) -> None:
    looks = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return str.__eq__(self, other)

    names = [Name(f"a{turn}") for turn in range(100)]
    inner = {name: Member(1, 10 * turn, 10 * turn + 1, 10 * turn + 9, None) for turn, name in enumerate(names)}
    inner[Name("stays")] = Member(1, 1000, 1001, 1009, None)
    change = ObjectEdit(meta_put=put, meta_drop=frozenset(names), keeps_hop=keeps_hop)
    edits_for({"_meta": Member({}, 0, 0, 1010, inner)}, 0, change)
    assert looks < 1_000


names = st.sampled_from(["a", "b", "c", "_meta", f"{Y}"])
objects = st.dictionaries(names, st.one_of(st.integers(), st.dictionaries(names, st.integers())))


@given(objects, st.dictionaries(st.sampled_from("abcd"), st.integers()), st.sets(st.sampled_from("abcd")))
def test_what_comes_out_is_what_a_reader_would_make(value: dict[str, Any], put: dict[str, int], drop: set[str]) -> None:
    change = ObjectEdit(put={name: str(text) for name, text in put.items()}, drop=drop, meta_put={Z: "9"})
    meta = value.get("_meta")
    kept = {name: inner for name, inner in meta.items() if name != Y} if isinstance(meta, dict) else {}
    wanted = {name: inner for name, inner in value.items() if name not in drop} | put | {"_meta": {**kept, Z: 9}}
    assert json.loads(edit_object(json.dumps(value), change)) == wanted


# --- trace keys -------------------------------------------------------------------------------------------------------


PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OURS = TraceKeys("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
STATED = TraceKeys(OURS.traceparent, "vendor=a")
WRITTEN = f'"traceparent":"{OURS.traceparent}"'


def request(params: str) -> Request:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


@pytest.mark.parametrize(
    ("params", "keys"),
    {
        "no meta": ("{}", None),
        "none in it": ('{"_meta":{"progressToken":1}}', None),
        "a place": (f'{{"_meta":{{"traceparent":"{PLACE}"}}}}', TraceKeys(PLACE)),
        "with its state": (f'{{"_meta":{{"traceparent":"{PLACE}","tracestate":"a=b"}}}}', TraceKeys(PLACE, "a=b")),
        "a state that is no text": (f'{{"_meta":{{"traceparent":"{PLACE}","tracestate":[1]}}}}', TraceKeys(PLACE)),
        "a state alone": ('{"_meta":{"tracestate":"a=b"}}', None),
        "a place that is no text": ('{"_meta":{"traceparent":7}}', None),
        "a text that is no place": ('{"_meta":{"traceparent":"x"}}', TraceKeys("x")),
        "elsewhere than in meta": (f'{{"traceparent":"{PLACE}","_meta":{{}}}}', None),
        "a meta that is no object": ('{"_meta":[1]}', None),
    }.values(),
)
def test_the_keys_of_a_request_are_read_as_they_are_written(params: str, keys: TraceKeys | None) -> None:
    assert read_trace_keys(request(params).params) == keys


TEXTS = {
    "nothing but the keys": ("{}", f'{{"_meta":{{{WRITTEN}}}}}'),
    "behind all else": ('{"name": "a"}', f'{{"name": "a","_meta":{{{WRITTEN}}}}}'),
    "into white space": ("{ }", f'{{ "_meta":{{{WRITTEN}}}}}'),
    "before other keys of meta": ('{"_meta":{"x": 1},"a":2}', f'{{"_meta":{{{WRITTEN},"x": 1}},"a":2}}'),
    "instead of the sender's": (f'{{"_meta":{{"traceparent":"{PLACE}"}}}}', f'{{"_meta":{{{WRITTEN}}}}}'),
    "where the sender had them": (
        f'{{"_meta":{{"x": 1, "traceparent" : "{PLACE}"}}}}',
        f'{{"_meta":{{"x": 1, "traceparent" : "{OURS.traceparent}"}}}}',
    ),
    "and nothing of what went with them": (
        f'{{"_meta":{{"baggage":"a=1","traceparent":"{PLACE}","tracestate":"b=2","x":1}}}}',
        f'{{"_meta":{{{WRITTEN},"x":1}}}}',
    ),
    "baggage alone": ('{"_meta":{"baggage":"a=1"}}', f'{{"_meta":{{{WRITTEN}}}}}'),
    "keys of the protocol stay": (
        '{"_meta":{"io.modelcontextprotocol/related-task":{}}}',
        f'{{"_meta":{{{WRITTEN},"io.modelcontextprotocol/related-task":{{}}}}}}',
    ),
    "however meta is written": (
        f'{{"\\u005fmeta":{{"traceparent":"{PLACE}"}}}}',
        f'{{"\\u005fmeta":{{{WRITTEN}}}}}',
    ),
    "an argument of that name is none": (
        '{"arguments":{"_meta":{"traceparent":"x"}}}',
        f'{{"_meta":{{{WRITTEN}}},"arguments":{{"_meta":{{"traceparent":"x"}}}}}}',
    ),
    "a text with escapes": ('{"a":"\\u00e9"}', f'{{"_meta":{{{WRITTEN}}},"a":"\\u00e9"}}'),
    "what is no object": ("[1]", "[1]"),
    "what repeats a key": ('{"_meta":{"a":1,"a":2}}', '{"_meta":{"a":1,"a":2}}'),
}


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
def test_the_keys_are_put_in_and_the_rest_stays_to_the_byte(before: str, after: str) -> None:
    assert with_trace_keys(Params(before), OURS) == Params(after)


def test_a_request_without_parameters_gets_some() -> None:
    assert with_trace_keys(None, OURS) == Params(f'{{"_meta":{{{WRITTEN}}}}}')


def test_a_state_goes_with_its_place() -> None:
    told = with_trace_keys(Params('{"_meta":{"tracestate":"theirs=1"}}'), STATED).head
    assert json.loads(told) == {"_meta": {"traceparent": STATED.traceparent, "tracestate": "vendor=a"}}


@pytest.mark.parametrize("last", [True, False])
def test_the_place_of_the_token_stays_open(last: bool) -> None:
    """The sender's token is replaced by ours when the request leaves, so it must still be known where that is."""
    head, tail = ('{"_meta":{"baggage":"a=1","progressToken":', '}}') if last else (
        '{"_meta":{"progressToken":', ',"baggage":"a=1"}}')  # fmt: skip
    traced = with_trace_keys(Params(head, tail), OURS)
    assert traced.tail is not None
    assert json.loads(traced.with_token(7)) == {"_meta": {"traceparent": OURS.traceparent, "progressToken": 7}}


_VALUES = st.recursive(st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3))
_META = st.dictionaries(
    st.sampled_from(["traceparent", "tracestate", "baggage", "x", "io.modelcontextprotocol/y"]), _VALUES
)
_PARAMS = st.dictionaries(st.sampled_from(["name", "arguments", "_meta ", "é"]), _VALUES)


@given(_PARAMS, st.none() | _META, st.none() | st.integers(), st.booleans(), st.sampled_from([OURS, STATED]))
def test_whatever_the_parameters_the_keys_are_there_once(
    params: dict[str, Any], meta: dict[str, Any] | None, token: int | None, ascii_only: bool, keys: TraceKeys
) -> None:
    given_ = params if meta is None else {"_meta": meta, **params}
    if token is None:
        sent = Params(json.dumps(given_, ensure_ascii=ascii_only))
    else:
        given_ = {**given_, "_meta": {**(meta or {}), "progressToken": "OPEN"}}
        sent = Params(*json.dumps(given_, ensure_ascii=ascii_only).split('"OPEN"'))
        given_["_meta"]["progressToken"] = token
    found = {"traceparent": keys.traceparent, "tracestate": keys.tracestate}
    put = {name: value for name, value in found.items() if value is not None}
    others = {k: v for k, v in given_.get("_meta", {}).items() if k not in ("traceparent", "tracestate", "baggage")}
    text = with_trace_keys(sent, keys).with_token(token or 0)
    assert json.loads(text) == {**given_, "_meta": {**others, **put}}
    assert text.count('"traceparent"') == 1
