"""What a server of the modern era answers is valid in this era, and its payload is the server's own text."""

import pytest

from requirements import covers
from taskgate.domain.versions import LEGACY, Revision
from taskgate.jsontext.edits import splice
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.jsontext.spans import members
from taskgate.protocol.dialects import EraCrossing
from taskgate.protocol.extensions import Extension
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.results import (
    answer,
    fitting_error,
    fitting_outcome,
    is_complete,
    large_fitting_error,
    may_not_fit,
)
from taskgate.protocol.messages import Response
from taskgate.protocol.meta import edits_for
from unit.protocol.legacy.judge import EVERY_HOST, check, read

P = "io.modelcontextprotocol/"
INFO = f'"{P}serverInfo":{{"name":"o","version":"1"}}'
KEPT = '"ttlMs":5000,"cacheScope":"public"'
BLOCK = r'{"type":"text","text":"\u00e9 done"}'
NEWEST = Revision.R2025_11_25

# The method, the definition of its result, what the server says, what its host is told.
RESULTS: dict[str, tuple[str, str, str, str]] = {
    "a call": (
        "tools/call",
        "CallToolResult",
        f'{{ "resultType":"complete", "content" : [{BLOCK} ] ,"structuredContent":{{"a":1e9,"a":2}}}}',
        f'{{ "content" : [{BLOCK} ] ,"structuredContent":{{"a":1e9,"a":2}}}}',
    ),
    "a call of little": ("tools/call", "CallToolResult", '{"resultType":"complete"}', '{"content":[]}'),
    "a call with a list": (
        "tools/call",
        "CallToolResult",
        f'{{"content":[{BLOCK}],"structuredContent":[ 1],"resultType":"complete","isError":false}}',
        f'{{"content":[{BLOCK},{{"type":"text","text":"[ 1]"}}],"isError":false}}',
    ),
    "a call with a list alone": (
        "tools/call",
        "CallToolResult",
        '{"structuredContent":[1],"resultType":"complete"}',
        '{"content":[{"type":"text","text":"[1]"}]}',
    ),
    "a prompt": (
        "prompts/get",
        "GetPromptResult",
        f'{{"messages":[{{"role":"user","content":{BLOCK}}}],"resultType":"complete"}}',
        f'{{"messages":[{{"role":"user","content":{BLOCK}}}]}}',
    ),
    "a page": (
        "resources/list",
        "ListResourcesResult",
        f'{{"resources":[],{KEPT},"nextCursor":"\\u006e","resultType":"complete"}}',
        '{"resources":[],"nextCursor":"\\u006e"}',
    ),
    "a resource": (
        "resources/read",
        "ReadResourceResult",
        f'{{{KEPT},"contents":[{{"uri":"a:b","text":"x"}}]}}',
        '{"contents":[{"uri":"a:b","text":"x"}]}',
    ),
    "a completion": (
        "completion/complete",
        "CompleteResult",
        f'{{"_meta":{{{INFO}}},"completion":{{"values":[]}}}}',
        '{"completion":{"values":[]}}',
    ),
    "traces and keys of others": (
        "completion/complete",
        "CompleteResult",
        f'{{"_meta":{{"traceparent":"00",{INFO},"{P}related-task":{{"taskId":"t"}},"x.y/z":1}},"completion":{{"values":[]}}}}',
        '{"_meta":{"traceparent":"00","x.y/z":1},"completion":{"values":[]}}',
    ),
    "nothing": ("resources/subscribe", "EmptyResult", '{"resultType":"complete"}', "{}"),
    "a prompt of nothing": ("prompts/get", "Result", '{"resultType":"complete"}', "{}"),
}


