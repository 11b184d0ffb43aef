"""What a host could not read is told in words, and all that it can read is the server's own text."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from helpers.counted_calls import counted_calls
from requirements import covers
from taskgate.domain.versions import LEGACY, Revision
from taskgate.protocol.legacy.content import LONG as LONG_FROM
from taskgate.protocol.legacy.content import MOST_BLOCKS, fitting_content, fitting_messages, knows_all_content
from unit.protocol.legacy.judge import EVERY_HOST, check, read

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
    told = fitting_content(content, host, None)
    if link is None:
        assert told == content
    assert told.startswith(f"[{TEXT} , ")
    assert told.endswith(" ]")
    assert knows_all_content(host) is (link is None and sound is None)
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
    told = fitting_content(f'[{{"type":"resource_link",{block}}}]', OLD, None)
    told.encode()
    assert read(told) == [{"type": "text", "text": words, **more}]
    check({"content": read(told)}, "CallToolResult", OLD)


@pytest.mark.parametrize(
    "content", ["[]", "null", "{}", "[7]", f"[{TEXT},{TEXT}]", '[{"type":["audio"]}]', f'[{LINK},{{"a":1,"a":2}}]']
)
def test_any_other_content_stays(content: str) -> None:
    assert fitting_content(content, OLDEST, None) == content


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
    assert fitting_content(content, host, unfit) == told
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
    assert fitting_content(content, host, unfit) == content


def test_what_cannot_be_compared_is_told() -> None:
    digits = "9" * 5_000
    assert fitting_content(f"[{said('1')}]", NEWEST, digits) == f"[{said('1')},{said(digits)}]"
    assert fitting_content(f"[{said('1')},{digits}]", NEWEST, "1") == f"[{said('1')},{digits},{said('1')}]"


NUMBERS = f"[{'1, ' * LONG_FROM}1]"
LONG_SAID: list[tuple[str, str]] = [
    (NUMBERS, NUMBERS.replace(" ", "\n  ")),
    (json.dumps("x" * LONG_FROM), "x" * LONG_FROM),
]


@pytest.mark.parametrize(("unfit", "text"), LONG_SAID, ids=["numbers", "a text"])
def test_a_long_text_that_says_it_already_may_differ_in_space(unfit: str, text: str) -> None:
    content = f'[7,{{"type":"text"}},{{"text":7}},{said(text)}]'
    assert fitting_content(content, NEWEST, unfit) == content
    other = f"[{said(text + '2')}]"
    assert fitting_content(other, NEWEST, unfit) == f"{other[:-1]},{said(unfit)}]"


@covers("T43")
def test_long_structured_content_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskgate.protocol.legacy.content.json.loads", lambda _: pytest.fail("read"))
    assert fitting_content("[]", NEWEST, NUMBERS) == f"[{said(NUMBERS)}]"


# --- many blocks ---------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@covers("T43")
@pytest.mark.parametrize("amend", [fitting_messages, lambda text, host: fitting_content(text, host, None)])
def test_more_blocks_than_are_looked_at_stay_and_cost_no_more(
    amend: Callable[[str, Revision], str],
) -> None:
    counts = []
    for blocks in (2 * MOST_BLOCKS, 4 * MOST_BLOCKS):
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
        fitting_messages,
        lambda text, host: fitting_content(text, host, None),
        lambda text, _: fitting_content(text, NEWEST, "[1]").removesuffix(f",{said('[1]')}]") + "]",
    ],
    ids=["messages", "blocks", "beside structured content"],
)
def test_blocks_with_more_members_than_are_looked_at_stay_and_cost_no_more(
    amend: Callable[[str, Revision], str],
) -> None:
    members = ",".join(f'"m\\u{number:04x}":1' for number in range(100))
    counts = []
    for blocks in (MOST_BLOCKS // 4, MOST_BLOCKS // 2):
        block = f'{{"type":"audio",{members}}}'
        text = f"[{', '.join([block] * blocks)}]"
        with counted_calls() as calls:
            told = amend(text, OLDEST)
        assert told == text
        counts.append(calls.count)
    assert counts[0] == counts[1]


def test_what_stands_beside_more_blocks_than_are_looked_at_is_told() -> None:
    content = f"[{', '.join(['{}'] * 40_000)}]"
    assert fitting_content(content, NEWEST, "[1]") == f"{content[:-1]},{said('[1]')}]"


# --- prompts -------------------------------------------------------------------------------------------------------


def spoken(block: str) -> str:
    return f'{{"role":"user", "content": {block} }}'


@covers("B-CONV-10")
@EVERY_HOST
def test_the_messages_of_a_prompt_are_put_into_words_too(host: Revision) -> None:
    link, sound = KNOWN[host]
    messages = f"[ {spoken(TEXT)},{spoken(LINK)} ,{spoken(SOUND)}]"
    told = fitting_messages(messages, host)
    if link is None:
        assert told == messages
    assert told.startswith(f'[ {spoken(TEXT)},{{"role":"user", "content": ')
    assert [each["content"] for each in read(told)][1:] == [link or read(LINK), sound or read(SOUND)]
    check({"messages": read(told)}, "GetPromptResult", host)


@pytest.mark.parametrize(
    "messages", ["[]", "null", "[7]", '[{"role":"user"}]', '[{"content":[]}]', f'[{spoken(LINK)},{{"a":1,"a":2}}]']
)
def test_any_other_messages_stay(messages: str) -> None:
    assert fitting_messages(messages, OLDEST) == messages
