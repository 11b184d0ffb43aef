"""Requests: parameters of hosts are prepared, and requests to servers are encoded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import objects, scalars
from requirements import covers
from taskgate.errors import InvalidParams, MalformedMessage
from taskgate.protocol.extensions import BUILT_IN, EVENTS, Extension, ExtensionPolicy
from taskgate.protocol.headers import check_headers, check_params, encode_value, read_headers
from taskgate.protocol.host_requests import Subscription
from taskgate.protocol.jsonrpc import parse, request_text
from taskgate.protocol.messages import Params, Request
from taskgate.protocol.meta import ObjectEdit, edit_object
from taskgate.protocol.modern import requests
from taskgate.protocol.server_messages import RequestDraft, ServerSubscription
from unit.protocol.modern.judge import INFO, check, read

# --- parameters of hosts ----------------------------------------------------------------------------------------------


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
    assert requests.prepare_params(request(sent)) == Params(passed)
    assert requests.stored_params(request(sent)) == passed


@pytest.mark.parametrize("written", ['"\\u0070"', "7", '""'])
@pytest.mark.parametrize("after", [False, True])
def test_the_place_of_a_progress_token_is_open(written: str, after: bool) -> None:
    meta = f'{OURS},"progressToken": {written} ' if after else f'"progressToken": {written} ,{OURS}'
    sent = request(f'{{"name":"t","_meta":{{{meta}}},"z":1}}')
    assert json.loads(requests.prepare_params(sent).with_token(9)) == {
        "name": "t",
        "_meta": {"progressToken": 9},
        "z": 1,
    }
    assert requests.stored_params(sent) == '{"name":"t","z":1}'


def test_what_is_kept_has_no_token_but_other_keys() -> None:
    sent = request(f'{{"_meta":{{"x":1,"progressToken":2,{OURS}}}}}')
    assert requests.stored_params(sent) == '{"_meta":{"x":1}}'
    assert requests.prepare_params(sent) == Params('{"_meta":{"x":1,"progressToken":', "}}")


@pytest.mark.parametrize("meta", [f'{KEY}:"k", "progressToken":2', f'"progressToken":2 , {KEY}:"k"'])
def test_the_idempotency_key_goes_on_either_side_of_the_token(meta: str) -> None:
    sent = request(f'{{"a":1,"_meta":{{{meta},"x":1}}}}')
    assert json.loads(requests.prepare_params(sent).with_token(3)) == {"a": 1, "_meta": {"progressToken": 3, "x": 1}}
    assert requests.stored_params(sent) == '{"a":1,"_meta":{"x":1}}'


def test_members_that_are_named_go_on_either_side_of_the_token() -> None:
    sent = f'{{"a":1,"requestState":"s","_meta":{{"progressToken":2,{OURS}}},"inputResponses":{{}},"z":0}}'
    less = ("inputResponses", "requestState")
    assert (
        requests.prepare_params(request(sent), without=less).with_token(3)
        == '{"a":1,"_meta":{"progressToken":3},"z":0}'
    )
    assert requests.stored_params(request(sent), without=less) == '{"a":1,"z":0}'
    assert requests.stored_params(request(sent)) == '{"a":1,"requestState":"s","inputResponses":{},"z":0}'


# --- single members ------------------------------------------------------------------------------------------------


def test_a_lone_surrogate_in_a_state_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        requests.read_request_state(request(r'{"requestState":"\udfff"}').params)


def test_a_state_is_a_text_or_absent() -> None:
    assert requests.read_request_state(request('{"requestState":""}').params) == ""
    assert requests.read_request_state(request("{}").params) is None
    for value in ("null", "1", "{}"):
        with pytest.raises(InvalidParams):
            requests.read_request_state(request(f'{{"requestState":{value}}}').params)


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
    assert requests.read_subscription(request(json.dumps({"notifications": wished})).params, ExtensionPolicy()) == found


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
        requests.read_subscription(request(text).params, EVENTS_CROSS)


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
    assert requests.read_subscription(asked, EVENTS_CROSS) == Subscription(filters=found)
    assert requests.read_subscription(asked, ExtensionPolicy()) == Subscription()


# --- requests to servers ----------------------------------------------------------------------------------------------


CAPABILITIES = '{"elicitation":{"form":{}}}'
META = "io.modelcontextprotocol/"
DEFINED = {"tools/call": "CallToolRequest", "prompts/get": "GetPromptRequest", "resources/read": "ReadResourceRequest"}


def written(method: str, params: str | Params | None = None, **more: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The params that are sent, and the headers."""
    text = Params(params) if isinstance(params, str) else params
    message, headers = requests.encode_request(7, RequestDraft(method=method, params=text, **more), CAPABILITIES, INFO)
    found = read(message)
    assert (found["jsonrpc"], found["id"], found["method"]) == ("2.0", 7, method)
    if method in DEFINED and "name" in found["params"]:
        check(found, DEFINED[method])
    check(found["params"], "RequestParams")
    return found["params"], dict(headers)


