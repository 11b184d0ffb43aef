"""Responses of modern servers have the legacy form, and nothing else changes."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.counted_calls import counted_calls
from helpers.json_texts import objects, texts, written
from requirements import covers
from taskgate.domain.versions import LEGACY, Revision
from taskgate.errors import DownstreamError
from taskgate.jsontext.edits import splice
from taskgate.jsontext.large import LargeJson, to_string
from taskgate.jsontext.spans import members
from taskgate.protocol.extensions import Extension
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.results import LONG as LONG_FROM
from taskgate.protocol.legacy.results import (
    MAX_BLOCKS,
    EraCrossing,
    convert_content,
    convert_error,
    convert_large_error,
    convert_messages,
    convert_response,
    is_complete,
    may_be_modern,
    outcome_edit,
)
from taskgate.protocol.messages import Response
from taskgate.protocol.meta import edits_for
from unit.protocol.legacy.judge import EVERY_HOST, check, read

# --- results and errors -----------------------------------------------------------------------------------------------


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
    whole = convert_response("h", response(f'"result": {text}'), EraCrossing(method, host))
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
    found = read(
        convert_response(1, response(f'"result":{{"resultType":"complete",{result}}}'), EraCrossing(method, host))
    )
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
    found = read(convert_response("h", given, EraCrossing("tools/call", NEWEST)))
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
    assert convert_error(error, method) == told
    whole = convert_response("h", response(f'"error":{error}'), EraCrossing(method, NEWEST))
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
    assert convert_error(error, method) == error
    assert to_string(convert_large_error(LargeJson(error.encode()))) == error
    whole = convert_response("h", response(f'"error":{error}'), EraCrossing(method, NEWEST))
    assert whole == f'{{"jsonrpc":"2.0","id":"h" ,"error":{error}}}'


def test_a_large_error_of_a_call_has_a_code_that_means_the_same_here() -> None:
    error = '{"code":-32021,"message":"é"}'
    assert to_string(convert_large_error(LargeJson(error.encode()))) == convert_error(error, "tools/call") != error


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
    assert convert_response("h", given, OF_THING) == f'{{"jsonrpc":"2.0","id":"h" ,"result":{told}}}'


@pytest.mark.parametrize("kind", ['"other"', '"task"', '"input_required"', "null", "7", '["partial"]', '{"partial":1}'])
def test_a_result_of_a_kind_that_its_extension_does_not_have_is_the_servers_fault(kind: str) -> None:
    # X-EXT-22.
    given = response(f'"result":{{"resultType":{kind}}}')
    assert not is_complete(given, THING)
    assert read(convert_response("h", given, OF_THING))["error"]["data"]["reason"] == "malformed"


def test_a_kind_of_an_extension_is_none_of_any_other_method() -> None:
    given = response('"result":{"resultType":"partial"}')
    assert is_complete(given, THING)
    assert not is_complete(given)
    assert (
        read(convert_response("h", given, EraCrossing("tools/list", NEWEST)))["error"]["data"]["reason"] == "malformed"
    )


@pytest.mark.parametrize(("code", "told"), [(-32023, -32023), (-32021, -32021), (-32022, -32603), (-32099, -32099)])
def test_codes_of_an_extension_stay_for_its_methods(code: int, told: int) -> None:
    # X-EXT-31.
    error = f'{{"code":{code},"message":"\\u00e9"}}'
    assert read(convert_error(error, "thing/do", THING))["code"] == told
    found = read(convert_response("h", response(f'"error":{error}'), OF_THING))
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
    return splice(result, edits_for(found, 0, outcome_edit(found, lambda at: result[at.start : at.end])))


@pytest.mark.parametrize(("result", "told"), OUTCOMES.values(), ids=OUTCOMES)
def test_an_outcome_loses_what_this_era_does_not_know(result: str, told: str) -> None:
    assert fitted(result) == told
    assert may_be_modern(result)
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


# --- any result -------------------------------------------------------------------------------------------------------


KEYS = ["resultType", "ttlMs", "cacheScope", "content", "structuredContent", "messages", "isError", "_meta", "x"]
values = st.one_of(texts, st.sampled_from(['"complete"', "[]", "{}", "7", '[{"type":"audio"}]', "null"]))
metas = st.one_of(values, st.sampled_from([f'{{"{P}serverInfo":{{}},"x":1.50}}', f'{{ "{P}related-task":{{}} }}']))


@st.composite
def results(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(KEYS), unique=True))
    members = [f'"{name}": {draw(metas if name == "_meta" else values)} ' for name in names]
    return f"{{ {','.join(members)} }}"


@given(
    st.one_of(results(), objects(texts, repeats=False)),
    st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
    st.sampled_from(LEGACY),
)
def test_a_result_keeps_every_value_but_those_of_the_other_era(result: str, method: str, host: Revision) -> None:
    try:
        response = parse(f'{{"jsonrpc":"2.0","id":1,"result":{result}}}'.encode(), max_depth=256)
    except DownstreamError:
        return
    assert isinstance(response, Response)
    told = dict(written(convert_response("h", response, EraCrossing(method, host))))
    said = dict(written(result))
    if said.get("resultType", "complete") != "complete":
        assert dict(told["error"])["code"] == -32603
        return
    found = dict(told["result"])
    own = {"resultType", "ttlMs", "cacheScope", "_meta", "content", "messages", "structuredContent"}
    assert {key: value for key, value in found.items() if key not in own} == {
        key: value for key, value in said.items() if key not in own
    }
    assert found.keys().isdisjoint({"resultType", "ttlMs", "cacheScope"})
    assert ("content" in found) is (method == "tools/call" or "content" in said)
    assert all(not key.startswith(P) for key, _ in found.get("_meta", []))


# --- content ----------------------------------------------------------------------------------------------------------


TEXT = '{ "type":"text", "text":"\\u00e9\\ud800" }'
LINK = '{"type":"resource_link","name":"n","uri":"a:b"}'
SOUND = '{"type":"audio","data":"AA==","mimeType":"audio/wav"}'
LINK_WORDS = {"type": "text", "text": "n: a:b"}
SOUND_WORDS = {"type": "text", "text": "[audio (audio/wav), which this protocol version cannot carry]"}
OLDEST, OLD, NEWER, NEWEST = LEGACY

# --- blocks --------------------------------------------------------------------------------------------------------

KNOWN: dict[Revision, tuple[dict[str, str] | None, dict[str, str] | None]] = {
    OLDEST: (LINK_WORDS, SOUND_WORDS),
    OLD: (LINK_WORDS, None),
    NEWER: (None, None),
    NEWEST: (None, None),
}


@covers("B-CONV-3")
@EVERY_HOST
def test_a_block_that_came_after_a_hosts_revision_is_put_into_words(host: Revision) -> None:
    link, sound = KNOWN[host]
    content = f"[{TEXT} , {LINK}, {SOUND} ]"
    told = convert_content(content, host, None)
    if link is None:
        assert told == content
    assert told.startswith(f"[{TEXT} , ")
    assert told.endswith(" ]")
    assert read(told)[1:] == [link or read(LINK), sound or read(SOUND)]
    check({"content": read(told)}, "CallToolResult", host)


LONG = "x" * 9_000
WORDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a title before a name": ('"title":"T","name":"n","uri":"a:b"', "T: a:b", {}),
    "a description": ('"name":"n","uri":"a:b","description":"what it is"', "n: a:b\nwhat it is", {}),
    "annotations": (
        '"name":"n","uri":"a:b","annotations":{"priority":1.0}',
        "n: a:b",
        {"annotations": {"priority": 1.0}},
    ),
    "what it lacks": ('"uri":7,"name":"n"', "n: ", {}),
    "long texts": (f'"name":"n","uri":"data:{LONG}","description":"{LONG}"', f"n: data:{LONG}\n{LONG}", {}),
    "half a pair": (r'"name":"\ud800","uri":"a:b"', "\ud800: a:b", {}),
}


@pytest.mark.parametrize(("block", "words", "more"), WORDS.values(), ids=WORDS)
def test_the_words_for_a_link_are_its_own(block: str, words: str, more: dict[str, Any]) -> None:
    told = convert_content(f'[{{"type":"resource_link",{block}}}]', OLD, None)
    told.encode()
    assert read(told) == [{"type": "text", "text": words, **more}]
    check({"content": read(told)}, "CallToolResult", OLD)


@pytest.mark.parametrize(
    "content", ["[]", "null", "{}", "[7]", f"[{TEXT},{TEXT}]", '[{"type":["audio"]}]', f'[{LINK},{{"a":1,"a":2}}]']
)
def test_any_other_content_stays(content: str) -> None:
    assert convert_content(content, OLDEST, None) == content


# --- structured content --------------------------------------------------------------------------------------------


def said(text: str) -> str:
    return f'{{"type":"text","text":{json.dumps(text)}}}'


ODD = r'["\u00e9\ud800", 1e999]'
TOLD: dict[str, tuple[str, str, str]] = {
    "beside nothing": ("[]", "[1, 2]", f"[{said('[1, 2]')}]"),
    "beside white space": ("[ ]", "7", f"[ {said('7')}]"),
    "beside other blocks": (f"[{TEXT} ]", "null", f"[{TEXT} ,{said('null')}]"),
    "beside another text": (f"[{said('[2,1]')}]", "[1,2]", f"[{said('[2,1]')},{said('[1,2]')}]"),
    "beside what only looks the same": (f"[{said('[true]')}]", "[1]", f"[{said('[true]')},{said('[1]')}]"),
    "beside a text that is deep": (f"[{said('[' * 100_000)}]", "1", f"[{said('[' * 100_000)},{said('1')}]"),
    "instead of what is no content": ('"a"', "1", f"[{said('1')}]"),
    "as it is written": ("[]", ODD, f"[{said(ODD)}]"),
}


@covers("B-CONV-3")
@EVERY_HOST
@pytest.mark.parametrize(("content", "unfit", "told"), TOLD.values(), ids=TOLD)
def test_what_a_host_could_not_read_is_told_as_a_text(content: str, unfit: str, told: str, host: Revision) -> None:
    assert convert_content(content, host, unfit) == told
    check({"content": read(told)}, "CallToolResult", host)


SAID: list[tuple[str, str]] = [
    ('[{"a": 1,"b":2}]', '[ {"b":2,"a":1} ]'),
    ("7", " 7 "),
    ('"caf\u00e9"', '"café"'),
    ('"café"', "café"),
    ("null", "null"),
]


@EVERY_HOST
@pytest.mark.parametrize(("unfit", "text"), SAID)
def test_what_a_text_says_already_is_not_told_again(unfit: str, text: str, host: Revision) -> None:
    content = f'[7,{{"type":"text"}},{{"text":7}},{said(text)}]'
    assert convert_content(content, host, unfit) == content


def test_what_cannot_be_compared_is_told() -> None:
    digits = "9" * 5_000
    assert convert_content(f"[{said('1')}]", NEWEST, digits) == f"[{said('1')},{said(digits)}]"
    assert convert_content(f"[{said('1')},{digits}]", NEWEST, "1") == f"[{said('1')},{digits},{said('1')}]"


NUMBERS = f"[{'1, ' * LONG_FROM}1]"
LONG_SAID: list[tuple[str, str]] = [
    (NUMBERS, NUMBERS.replace(" ", "\n  ")),
    (json.dumps("x" * LONG_FROM), "x" * LONG_FROM),
]


@pytest.mark.parametrize(("unfit", "text"), LONG_SAID, ids=["numbers", "a text"])
def test_a_long_text_that_says_it_already_may_differ_in_space(unfit: str, text: str) -> None:
    content = f'[7,{{"type":"text"}},{{"text":7}},{said(text)}]'
    assert convert_content(content, NEWEST, unfit) == content
    other = f"[{said(text + '2')}]"
    assert convert_content(other, NEWEST, unfit) == f"{other[:-1]},{said(unfit)}]"


@covers("T43")
def test_long_structured_content_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskgate.protocol.legacy.results.json.loads", lambda _: pytest.fail("read"))
    assert convert_content("[]", NEWEST, NUMBERS) == f"[{said(NUMBERS)}]"


# --- many blocks ---------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@covers("T43")
@pytest.mark.parametrize("amend", [convert_messages, lambda text, host: convert_content(text, host, None)])
def test_more_blocks_than_are_looked_at_stay_and_cost_no_more(
    amend: Callable[[str, Revision], str],
) -> None:
    counts = []
    for blocks in (2 * MAX_BLOCKS, 4 * MAX_BLOCKS):
        text = f"[{', '.join([LINK] * blocks)}]"
        with counted_calls() as calls:
            told = amend(text, OLDEST)
        assert told == text
        counts.append(calls.count)
    assert counts[0] == counts[1]


@pytest.mark.thorough
@covers("T43")
@pytest.mark.parametrize(
    "amend",
    [
        convert_messages,
        lambda text, host: convert_content(text, host, None),
        lambda text, _: convert_content(text, NEWEST, "[1]").removesuffix(f",{said('[1]')}]") + "]",
    ],
    ids=["messages", "blocks", "beside structured content"],
)
def test_blocks_with_more_members_than_are_looked_at_stay_and_cost_no_more(
    amend: Callable[[str, Revision], str],
) -> None:
    members = ",".join(f'"m\\u{number:04x}":1' for number in range(100))
    counts = []
    for blocks in (MAX_BLOCKS // 4, MAX_BLOCKS // 2):
        block = f'{{"type":"audio",{members}}}'
        text = f"[{', '.join([block] * blocks)}]"
        with counted_calls() as calls:
            told = amend(text, OLDEST)
        assert told == text
        counts.append(calls.count)
    assert counts[0] == counts[1]


def test_what_stands_beside_more_blocks_than_are_looked_at_is_told() -> None:
    content = f"[{', '.join(['{}'] * 40_000)}]"
    assert convert_content(content, NEWEST, "[1]") == f"{content[:-1]},{said('[1]')}]"


# --- prompts -------------------------------------------------------------------------------------------------------


def spoken(block: str) -> str:
    return f'{{"role":"user", "content": {block} }}'


@covers("B-CONV-10")
@EVERY_HOST
def test_the_messages_of_a_prompt_are_put_into_words_too(host: Revision) -> None:
    link, sound = KNOWN[host]
    messages = f"[ {spoken(TEXT)},{spoken(LINK)} ,{spoken(SOUND)}]"
    told = convert_messages(messages, host)
    if link is None:
        assert told == messages
    assert told.startswith(f'[ {spoken(TEXT)},{{"role":"user", "content": ')
    assert [each["content"] for each in read(told)][1:] == [link or read(LINK), sound or read(SOUND)]
    check({"messages": read(told)}, "GetPromptResult", host)


@pytest.mark.parametrize(
    "messages", ["[]", "null", "[7]", '[{"role":"user"}]', '[{"content":[]}]', f'[{spoken(LINK)},{{"a":1,"a":2}}]']
)
def test_any_other_messages_stay(messages: str) -> None:
    assert convert_messages(messages, OLDEST) == messages


def test_a_response_whose_id_comes_last_is_converted_like_others() -> None:
    message = parse(b'{"jsonrpc":"2.0","result":{"a":1,"resultType":"complete"},"id":12}', max_depth=64)
    assert isinstance(message, Response)
    converted = convert_response("mine", message, EraCrossing("tools/list", NEWEST))
    assert converted == '{"jsonrpc":"2.0","result":{"a":1},"id":"mine"}'
