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
    may_be_modern,
    outcome_edit,
)
from taskgate.protocol.messages import Response
from taskgate.protocol.meta import edits_for
from unit.protocol.legacy.judge import EVERY_HOST, check, read

# --- results and errors -----------------------------------------------------------------------------------------------


P = "io.modelcontextprotocol/"
INFO = f'"{P}serverInfo":{{"name":"o","version":"1"}}'
NEWEST = Revision.R2025_11_25


def response(tail: str) -> Response:
    message = parse(f'{{"jsonrpc":"2.0","id":42 ,{tail}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


# --- errors --------------------------------------------------------------------------------------------------------

READ = "resources/read"


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
OLDEST, OLD, NEWER, NEWEST = LEGACY

# --- blocks --------------------------------------------------------------------------------------------------------


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
