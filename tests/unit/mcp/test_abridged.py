"""A large value is as valid as the whole of it, and differs from it in nothing but the length of long strings."""

import json
from typing import Any

import orjson
import pytest

from taskgate.mcp.abridged import KEPT, LONG, load

LONGER = "eHk9" * (LONG // 4 + 1)


def loaded(text: str) -> Any:
    return load(f"before{text}after", len("before"), len("before") + len(text))


def whole(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize(
    "value",
    [
        {},
        [1, "two", {"three": [None, True]}],
        {"content": [{"type": "text", "text": "short"}], "isError": True},
        {"escaped": 'a "quote" and \\', "after": LONGER},
        {"text": LONGER + "\n"},
        {"text": LONGER + "ä"},
        {"many": ["x"] * 100, "after": LONGER},
    ],
    ids=["empty", "mixed", "short", "after an escape", "escape in it", "not ASCII", "after many"],
)
def test_a_value_without_a_long_plain_string_near_its_start_is_read_whole(value: object) -> None:
    assert loaded(whole(value)) == value


def test_a_long_string_is_cut_and_nothing_else() -> None:
    value = {"type": "image", "data": LONGER, "more": [LONGER, {"mimeType": "image/png"}], "n": 1}
    cut = LONGER[:KEPT]
    assert loaded(whole(value)) == {"type": "image", "data": cut, "more": [cut, {"mimeType": "image/png"}], "n": 1}


@pytest.mark.parametrize(
    "text",
    [
        f'{{"a":"{LONGER}\n"}}',
        f'{{"a":"{LONGER}\x00"}}',
        f'{{"a":"{LONGER}\\x"}}',
        f'{{"a":"{LONGER}',
        f'{{"a":"{LONGER}"',
        f'{{"a":"{LONGER}" "b":1}}',
        f'{{"a":"{LONGER}"b"}}',
        f'{{"a":{LONGER}}}',
        f'{{"a":"b"{LONGER}}}',
        f'{{"a":\\"{LONGER}"}}',
        f'{{"a":"{LONGER}",}}',
        f'["{LONGER}"]]',
    ],
)
def test_what_is_no_json_is_refused_however_long_its_strings_are(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(text)
    with pytest.raises(ValueError):
        loaded(text)
