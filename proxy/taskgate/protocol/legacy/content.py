"""Content that a host of this era could not read, put into words (B-CONV-3). Pure.

Where something repeats a key all is left as it is: it would be one thing to one reader and another to the next. So is
what has more blocks than `MOST_BLOCKS`: to look at each would hold all other calls.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from taskgate.domain.versions import Revision
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import Edits, splice
from taskgate.jsontext.spans import Member, Members, RawJson, elements, skip_space
from taskgate.protocol.messages import value_of

_UNKNOWN: Final = {
    Revision.R2024_11_05: ("audio", "resource_link"),
    Revision.R2025_03_26: ("resource_link",),
}
"""The kinds of blocks that came after a revision; the newest two know all that servers send."""


def knows_all_content(host: Revision) -> bool:
    """Whether a host of that revision can read whatever servers send."""
    return host not in _UNKNOWN


def fitting_content(content: RawJson, host: Revision, unfit: RawJson | None) -> RawJson:
    """The content of a tool's result, with `unfit`, a structured one that the host could not read, told as a text.

    It is not told again where a text says it already.
    """
    kinds = _UNKNOWN.get(host, ())
    fitting = _in_words(content, kinds) if kinds else content
    return fitting if unfit is None or _says(fitting, unfit) else _with_text(fitting, unfit)


def fitting_messages(messages: RawJson, host: Revision) -> RawJson:
    """The messages of a prompt."""
    kinds = _UNKNOWN.get(host, ())
    if not kinds:
        return messages
    try:
        found = [(each.members or {}).get("content") for each in elements(messages, {"content": {}}, MOST_BLOCKS)]
    except MalformedMessage:
        return messages
    return splice(messages, _edits(messages, filter(None, found), kinds))


def _in_words(content: RawJson, kinds: tuple[str, ...]) -> RawJson:
    try:
        return splice(content, _edits(content, elements(content, {}, MOST_BLOCKS), kinds))
    except MalformedMessage:
        return content


def _edits(text: str, blocks: Iterable[Member], kinds: tuple[str, ...]) -> Edits:
    return [
        (block.start, block.end, _told(text, block.members))
        for block in blocks
        if block.members is not None and value_of(block.members, "type") in kinds
    ]


def _told(text: str, block: Members) -> RawJson:
    """A text for a block that the host does not know; its annotations are those of any block."""
    if value_of(block, "type") == "audio":
        words = f"[audio ({_string(block, 'mimeType')}), which this protocol version cannot carry]"
    else:
        line = f"{_string(block, 'title') or _string(block, 'name')}: {_string(block, 'uri')}"
        words = "\n".join(filter(None, [line, _string(block, "description")]))
    noted = block.get("annotations")
    return _text_block(words, "" if noted is None else f',"annotations":{text[noted.start : noted.end]}')


def _string(block: Members, name: str) -> str:
    value = value_of(block, name)
    return value if isinstance(value, str) else ""


def _with_text(content: RawJson, unfit: RawJson) -> RawJson:
    block = _text_block(unfit)
    if not content.startswith("["):
        return f"[{block}]"
    end = len(content) - 1
    comma = "" if skip_space(content, 1) == end else ","
    return f"{content[:end]}{comma}{block}]"


def _text_block(words: str, more: str = "") -> RawJson:
    # What a server wrote may hold half a surrogate pair, which stands in JSON only as an escape.
    return f'{{"type":"text","text":{json.dumps(words)}{more}}}'


def _says(content: RawJson, unfit: RawJson) -> bool:
    """Whether one of the texts is the structured content: written as JSON in any way, or the string that it is.

    Where both are long, only the space in it may differ: to read all of it would take seconds.
    """
    if len(content) + len(unfit) > LONG:
        return _says_at_length(content, unfit)
    wanted, listed = _canonical(unfit), _read(content)
    blocks = [block for block in (listed if isinstance(listed, list) else []) if isinstance(block, dict)]
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return wanted is not None and any(wanted in (json.dumps(text), _canonical(text)) for text in texts)


def _says_at_length(content: RawJson, unfit: RawJson) -> bool:
    try:
        blocks = elements(content, {}, MOST_BLOCKS)
    except MalformedMessage:
        return False
    texts = [_string(block.members, "text") for block in blocks if block.members is not None]
    if unfit.startswith('"'):
        return _read(unfit) in texts
    wanted = _without_space(unfit)
    return any(_without_space(text) == wanted for text in texts)


def _without_space(text: str) -> bytes:
    return text.encode(errors="surrogatepass").translate(None, b" \t\r\n")


def _canonical(text: str) -> str | None:
    """A JSON text in the one way that all its spellings share; None for what is none, or none that we read."""
    try:
        return json.dumps(_read(text), sort_keys=True)
    except (TypeError, RecursionError):
        return None


def _read(text: str) -> Any:
    """The value of a JSON text; something that is no JSON value where it cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _UNREADABLE


_UNREADABLE: Final = object()

MOST_BLOCKS: Final = 4096
"""Blocks of content, or messages of a prompt, that are looked at."""
LONG: Final = 64 * 1024
"""Characters of content and structured content that are read to see whether they say the same."""
