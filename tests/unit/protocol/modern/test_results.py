"""Responses of servers of both eras have the modern form, and nothing else changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.domain.versions import Era
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.protocol.extensions import Extension
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Response
from taskgate.protocol.modern import results
from taskgate.protocol.modern.results import (
    complete_result,
    convert_error,
    convert_large_error,
    convert_response,
    convert_tools,
    is_complete,
    nested_large_result,
    nested_result,
    without_execution,
)
from taskgate.protocol.vocabulary import CACHEABLE_METHODS, MODERN_RELAYED
from unit.protocol.modern.judge import INFO, INFO_KEY, RELATED, TOLD, check, read

# --- results and errors -----------------------------------------------------------------------------------------------


L, M = Era.LEGACY, Era.MODERN
P = "io.modelcontextprotocol/"
ROUND = '{"resultType":"input_required","requestState":"s"}'
BLOCK = '{"type":"text","text":"\\u00e9\\ud800 done"}'
RESULTS = {
    "tools/call": ("CallToolResult", f'{{ "content" : [{BLOCK}] ,"structuredContent":{{"a":1e999}}}}'),
    "tools/list": ("ListToolsResult", '{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"nextCursor":"n"}'),
    "prompts/list": ("ListPromptsResult", '{"prompts":[{"name":"p"}]}'),
    "prompts/get": ("GetPromptResult", '{"messages":[]}'),
    "resources/list": ("ListResourcesResult", '{"resources":[]}'),
    "resources/templates/list": ("ListResourceTemplatesResult", '{"resourceTemplates":[]}'),
    "resources/read": ("ReadResourceResult", '{"contents":[{"uri":"a:b","text":"x"}]}'),
    "completion/complete": ("CompleteResult", '{"completion":{"values":[]}}'),
}


def response(text: str) -> Response:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def result(text: str) -> Response:
    return response(f'{{"jsonrpc":"2.0","id":42,"result":{text}}}')


def test_every_method_is_tried() -> None:
    assert RESULTS.keys() == MODERN_RELAYED | {"tools/call"}


@covers("B-CONV-1", "V-META-3", "V-META-6", "V-CACHE-1")
@pytest.mark.parametrize("method", RESULTS)
def test_a_result_is_complete_and_the_payload_is_the_servers(method: str) -> None:
    name, text = RESULTS[method]
    kept = ',"ttlMs":0,"cacheScope":"private"' if method in CACHEABLE_METHODS else ""
    head = f'{{"resultType":"complete"{kept},"_meta":{{"{INFO_KEY}":{INFO}}},'
    whole = convert_response("h", method, result(text), L, INFO)
    assert whole == f'{{"jsonrpc":"2.0","id":"h","result":{head}{text[1:]}}}'
    assert complete_result(text, method, INFO) == f"{head}{text[1:]}"
    if "1e999" not in text:
        check(whole, "JSONRPCResultResponse")
    check(json.loads(whole)["result"], name)


MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "a type of its own": ('{"resultType":"task","contents":[]}', {"_meta": TOLD}),
    "a cache of its own": ('{"ttlMs":-1.5,"cacheScope":"public","contents":[]}', {"_meta": TOLD}),
    "a related task": (f'{{"contents":[],"_meta":{{"{RELATED}":{{"taskId":"t"}}}}}}', {"_meta": TOLD}),
    "a name of its own": (f'{{"contents":[],"_meta":{{"{INFO_KEY}":{{"name":"o"}}}}}}', {"_meta": TOLD}),
    "an answer for a model": (
        f'{{"contents":[],"_meta":{{"x":1,"{P}model-immediate-response":"a"}}}}',
        {"_meta": {"x": 1, **TOLD}},
    ),
    "a meta that is none": ('{"contents":[],"_meta":null}', {"_meta": TOLD}),
    "traces": ('{"contents":[],"_meta":{"traceparent":"00"}}', {"_meta": {"traceparent": "00", **TOLD}}),
}


@covers("T-7", "V-META-9", "B-CONV-9")
@pytest.mark.parametrize(("text", "told"), MORE.values(), ids=MORE)
def test_what_a_server_says_of_this_era_is_not_heard(text: str, told: dict[str, Any]) -> None:
    found = read(complete_result(text, "resources/read", INFO))
    assert found == {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "contents": [], **told}
    assert read(convert_response(1, "resources/read", result(text), L, INFO))["result"] == found
    check(found, "ReadResourceResult")


@pytest.mark.parametrize(
    ("meta", "left"), [(f'{{"{RELATED}":{{}}}}', {}), (f'{{"{RELATED}":{{}},"x":1}}', {"_meta": {"x": 1}})]
)
def test_a_result_inside_another_names_no_server_by_itself(meta: str, left: dict[str, Any]) -> None:
    found = read(nested_result(f'{{"content":[],"isError":true,"_meta":{meta}}}'))
    assert found == {"resultType": "complete", "content": [], "isError": True, **left}
    check(found, "CallToolResult")


@covers("M-GET-2", "T-14")
def test_a_tools_result_has_content_even_where_its_server_gave_none() -> None:
    found = read(nested_result('{"structuredContent":{"a":1}}'))
    assert found == {"resultType": "complete", "content": [], "structuredContent": {"a": 1}}
    check(found, "CallToolResult")
    answered = read(convert_response(1, "tools/call", result('{"structuredContent":{"a":1}}'), L, INFO))
    assert answered["result"] == {**found, "_meta": TOLD}
    assert "content" not in read(complete_result("{}", "prompts/get", None))


@pytest.mark.parametrize(
    "text",
    [
        '{"content":["é"]}',
        "{}",
        f'{{"x":[1],"_meta":{{"{RELATED}":{{}},"io.modelcontextprotocol/x":1,"é":2}}}}',
        f'{{"resultType":"x","content":[],"cacheScope":1,"_meta":{{"{RELATED}":1}}}}',
    ],
)
def test_a_large_result_is_completed_as_a_small_one(text: str) -> None:
    assert to_string(nested_large_result(LargeJson(text.encode()))) == nested_result(text)


@pytest.mark.parametrize("text", ["[]", "null", '"a"', "7", '{"task":{"taskId":"t"}}'])
def test_what_is_no_result_is_the_servers_fault(text: str) -> None:
    found = read(convert_response("h", "tools/call", result(text), L, INFO))
    assert found["id"] == "h"
    assert found["error"]["code"] == -32603
    assert found["error"]["data"] == {"origin": "upstream", "reason": "malformed", "dispatched": True}
    check(found, "JSONRPCErrorResponse")


@pytest.mark.parametrize(
    ("method", "text"), [("tools/call", '{"content":[],"task":1}'), ("prompts/get", '{"messages":[],"task":1}')]
)
def test_a_task_beside_a_result_is_nothing_to_anybody(method: str, text: str) -> None:
    assert read(convert_response("h", method, result(text), L, INFO))["result"]["task"] == 1


@pytest.mark.parametrize("era", [L, M])
def test_a_result_in_front_of_its_id_is_told_in_its_place(era: Era) -> None:
    text = '{"result":{"messages":[]},"jsonrpc":"2.0","id": 42 }'
    told = f'{{"resultType":"complete","_meta":{{"{INFO_KEY}":{INFO}}},"messages":[]}}'
    assert (
        convert_response("h", "prompts/get", response(text), era, INFO)
        == f'{{"result":{told},"jsonrpc":"2.0","id": "h" }}'
    )


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "prompts/get"])
@given(
    names=st.lists(
        st.sampled_from(["content", "resultType", "_meta", "ttlMs", "cacheScope", "task", "isError", "x"]), unique=True
    )
)
def test_a_result_is_completed_the_same_whether_its_id_stands_in_front_or_behind(
    names: list[str], method: str, era: Era
) -> None:
    values = {"content": [], "resultType": "complete", "_meta": {"a/b": 1}, "ttlMs": 5, "cacheScope": "public"}
    given = json.dumps({name: values.get(name, False) for name in names})

    def converted(text: str) -> str:
        found = parse(convert_response("h", method, response(text), era, INFO).encode(), max_depth=32)
        assert isinstance(found, Response)
        place = found.result or found.error
        assert place is not None
        return found.text[place.start : place.end]

    in_front = converted(f'{{"jsonrpc":"2.0","id":1,"result":{given}}}')
    assert in_front == converted(f'{{"jsonrpc":"2.0","result":{given},"id":1}}')


def test_an_error_that_means_the_same_stays_to_the_byte() -> None:
    text = '{"jsonrpc":"2.0","error": { "code":-32601 ,"message":"\\u00e9"} ,"id": 42}'
    assert convert_response("h", "prompts/get", response(text), L, INFO) == text.replace("42", '"h"')


@covers("B-CONV-8", "T-24")
@pytest.mark.parametrize(("code", "told"), [(-32002, -32602), (-32020, -32603), (-32042, -32603), (-32099, -32603)])
def test_a_code_of_the_other_era_is_never_told(code: int, told: int) -> None:
    text = f'{{"jsonrpc":"2.0","id":42,"error":{{"code":{code},"message":"no"}}}}'
    error = f'{{"code":{code},"message":"é"}}'
    assert to_string(convert_large_error(LargeJson(error.encode()))) == convert_error(error) != error
    found = read(convert_response(7, "resources/read", response(text), L, INFO))
    assert (found["id"], found["error"]["code"], found["error"]["message"]) == (7, told, "no")
    check(found, "JSONRPCErrorResponse")


@pytest.mark.parametrize("code", [-32100, -32019, -32000, -32700, -32603, -32001, -1, 0, 429, 10**30])
def test_any_other_code_stays(code: int) -> None:
    error = f'{{ "message":"m" , "code" : {code} }}'
    assert convert_error(error) == error
    assert to_string(convert_large_error(LargeJson(error.encode()))) == error


# --- servers of this era -------------------------------------------------------------------------------------------

OURS = f'"_meta":{{"{INFO_KEY}":{INFO}}}'
# The method, what the server says, what its host is told.
OWN: dict[str, tuple[str, str, str]] = {
    "a result": (
        "tools/call",
        f'{{ "content" : [{BLOCK}] ,"resultType":"complete","structuredContent":[1e999]}}',
        f'{{{OURS}, "content" : [{BLOCK}] ,"resultType":"complete","structuredContent":[1e999]}}',
    ),
    "a result without its type": (
        "prompts/get",
        f'{{"messages":[],"_meta":{{"{INFO_KEY}":{{"name":"o"}},"traceparent":"00"}}}}',
        f'{{"resultType":"complete","messages":[],"_meta":{{"{INFO_KEY}":{INFO},"traceparent":"00"}}}}',
    ),
    "a time to keep it for": (
        "tools/list",
        '{"resultType":"complete","tools":[],"ttlMs": 5000 ,"cacheScope": "public" }',
        f'{{{OURS},"resultType":"complete","tools":[],"ttlMs": 5000 ,"cacheScope": "private" }}',
    ),
    "nothing of how long": (
        "resources/read",
        '{"resultType":"complete","contents":[]}',
        f'{{"ttlMs":0,"cacheScope":"private",{OURS},"resultType":"complete","contents":[]}}',
    ),
    "a scope where none belongs": (
        "completion/complete",
        '{"resultType":"complete","cacheScope":"public","completion":{"values":[]}}',
        f'{{{OURS},"resultType":"complete","cacheScope":"private","completion":{{"values":[]}}}}',
    ),
    "other keys of the protocol": (
        "prompts/get",
        f'{{"resultType":"complete","messages":[],"_meta":{{"{P}x":1,"{RELATED}":{{"taskId":"t"}}}}}}',
        f'{{"resultType":"complete","messages":[],"_meta":{{"{INFO_KEY}":{INFO},"{P}x":1}}}}',
    ),
    "no content": (
        "tools/call",
        '{"resultType":"complete"}',
        f'{{"content":[],{OURS},"resultType":"complete"}}',
    ),
}


@covers("V-META-3", "V-META-7", "V-CACHE-1", "V-META-9")
@pytest.mark.parametrize(("method", "text", "told"), OWN.values(), ids=OWN)
def test_what_a_server_of_this_era_says_stays(method: str, text: str, told: str) -> None:
    whole = convert_response("h", method, result(text), M, INFO)
    assert whole == f'{{"jsonrpc":"2.0","id":"h","result":{told}}}'
    assert complete_result(text, method, INFO, M) == told
    if "1e999" not in text:
        check(whole, "JSONRPCResultResponse")
    check(json.loads(whole)["result"], RESULTS[method][0])


@pytest.mark.parametrize("ttl", ["-1", "1.5", "true", '"1"', "null", "{}"])
def test_a_time_that_is_none_is_none(ttl: str) -> None:
    found = read(complete_result(f'{{"resultType":"complete","tools":[],"ttlMs":{ttl}}}', "tools/list", INFO, M))
    assert (found["ttlMs"], found["cacheScope"]) == (0, "private")
    check(found, "ListToolsResult")


@covers("V-META-7")
@pytest.mark.parametrize(
    "text", ["[]", "null", '{"resultType":"task","taskId":"t"}', '{"resultType":"other","content":[]}', ROUND]
)
def test_what_is_no_complete_result_of_this_era_is_the_servers_fault(text: str) -> None:
    # A round goes another way, or it is one without sense.
    assert not is_complete(result(text), "tools/call", M)
    found = read(convert_response("h", "tools/call", result(text), M, INFO))
    assert found["error"]["data"] == {"origin": "upstream", "reason": "malformed", "dispatched": True}
    check(found, "JSONRPCErrorResponse")


@covers("B-CONV-8", "T-24")
@pytest.mark.parametrize(
    ("code", "told"),
    [(-32002, -32602), (-32020, -32603), (-32022, -32603), (-32023, -32603), (-32042, -32603), (-32099, -32603)],
)
def test_a_code_of_a_server_of_this_era_that_is_not_for_its_host_is_not_told(code: int, told: int) -> None:
    text = f'{{"jsonrpc":"2.0","id":42,"error":{{"code":{code},"message":"no","data":{{"a":1}}}}}}'
    found = read(convert_response(7, "tools/call", response(text), M, INFO))
    named = {} if told == -32602 else {"upstreamCode": code}
    assert found["error"] == {"code": told, "message": "no", "data": {"a": 1, **named}}
    check(found, "JSONRPCErrorResponse")


@covers("B-CONV-8")
def test_what_a_server_of_this_era_misses_is_told_for_no_server_of_the_other() -> None:
    error = '{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}'
    assert convert_error(error, M) == error
    assert read(convert_error(error, L))["code"] == read(convert_error(error))["code"] == -32603


@pytest.mark.parametrize("code", [-32602, -32021, -32019, -32100, -32000, 429])
def test_any_other_error_of_a_server_of_this_era_stays_to_the_byte(code: int) -> None:
    text = f'{{ "jsonrpc":"2.0","id":42 ,"error":{{"code":{code},"message":"\\u00e9","data":[1e999]}}}}'
    assert convert_response("h", "tools/call", response(text), M, INFO) == text.replace(":42 ", ':"h" ')
    assert not is_complete(response(text), "tools/call", M)


# --- methods of carried extensions -----------------------------------------------------------------------------------

THING = Extension(
    methods=frozenset({"thing/do", "thing/list"}),
    result_types=frozenset({"partial"}),
    cacheable=frozenset({"thing/list"}),
    codes=frozenset({-32023, -32020}),
)
THINGS: dict[str, tuple[str, Era, str, str]] = {
    "a result of the other era": (
        "thing/do",
        L,
        '{ "a" : 1e999 }',
        f'{{"resultType":"complete",{OURS}, "a" : 1e999 }}',
    ),
    "one that has a word of that name in that era": (
        "thing/do",
        L,
        '{"resultType":"strange"}',
        f'{{{OURS},"resultType":"complete"}}',
    ),
    "one that may be kept": (
        "thing/list",
        L,
        '{"things":[]}',
        f'{{"resultType":"complete","ttlMs":0,"cacheScope":"private",{OURS},"things":[]}}',
    ),
    "one that says what it is in that era": (
        "thing/do",
        L,
        '{"resultType":"partial"}',
        f'{{{OURS},"resultType":"partial"}}',
    ),
    "a result of this era": (
        "thing/do",
        M,
        '{"resultType":"complete","a":1}',
        f'{{{OURS},"resultType":"complete","a":1}}',
    ),
    "one without its type": ("thing/do", M, '{"a":1}', f'{{"resultType":"complete",{OURS},"a":1}}'),
    "one of a kind of its own": ("thing/do", M, '{"resultType":"partial"}', f'{{{OURS},"resultType":"partial"}}'),
    "how long it may be kept": (
        "thing/list",
        M,
        '{"resultType":"complete","ttlMs":5,"cacheScope":"public"}',
        f'{{{OURS},"resultType":"complete","ttlMs":5,"cacheScope":"private"}}',
    ),
    "nothing of how long": (
        "thing/list",
        M,
        '{"resultType":"complete"}',
        f'{{"ttlMs":0,"cacheScope":"private",{OURS},"resultType":"complete"}}',
    ),
    "the name of a stream": (
        "thing/do",
        M,
        f'{{"resultType":"complete","_meta":{{"{P}subscriptionId":42}}}}',
        f'{{"resultType":"complete","_meta":{{"{INFO_KEY}":{INFO},"{P}subscriptionId":"h"}}}}',
    ),
    "metadata": (
        "thing/do",
        M,
        f'{{"resultType":"complete","_meta":{{"{P}x":1,"a/b":2,"{RELATED}":{{}},"{INFO_KEY}":{{"name":"o"}}}}}}',
        f'{{"resultType":"complete","_meta":{{"{P}x":1,"a/b":2,"{INFO_KEY}":{INFO}}}}}',
    ),
}


@covers("V-META-6", "V-META-7", "V-CACHE-1")
@pytest.mark.parametrize(("method", "era", "text", "told"), THINGS.values(), ids=THINGS)
def test_a_result_of_an_extension_is_one_of_this_era(method: str, era: Era, text: str, told: str) -> None:
    # X-EXT-21.
    assert (
        convert_response("h", method, result(text), era, INFO, THING) == f'{{"jsonrpc":"2.0","id":"h","result":{told}}}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "null",
        '{"resultType":"task"}',
        '{"resultType":"other"}',
        '{"resultType":null}',
        '{"resultType":["partial"]}',
        '{"resultType":{"partial":1}}',
        ROUND,
    ],
)
def test_what_is_no_result_of_the_extension_is_the_servers_fault(text: str) -> None:
    # X-EXT-21, X-EXT-22.
    found = read(convert_response("h", "thing/do", result(text), M, INFO, THING))
    assert found["error"]["data"] == {"origin": "upstream", "reason": "malformed", "dispatched": True}


def test_a_result_of_the_extension_that_is_none_is_the_servers_fault_in_either_era() -> None:
    for era in Era:
        assert read(convert_response("h", "thing/do", result("[]"), era, INFO, THING))["error"]["code"] == -32603


@pytest.mark.parametrize("era", [L, M])
@pytest.mark.parametrize("code", [-32023, -32020])
def test_a_code_of_the_extension_stays(code: int, era: Era) -> None:
    # X-EXT-31.
    text = f'{{"jsonrpc":"2.0","error": {{ "code":{code} ,"message":"\\u00e9"}} ,"id": 42}}'
    assert convert_response("h", "thing/do", response(text), era, INFO, THING) == text.replace("42", '"h"')


@pytest.mark.parametrize(("code", "told"), [(-32024, -32603), (-32002, -32602), (-32042, -32603)])
def test_any_other_code_of_a_method_of_the_extension_is_as_it_is_elsewhere(code: int, told: int) -> None:
    text = f'{{"jsonrpc":"2.0","id":42,"error":{{"code":{code},"message":"no"}}}}'
    for era in Era:
        assert read(convert_response("h", "thing/do", response(text), era, INFO, THING))["error"]["code"] == told


# --- servers of either era -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", [L, M])
def test_a_result_is_complete_in_either_era(era: Era) -> None:
    assert is_complete(result('{"content":[]}'), "tools/call", era)
    assert is_complete(result('{"tools":[]}'), "tools/list", era)


@pytest.mark.parametrize(
    "text",
    [
        '{"content":[]}',
        '{ "content" : [{"type":"text","text":"x"}], "isError":true}',
        '{"content":[],"resultType":"complete"}',
        '{"resultType" : "complete" ,"content":[]}',
        r'{"resultType":"\u0063omplete","content":[]}',
        '{"resultType":"partial","content":[]}',
        '{"resultType":"complete"}',
        '{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/logLevel":"info","x":1}}',
        r'{"content":[],"_m\u0065ta":{"a":1}}',
        '{"isError":false,"content":[]}',
        '{"content":[],"cacheScope":"public"}',
        '{"content":[],"structuredContent":{"content":1}}',
    ],
)
def test_a_result_inside_of_another_is_the_same_whether_it_has_to_be_read_or_not(text: str) -> None:
    # A large one is always read.
    assert nested_result(text) == to_string(nested_large_result(LargeJson(text.encode())))


def test_a_large_result_of_a_call_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read_ones = list[str]()
    monkeypatch.setattr(results, "members", lambda text, _: read_ones.append(text))
    text = f'{{"content":[],"structuredContent":{{"a":[{"1," * 1000}1]}}}}'
    assert nested_result(text) == f'{{"resultType":"complete",{text[1:]}'
    assert read_ones == []


# --- pages of tools ---------------------------------------------------------------------------------------------------


ODD = r'"x":{"a":1e999,"a":[ 1234567890123456789012 ],"execution":{"taskSupport":"required"}},"é":"\u00e9\ud800"'
AMENDED: dict[str, tuple[str, str]] = {
    "no execution": ('{"name":"t"}', '{"name":"t"}'),
    "an execution": ('{"name":"t","execution":{"taskSupport":"required"}}', '{"name":"t"}'),
    "a first one": ('{"execution":{},"name":"t"}', '{"name":"t"}'),
    "one alone": ('{"execution":null}', "{}"),
    "odd bytes": (f'{{\n "name" : "t","execution":[] , {ODD} }}', f'{{\n "name" : "t" , {ODD} }}'),
    "no object": ("7", "7"),
}


def page_of(*tools: str) -> str:
    return f'{{ "tools" : [{" , ".join(tools)}],"nextCursor":"\\u0063" }}'


@covers("B-CONV-2")
@pytest.mark.parametrize(("listed", "told"), AMENDED.values(), ids=AMENDED)
def test_execution_goes_and_nothing_else(listed: str, told: str) -> None:
    neighbour = '{"name":"n","execution":{"a":1}, "z":0}'
    page = page_of(listed, neighbour, listed)
    assert convert_tools(page) == without_execution(page) == page_of(told, '{"name":"n", "z":0}', told)


@pytest.mark.parametrize(("length", "is_kept"), [(64 * 1024, True), (64 * 1024 + 1, False)])
def test_a_page_is_kept_amended_up_to_a_length(length: int, is_kept: bool) -> None:
    start = '{"tools":[{"execution":{},"name":"'
    page = f'{start}{"x" * (length - len(start) - 4)}"}}]}}'
    assert len(page) == length
    assert convert_tools(page) == page.replace('"execution":{},', "")
    assert (convert_tools(page) is convert_tools(page)) is is_kept


@pytest.mark.parametrize(
    "page",
    ["{}", '{"tools":null}', '{"tools":{"execution":1}}', '{"tools":[]}', page_of('{"a":1,"a":2,"execution":1}')],
)
def test_any_other_page_stays_as_it_is(page: str) -> None:
    assert convert_tools(page) == page
