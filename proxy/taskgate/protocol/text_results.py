"""The usual result of a tool, a short text: `read_text_result` reads the response by one match.

    {"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"done"}],"isError":false}}

Nearly every answer that is relayed has this form, and the walk of `jsonrpc` costs three times as
much. It accepts nothing that the walk refuses, and reads the same members at the same places.
"""

import re
from typing import Final

from taskgate.jsontext.spans import LARGE, LargeMember, Member, Members, WalkedMember
from taskgate.protocol.messages import Response


def read_text_result(message: bytes) -> Response | None:
    """The response in this form that a message of a server is; None if it has another form."""
    if len(message) > LARGE:
        return None
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return None
    match = _TEXT_RESULT(text)
    if match is None:
        return None
    _, first, (at, end), content, structured, (failed, failed_end), last = match.regs
    # Before each value are its key with two quotes, a colon, and one space or none. Arrays and
    # objects are parsed when they are read.
    found: Members = {"content": _lazy(text, 10, content)}
    if structured[0] > 0:
        found["structuredContent"] = _lazy(text, 20, structured)
    if failed > 0:
        key_at = failed - 10 - (text[failed - 1] == " ")
        found["isError"] = _MEMBER(Member, (text[failed] == "t", key_at, failed, failed_end, None))
    result = _MEMBER(WalkedMember, (None, at - 9 - (text[at - 1] == " "), at, end, found))
    place = first if first[0] > 0 else last
    return _RESPONSE(Response, (int(text[place[0] : place[1]]), result, None, text, place, None))


def _lazy(text: str, lead: int, place: tuple[int, int]) -> Member:
    """An array or object as a member. `lead` is the length of its key with quotes and colon."""
    start, end = place
    return _MEMBER(LargeMember, (text, start - lead - (text[start - 1] == " "), start, end, None))


_STRING: Final = r'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+"'
_VERSION: Final = r'"jsonrpc": ?"2\.0"'
# As many digits as the gateway's own ids have, which begin with 52 random bits.
_ID: Final = r'"id": ?([1-9][0-9]{0,15})'
_TEXT_RESULT: Final = re.compile(
    rf'\{{(?:{_VERSION}, ?{_ID}, ?)?"result": ?'
    rf'(\{{"content": ?(\[\{{"type": ?"text", ?"text": ?{_STRING}\}}\])'
    rf'(?:, ?"structuredContent": ?(\{{"result": ?{_STRING}\}}))?(?:, ?"isError": ?(true|false))?\}})'
    rf"(?(1)|, ?{_VERSION}, ?{_ID})\}}"
).fullmatch
_MEMBER: Final = tuple.__new__
_RESPONSE: Final = tuple.__new__