@covers("V-META-8", "H-MOD-1")
def test_a_request_says_its_version_its_host_and_who_sends_it() -> None:
    params, headers = written("tools/list")
    assert params == {
        "_meta": {
            f"{META}protocolVersion": "2026-07-28",
            f"{META}clientCapabilities": {"elicitation": {"form": {}}},
            f"{META}clientInfo": json.loads(INFO),
        }
    }
    assert headers == {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}


@covers("V-META-9")
def test_trace_keys_cross_and_keys_of_the_protocol_do_not() -> None:
    meta = {"traceparent": "00", "a/b": 1, f"{META}related-task": {"taskId": "x"}, f"{META}clientInfo": {"name": "h"}}
    params, _ = written("tools/call", json.dumps({"name": "t", "_meta": meta}))
    assert {name: value for name, value in params["_meta"].items() if not name.startswith(META)} == {
        "traceparent": "00", "a/b": 1,
    }  # fmt: skip
    assert f"{META}related-task" not in params["_meta"]
    assert params["_meta"][f"{META}clientInfo"] == json.loads(INFO)


def test_parameters_stay_to_the_byte() -> None:
    text = '{ "name" : "t", "arguments":{"n": 1.0e2,"d":1,"d":2,"s":"\\u00e9"} }'
    message, _ = requests.encode_request(7, RequestDraft(method="tools/call", params=Params(text)), "{}", INFO)
    assert '"name" : "t", "arguments":{"n": 1.0e2,"d":1,"d":2,"s":"\\u00e9"} }' in message


def test_the_place_of_a_hosts_token_gets_our_id() -> None:
    params, _ = written("tools/call", Params('{"name":"t","_meta":{"progressToken":', "}}"))
    assert params["_meta"]["progressToken"] == 7


@pytest.mark.parametrize("text", ['{"name":"t"}', '{"name":"t","_meta":{"progressToken":"old","a":1}}'])
def test_progress_can_be_asked_for_without_such_a_place(text: str) -> None:
    params, _ = written("tools/call", text, wants_progress=True)
    assert params["_meta"]["progressToken"] == 7


def test_a_log_level_is_told_where_one_is_wanted() -> None:
    assert written("tools/list", log_level="alert")[0]["_meta"][f"{META}logLevel"] == "alert"
    assert f"{META}logLevel" not in written("tools/list")[0]["_meta"]


@pytest.mark.parametrize("text", ["[]", "3", ""])
def test_parameters_that_are_no_object_are_none(text: str) -> None:
    assert list(written("tools/call", text)[0]) == ["_meta"]


TOLD = {
    f"{META}protocolVersion": '"2026-07-28"',
    f"{META}clientCapabilities": '{"elicitation":{"form":{}}}',
    f"{META}clientInfo": INFO,
}

plain = objects(scalars, repeats=False)


@given(
    objects(scalars | plain, repeats=False) | st.sampled_from(["{ }", '{"\\u005fmeta":{"a":1}}', '{"a":"\\"_meta\\""}'])
)
def test_what_is_put_into_parameters_that_are_not_walked_is_what_a_walk_puts_there(text: str) -> None:
    message, _ = requests.encode_request(7, RequestDraft(method="tools/list", params=Params(text)), CAPABILITIES, INFO)
    assert message == request_text(7, "tools/list", edit_object(text, ObjectEdit(meta_put=TOLD)))


