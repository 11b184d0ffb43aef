"""The parameters of a request: types are checked, what belongs to this hop is cut out, every other byte stays."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.errors import InvalidParams, MalformedMessage
from taskgate.protocol.extensions import BUILT_IN, EVENTS, Extension, ExtensionPolicy
from taskgate.protocol.host_requests import Subscription
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Params, Request
from taskgate.protocol.modern import params

P = "io.modelcontextprotocol/"
OURS = f'"{P}protocolVersion":"2026-07-28","{P}clientCapabilities":{{"roots":{{}}}},"{P}clientInfo":{{}}'
KEY = '"io.taskgate/idempotency-key"'
ID = "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c"


def request(text: str) -> Request:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{text}}}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


# --- on their way to a server --------------------------------------------------------------------------------------

# What a host sends, and what its server is sent.
PASSAGES: dict[str, tuple[str, str]] = {
    "nothing but what every request says": (f'{{"_meta":{{{OURS}}}}}', "{}"),
    "nothing": ('{"_meta":{},"a":1}', '{"_meta":{},"a":1}'),
    "an argument": (f'{{"name":"t","_meta":{{{OURS}}}}}', '{"name":"t"}'),
    "traces": (
        f'{{"_meta":{{{OURS},"traceparent":"00-1","tracestate":"a=b","baggage":"c"}}}}',
        '{"_meta":{"traceparent":"00-1","tracestate":"a=b","baggage":"c"}}',
    ),
    "keys of others": (
        f'{{"_meta":{{"x.y/z": 1.50 ,{OURS},"io.modelcontextprotocolx/a":2}}}}',
        '{"_meta":{"x.y/z": 1.50,"io.modelcontextprotocolx/a":2}}',
    ),
    "the idempotency key": (f'{{"name":"t","_meta":{{{KEY}:"k",{OURS}}}}}', '{"name":"t"}'),
    "the idempotency key among others": (
        f'{{"_meta":{{"x":1,{OURS}, {KEY} : "k" ,"y":2}}}}',
        '{"_meta":{"x":1 ,"y":2}}',
    ),
    "keys of the other era": (f'{{"_meta":{{"{P}related-task":{{"taskId":"t"}},{OURS}}},"a":1}}', '{"a":1}'),
    "a task of the other era": (f'{{"name":"t","task":{{"ttl":1}},"_meta":{{{OURS}}}}}', '{"name":"t"}'),
    "a task of no sense": (f'{{"task":7,"name":"t","_meta":{{{OURS}}}}}', '{"name":"t"}'),
    "odd bytes": (
        f'{{ "a" : "\\u00e9\\ud800" ,"b":1e999, "_meta":{{{OURS}}} }}',
        '{ "a" : "\\u00e9\\ud800" ,"b":1e999 }',
    ),
    "the same key further down": (
        f'{{"a":{{"_meta":{{{OURS}}}}},"_meta":{{{OURS}}}}}',
        f'{{"a":{{"_meta":{{{OURS}}}}}}}',
    ),
}


@covers("V-META-9", "B-CONV-9", "M-NEG-5")
@pytest.mark.parametrize(("sent", "passed"), PASSAGES.values(), ids=PASSAGES)
def test_what_every_request_says_stays_at_this_hop(sent: str, passed: str) -> None:
    assert params.passage(request(sent)) == Params(passed)
    assert params.kept(request(sent)) == passed


@pytest.mark.parametrize("written", ['"\\u0070"', "7", '""'])
@pytest.mark.parametrize("after", [False, True])
def test_the_place_of_a_progress_token_is_open(written: str, after: bool) -> None:
    meta = f'{OURS},"progressToken": {written} ' if after else f'"progressToken": {written} ,{OURS}'
    sent = request(f'{{"name":"t","_meta":{{{meta}}},"z":1}}')
    assert json.loads(params.passage(sent).with_token(9)) == {"name": "t", "_meta": {"progressToken": 9}, "z": 1}
    assert params.kept(sent) == '{"name":"t","z":1}'


def test_what_is_kept_has_no_token_but_other_keys() -> None:
    sent = request(f'{{"_meta":{{"x":1,"progressToken":2,{OURS}}}}}')
    assert params.kept(sent) == '{"_meta":{"x":1}}'
    assert params.passage(sent) == Params('{"_meta":{"x":1,"progressToken":', "}}")


@pytest.mark.parametrize("meta", [f'{KEY}:"k", "progressToken":2', f'"progressToken":2 , {KEY}:"k"'])
def test_the_idempotency_key_goes_on_either_side_of_the_token(meta: str) -> None:
    sent = request(f'{{"a":1,"_meta":{{{meta},"x":1}}}}')
    assert json.loads(params.passage(sent).with_token(3)) == {"a": 1, "_meta": {"progressToken": 3, "x": 1}}
    assert params.kept(sent) == '{"a":1,"_meta":{"x":1}}'


def test_members_that_are_named_go_on_either_side_of_the_token() -> None:
    sent = f'{{"a":1,"requestState":"s","_meta":{{"progressToken":2,{OURS}}},"inputResponses":{{}},"z":0}}'
    less = ("inputResponses", "requestState")
    assert params.passage(request(sent), less=less).with_token(3) == '{"a":1,"_meta":{"progressToken":3},"z":0}'
    assert params.kept(request(sent), less=less) == '{"a":1,"z":0}'
    assert params.kept(request(sent)) == '{"a":1,"requestState":"s","inputResponses":{},"z":0}'


# --- single members ------------------------------------------------------------------------------------------------


def test_a_lone_surrogate_in_a_state_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        params.request_state(request(r'{"requestState":"\udfff"}').params)


def test_a_state_is_a_text_or_absent() -> None:
    assert params.request_state(request('{"requestState":""}').params) == ""
    assert params.request_state(request("{}").params) is None
    for value in ("null", "1", "{}"):
        with pytest.raises(InvalidParams):
            params.request_state(request(f'{{"requestState":{value}}}').params)


# --- subscriptions -------------------------------------------------------------------------------------------------

THING = Extension(filters=frozenset({"thingChanged"}))
EVENTS_CROSS = ExtensionPolicy(allowed={EVENTS: BUILT_IN[EVENTS], "com.example/thing": THING})

WISHES: dict[str, tuple[dict[str, Any], Subscription]] = {
    "nothing": ({}, Subscription()),
    "what is not known": ({"x": 1}, Subscription()),
    "what is not wanted": ({"toolsListChanged": False}, Subscription()),
    "tools": ({"toolsListChanged": True}, Subscription(tools=True)),
    "prompts": ({"promptsListChanged": True}, Subscription(prompts=True)),
    "resources": ({"resourcesListChanged": True}, Subscription(resources=True)),
    "some resources": ({"resourceSubscriptions": ["a:b", "c", "a:b"]}, Subscription(resource_uris=("a:b", "c"))),
    "no resources": ({"resourceSubscriptions": []}, Subscription(resource_uris=())),
    "tasks": ({"taskIds": [ID, "of nobody", ID]}, Subscription(tasks=(ID,))),
    "no tasks": ({"taskIds": []}, Subscription(tasks=())),
}


@pytest.mark.parametrize(("wished", "found"), WISHES.values(), ids=WISHES)
def test_a_host_hears_what_it_wishes(wished: dict[str, Any], found: Subscription) -> None:
    assert params.subscription(request(json.dumps({"notifications": wished})).params, ExtensionPolicy()) == found


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"notifications":null}',
        '{"notifications":[]}',
        '{"notifications":{"toolsListChanged":1}}',
        '{"notifications":{"promptsListChanged":null}}',
        '{"notifications":{"resourcesListChanged":"true"}}',
        '{"notifications":{"resourceSubscriptions":"a"}}',
        '{"notifications":{"taskIds":null}}',
        '{"notifications":{"taskIds":[1]}}',
    ],
)
def test_wishes_of_the_wrong_type_are_refused(text: str) -> None:
    with pytest.raises(InvalidParams):
        params.subscription(request(text).params, EVENTS_CROSS)


@pytest.mark.parametrize(
    ("wished", "found"),
    [
        ({"eventsListChanged": True}, ("eventsListChanged",)),
        ({"thingChanged": True, "x": True, "eventsListChanged": True}, ("eventsListChanged", "thingChanged")),
        ({"eventsListChanged": False}, ()),
        ({"eventsListChanged": 1}, ()),
        ({}, ()),
    ],
)
def test_of_extensions_a_host_hears_what_crosses(wished: dict[str, Any], found: tuple[str, ...]) -> None:
    # X-EXT-24.
    asked = request(json.dumps({"notifications": wished})).params
    assert params.subscription(asked, EVENTS_CROSS) == Subscription(filters=found)
    assert params.subscription(asked, ExtensionPolicy()) == Subscription()
