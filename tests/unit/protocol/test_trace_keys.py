"""The keys of a trace are read from `_meta`, and put there in place of the sender's; nothing else changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.protocol.envelope import Request
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.params import Params
from taskgate.protocol.trace_keys import TraceKeys, trace_keys, with_trace

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
    assert trace_keys(request(params).params) == keys


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
    assert with_trace(Params(before), OURS) == Params(after)


def test_a_request_without_parameters_gets_some() -> None:
    assert with_trace(None, OURS) == Params(f'{{"_meta":{{{WRITTEN}}}}}')


def test_a_state_goes_with_its_place() -> None:
    told = with_trace(Params('{"_meta":{"tracestate":"theirs=1"}}'), STATED).head
    assert json.loads(told) == {"_meta": {"traceparent": STATED.traceparent, "tracestate": "vendor=a"}}


@pytest.mark.parametrize("last", [True, False])
def test_the_place_of_the_token_stays_open(last: bool) -> None:
    """The sender's token is replaced by ours when the request leaves, so it must still be known where that is."""
    head, tail = ('{"_meta":{"baggage":"a=1","progressToken":', '}}') if last else (
        '{"_meta":{"progressToken":', ',"baggage":"a=1"}}')  # fmt: skip
    traced = with_trace(Params(head, tail), OURS)
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
    put = {name: value for name, value in keys._asdict().items() if value is not None}
    others = {k: v for k, v in given_.get("_meta", {}).items() if k not in ("traceparent", "tracestate", "baggage")}
    text = with_trace(sent, keys).with_token(token or 0)
    assert json.loads(text) == {**given_, "_meta": {**others, **put}}
    assert text.count('"traceparent"') == 1