# --- tasks of the server's own


UI = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}


@covers("M-NEG-8")
@pytest.mark.parametrize("asked", [{}, {"elicitation": {"form": {}}}])
@pytest.mark.parametrize("carried", [{}, {"extensions": UI, "experimental": {}, "acme": {"a": 1}}])
def test_a_server_is_told_of_the_extension_where_its_tasks_are_followed(asked: Any, carried: Any) -> None:
    extensions = {**carried.get("extensions", {}), "io.modelcontextprotocol/tasks": {}}
    found = read(requests.encode_capabilities(asked, carried, follows_tasks=True))
    assert found == {**asked, **carried, "extensions": extensions}
    assert read(requests.encode_capabilities(asked, carried, follows_tasks=False)) == {**asked, **carried}
    assert "io.modelcontextprotocol/tasks" not in UI


# --- the next round


@covers("M-MRTR-3")
def test_the_next_round_has_the_answers_and_the_state_as_it_was_written() -> None:
    message, _ = requests.encode_request(
        7,
        RequestDraft(method="tools/call", params=Params('{"name":"t"}'), answers='{"a":{}}', state='"\\u00e9"'),
        CAPABILITIES,
        INFO,
    )
    assert '"inputResponses":{"a":{}}' in message
    assert '"requestState":"\\u00e9"' in message


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, {"inputResponses": {"old": {"action": "cancel"}}, "requestState": "old"}),
        ({"answers": '{"a":{"action":"cancel"}}'}, {"inputResponses": {"a": {"action": "cancel"}}}),
        ({"state": '"new"'}, {"requestState": "new"}),
    ],
)
def test_what_an_earlier_round_left_stays_only_where_there_is_no_other(more: Any, found: Any) -> None:
    text = '{"name":"t","inputResponses":{"old":{"action":"cancel"}},"requestState":"old"}'
    params, _ = written("tools/call", text, **more)
    assert {name: value for name, value in params.items() if name not in ("name", "_meta")} == found


# --- headers


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "echo"}, "echo"),
        ("prompts/get", {"name": "p q"}, "p q"),
        ("resources/read", {"uri": "file:///süd"}, "=?base64?ZmlsZTovLy9zw7xk?="),
        ("tools/call", {"name": " t "}, "=?base64?IHQg?="),
        ("resources/read", {"uri": "x:" + "y" * 40_000}, "x:" + "y" * 40_000),
        ("prompts/list", {"name": "no"}, None),
        ("prompts/get", {}, None),
        ("prompts/get", {"name": None}, None),
        ("prompts/get", {"name": {"a": 1}}, None),
        ("prompts/get", {"name": "\ud800"}, None),
    ],
)
@covers("H-MOD-1", "H-MOD-3")
def test_a_header_repeats_the_name_where_the_method_has_one(method: str, params: Any, name: str | None) -> None:
    message, headers = requests.encode_request(
        7, RequestDraft(method=method, params=Params(json.dumps(params))), CAPABILITIES, INFO
    )
    assert headers.get("Mcp-Name") == name
    request = parse(message.encode(), max_depth=64)
    assert isinstance(request, Request)
    if name is not None:
        check_headers(read_headers(headers.items()), request, "2026-07-28", strict_names=True)


@given(
    st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
    st.dictionaries(st.sampled_from(["name", "uri", "a"]), st.text(st.characters(exclude_categories=["Cs"]))),
    st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]),
    st.booleans(),
)
def test_the_name_is_found_however_it_is_written(
    method: str, params: dict[str, str], separators: tuple[str, str], ascii: bool
) -> None:
    text = json.dumps(params, separators=separators, ensure_ascii=ascii)
    headers = requests.encode_request(7, RequestDraft(method=method, params=Params(text)), CAPABILITIES, INFO).headers
    name = params.get("uri" if method == "resources/read" else "name")
    assert headers.get("Mcp-Name") == (None if name is None else encode_value(name))


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("south", "south"),
        ("süd", "=?base64?c8O8ZA==?="),
        (12, "12"),
        (-3.0, "-3"),
        (True, "true"),
        (False, "false"),
        ("", ""),
        (None, None),
        (1.5, None),
        ([], None),
        ("\ud800", None),
    ],
)
@covers("H-MOD-5")
def test_a_header_repeats_an_argument_that_is_there(value: Any, header: str | None) -> None:
    text = json.dumps({"name": "t", "arguments": {"in": {"a": value}}})
    saying = RequestDraft(method="tools/call", params=Params(text), header_paths={"Region": ("in", "a")})
    message, headers = requests.encode_request(7, saying, CAPABILITIES, INFO)
    assert headers.get("Mcp-Param-Region") == header
    request = parse(message.encode(), max_depth=64)
    assert isinstance(request, Request)
    if header is not None:
        check_params(read_headers(headers.items()).params, request, {"Region": ("in", "a")})