def response(tail: str) -> Response:
    message = parse(f'{{"jsonrpc":"2.0","id":42 ,{tail}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


@covers("B-CONV-1", "B-CONV-3", "B-CONV-9", "B-CONV-10")
@EVERY_HOST
@pytest.mark.parametrize(("method", "name", "text", "told"), RESULTS.values(), ids=RESULTS)
def test_a_result_loses_what_this_era_does_not_know(
    method: str, name: str, text: str, told: str, host: Revision
) -> None:
    whole = answer("h", response(f'"result": {text}'), EraCrossing(method, host))
    assert whole == f'{{"jsonrpc":"2.0","id":"h" ,"result": {told}}}'
    check(told.replace('"a":1e9,', ""), name, host)


@covers("B-CONV-3")
@pytest.mark.parametrize(("host", "words"), [(LEGACY[0], 2), (LEGACY[1], 1), (LEGACY[2], 0), (LEGACY[3], 0)])
@pytest.mark.parametrize(("method", "name"), [("tools/call", "CallToolResult"), ("prompts/get", "GetPromptResult")])
def test_what_a_host_does_not_know_is_put_into_words(method: str, name: str, host: Revision, words: int) -> None:
    blocks = [
        '{"type":"resource_link","name":"n","uri":"a:b"}',
        '{"type":"audio","data":"AA==","mimeType":"audio/wav"}',
    ]
    content = f'"content":[{",".join(blocks)}]'
    messages = ",".join(f'{{"role":"user","content":{block}}}' for block in blocks)
    result = content if method == "tools/call" else f'"messages":[{messages}]'
    found = read(answer(1, response(f'"result":{{"resultType":"complete",{result}}}'), EraCrossing(method, host)))
    check(found["result"], name, host)
    assert str(found).count("'type': 'text'") == words


@covers("V-META-7")
@pytest.mark.parametrize(
    "text",
    ["[]", "null", '{"resultType":"input_required","requestState":"s"}', '{"resultType":"task"}', '{"resultType":7}'],
)
def test_what_is_no_complete_result_is_the_servers_fault(text: str) -> None:
    given = response(f'"result":{text}')
    assert not is_complete(given)
    found = read(answer("h", given, EraCrossing("tools/call", NEWEST)))
    assert (found["id"], found["error"]["code"], found["error"]["data"]["reason"]) == ("h", -32603, "malformed")


@pytest.mark.parametrize(("tail", "whole"), [('"result":{}', True), ('"error":{"code":1,"message":""}', False)])
def test_an_error_is_no_result(tail: str, whole: bool) -> None:
    assert is_complete(response(tail)) is whole


# --- errors --------------------------------------------------------------------------------------------------------

READ = "resources/read"
ERRORS: dict[str, tuple[str, str, str]] = {
    "headers that do not agree": (
        "tools/call",
        '{"code":-32020,"message":"m"}',
        '{"data":{"upstreamCode":-32020},"code":-32603,"message":"m"}',
    ),
    "a capability that is missing": (
        READ,
        '{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}',
        '{"code":-32603,"message":"m","data":{"upstreamCode":-32021,"requiredCapabilities":{}}}',
    ),
    "a version that is not served": (
        READ,
        '{"code":-32022,"message":"m","data":7}',
        '{"code":-32603,"message":"m","data":{"upstreamCode":-32022,"upstreamData":7}}',
    ),
    "no such resource, by its name": (
        READ,
        '{"code": -32602 ,"message":"m","data":{"uri":"a:b"}}',
        '{"code": -32002 ,"message":"m","data":{"uri":"a:b"}}',
    ),
    "no such resource, by the words": (
        READ,
        '{"code":-32602,"message":"Resource Not Found"}',
        '{"code":-32002,"message":"Resource Not Found"}',
    ),
}


@covers("B-CONV-8")
@pytest.mark.parametrize(("method", "error", "told"), ERRORS.values(), ids=ERRORS)
def test_an_error_has_a_code_that_means_the_same_here(method: str, error: str, told: str) -> None:
    assert fitting_error(error, method) == told
    whole = answer("h", response(f'"error":{error}'), EraCrossing(method, NEWEST))
    assert whole == f'{{"jsonrpc":"2.0","id":"h","error":{told}}}'
    check(whole, "JSONRPCErrorResponse", NEWEST)


OTHERS: list[tuple[str, str]] = [
    (READ, '{"code":-32602,"message":"uri must be a string"}'),
    (READ, '{"code":-32602,"message":"bad","data":{"uri":7}}'),
    (READ, '{"code":-32602,"message":"bad","data":[]}'),
    (READ, '{"code":-32603,"message":"not found"}'),
    ("prompts/get", '{"code":-32602,"message":"not found","data":{"uri":"a:b"}}'),
    ("tools/call", '{"code":-32602,"message":"Tool not found"}'),
    ("tools/call", '{ "code":-32000 ,"message":"\\u00e9","data":{"a":1e999}}'),
    ("tools/call", '{"code":-32023,"message":"m"}'),
]


@pytest.mark.parametrize(("method", "error"), OTHERS)
def test_any_other_error_stays_to_the_byte(method: str, error: str) -> None:
    assert fitting_error(error, method) == error
    assert to_string(large_fitting_error(LargeJson(error.encode()))) == error
    whole = answer("h", response(f'"error":{error}'), EraCrossing(method, NEWEST))
    assert whole == f'{{"jsonrpc":"2.0","id":"h" ,"error":{error}}}'


def test_a_large_error_of_a_call_has_a_code_that_means_the_same_here() -> None:
    error = '{"code":-32021,"message":"é"}'
    assert to_string(large_fitting_error(LargeJson(error.encode()))) == fitting_error(error, "tools/call") != error


# --- methods of carried extensions -----------------------------------------------------------------------------------

THING = Extension(
    methods=frozenset({"thing/do"}), result_types=frozenset({"partial"}), codes=frozenset({-32021, -32023})
)
OF_THING = EraCrossing("thing/do", NEWEST, THING)


@pytest.mark.parametrize("kind", ["", '"resultType":"complete",', '"resultType":"partial",'])
def test_a_result_of_an_extension_loses_what_this_era_does_not_know(kind: str) -> None:
    # X-EXT-21.
    given = response(f'"result":{{{kind}{KEPT},"a": 1e999,"_meta":{{{INFO},"{P}x":1}}}}')
    told = f'{{"a": 1e999,"_meta":{{"{P}x":1}}}}'
    assert answer("h", given, OF_THING) == f'{{"jsonrpc":"2.0","id":"h" ,"result":{told}}}'


@pytest.mark.parametrize("kind", ['"other"', '"task"', '"input_required"', "null", "7", '["partial"]', '{"partial":1}'])
def test_a_result_of_a_kind_that_its_extension_does_not_have_is_the_servers_fault(kind: str) -> None:
    # X-EXT-22.
    given = response(f'"result":{{"resultType":{kind}}}')
    assert not is_complete(given, THING)
    assert read(answer("h", given, OF_THING))["error"]["data"]["reason"] == "malformed"


def test_a_kind_of_an_extension_is_none_of_any_other_method() -> None:
    given = response('"result":{"resultType":"partial"}')
    assert is_complete(given, THING)
    assert not is_complete(given)
    assert read(answer("h", given, EraCrossing("tools/list", NEWEST)))["error"]["data"]["reason"] == "malformed"


@pytest.mark.parametrize(("code", "told"), [(-32023, -32023), (-32021, -32021), (-32022, -32603), (-32099, -32099)])
def test_codes_of_an_extension_stay_for_its_methods(code: int, told: int) -> None:
    # X-EXT-31.
    error = f'{{"code":{code},"message":"\\u00e9"}}'
    assert read(fitting_error(error, "thing/do", THING))["code"] == told
    found = read(answer("h", response(f'"error":{error}'), OF_THING))
    assert (found["error"]["code"], found["error"]["message"]) == (told, "é")


# --- outcomes of tasks ---------------------------------------------------------------------------------------------

OUTCOMES: dict[str, tuple[str, str]] = {
    "of a server of the modern era": (
        f'{{"resultType":"complete","content":[],"structuredContent":[1],"_meta":{{{INFO},"x":1}}}}',
        '{"content":[{"type":"text","text":"[1]"}],"_meta":{"x":1}}',
    ),
    "of one that did not tell the type": (f'{{"content":[],"_meta":{{{INFO}}}}}', '{"content":[]}'),
}


def fitted(result: str) -> str:
    found = members(result, {"_meta": {}})
    return splice(result, edits_for(found, 0, fitting_outcome(found, lambda at: result[at.start : at.end])))


@pytest.mark.parametrize(("result", "told"), OUTCOMES.values(), ids=OUTCOMES)
def test_an_outcome_loses_what_this_era_does_not_know(result: str, told: str) -> None:
    assert fitted(result) == told
    assert may_not_fit(result)
    check(told, "CallToolResult", NEWEST)


SAME: list[str] = [
    '{ "content":[] ,"structuredContent":[1]}',
    '{"content":[{"type":"text","text":"\\"resultType\\""}],"x":{"resultType":1},"ttlMs":1}',
    f'{{"content":[],"x":"{P}serverInfo","structuredContent":7}}',
    f'{{"content":[],"_meta":{{"x":"{P}serverInfo"}},"y":"resultType","cacheScope":1}}',
]


@pytest.mark.parametrize("result", SAME)
def test_an_outcome_of_a_server_of_this_era_stays_to_the_byte(result: str) -> None:
    assert fitted(result) == result
