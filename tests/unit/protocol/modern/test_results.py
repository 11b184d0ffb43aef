"""Responses of servers of both eras have the modern form, and nothing else changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.domain.versions import Era
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Response
from taskgate.protocol.modern import results
from taskgate.protocol.modern.results import (
    convert_error,
    convert_large_error,
    convert_response,
    convert_tools,
    nested_large_result,
    nested_result,
)
from taskgate.protocol.vocabulary import MODERN_RELAYED
from unit.protocol.modern.judge import INFO, RELATED, check, read

# --- results and errors -----------------------------------------------------------------------------------------------


L, M = Era.LEGACY, Era.MODERN
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


def test_every_method_is_tried() -> None:
    assert RESULTS.keys() == MODERN_RELAYED | {"tools/call"}


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


# --- servers of either era -------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("length", "is_kept"), [(64 * 1024, True), (64 * 1024 + 1, False)])
def test_a_page_is_kept_amended_up_to_a_length(length: int, is_kept: bool) -> None:
    start = '{"tools":[{"execution":{},"name":"'
    page = f'{start}{"x" * (length - len(start) - 4)}"}}]}}'
    assert len(page) == length
    assert convert_tools(page) == page.replace('"execution":{},', "")
    assert (convert_tools(page) is convert_tools(page)) is is_kept