@covers("H-MOD-6")
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_what_a_host_repeated_goes_on_where_the_tool_does_not_want_it_repeated(method: str) -> None:
    repeated = {"region": "north", "other": "=?base64?", "empty": "", "tab": "a\tb"}
    unsound = {"a": "é", "b": "a\r\nX-Evil: 1", "c": " a", "d": "\udce9", "e": "\x00"}
    text = '{"name":"t","arguments":{"a":"south"}}'
    _, headers = written(method, text, header_paths={"Region": ("gone",)}, host_headers=repeated | unsound)
    sent = {name: value for name, value in headers.items() if name.startswith("Mcp-Param-")}
    assert sent == {"Mcp-Param-other": "=?base64?", "Mcp-Param-empty": "", "Mcp-Param-tab": "a\tb"}


@covers("H-MOD-6")
def test_what_a_host_repeated_never_stands_for_what_the_tool_wants() -> None:
    text = '{"name":"t","arguments":{"a":"south"}}'
    _, headers = written("tools/call", text, header_paths={"Region": ("a",)}, host_headers={"region": "north"})
    assert [value for name, value in headers.items() if name.lower() == "mcp-param-region"] == ["south"]


@pytest.mark.parametrize("arguments", ['{"in":3}', "{}", "[]", "null"])
def test_an_argument_that_is_not_there_has_no_header(arguments: str) -> None:
    text = f'{{"name":"t","arguments":{arguments}}}'
    saying = RequestDraft(method="tools/call", params=Params(text), header_paths={"Region": ("in", "a")})
    assert "Mcp-Param-Region" not in requests.encode_request(7, saying, CAPABILITIES, INFO).headers


@pytest.mark.parametrize("arguments", ['{"a":"south","a":"north"}', '{"a":"south","A":"north"}'])
def test_an_argument_that_may_be_one_of_two_has_no_header(arguments: str) -> None:
    text = f'{{"name":"t","arguments":{arguments}}}'
    saying = RequestDraft(
        method="tools/call", params=Params(text), header_paths={"Region": ("a",)}, host_headers={"region": "south"}
    )
    message, headers = requests.encode_request(7, saying, CAPABILITIES, INFO)
    assert [name for name in headers if name.lower() == "mcp-param-region"] == []
    assert arguments in message


# --- what is listened to


def test_a_listen_names_what_is_wanted() -> None:
    found = read(
        requests.subscription_params(ServerSubscription(tools=True, prompts=True, resources=True, uris=("a:b",)))
    )
    check(found["notifications"], "SubscriptionFilter")
    assert found["notifications"] == {
        "toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True,
        "resourceSubscriptions": ["a:b"],
    }  # fmt: skip


def test_a_listen_names_the_servers_tasks_that_are_followed() -> None:
    assert read(requests.subscription_params(ServerSubscription(tasks=("n1", "n2")))) == {
        "notifications": {"taskIds": ["n1", "n2"]}
    }


def test_a_listen_names_the_members_of_extensions_that_are_asked_for() -> None:
    # X-EXT-24.
    found = read(
        requests.subscription_params(ServerSubscription(tools=True, filters=("eventsListChanged", "thingChanged")))
    )
    assert found == {"notifications": {"toolsListChanged": True, "eventsListChanged": True, "thingChanged": True}}


def test_a_listen_names_nothing_else() -> None:
    assert read(requests.subscription_params(ServerSubscription(prompts=True))) == {
        "notifications": {"promptsListChanged": True}
    }
