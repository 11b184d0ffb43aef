"""Messages written as nearly all peers write them, read in a few steps instead of member by member.

Usual is: "jsonrpc" and the id stand before everything else or after it, and besides them there are a method and its
parameters, or a result, which are an object. What is read here is read the same by the walk over all members
(`jsonrpc`); that one takes whatever is left aside here, and alone refuses. Knows no method's meaning.
"""

import re
from typing import Final

from taskgate.errors import MalformedMessage
from taskgate.mcp.envelope import ENVELOPE, Message, Notification, Request, Response
from taskgate.mcp.spans import NOT_JSON, Member, values_of, walk


def read_usual(text: str) -> Message | None:
    """The message that `text` is; None for one that is written in another way, and for what is no message."""
    begin = _BEGIN.match(text)
    if begin is None:
        return None
    leads, method, at = begin[1] is not None, begin["method"], begin.end()
    try:
        found, end = walk(text, at, _RESULT if method is None else _PARAMS, 2)
    except (*NOT_JSON, MalformedMessage):
        return None
    rest = (_CLOSE if leads else _ENVELOPE_AND_CLOSE).match(text, end)
    if rest is None:
        return None
    place = begin if leads else rest
    written = place["id"]
    if written is None:
        return None if method is None else Notification(method, found, text, text[at:end])
    id_ = written[1:-1] if written[0] == '"' else int(written)
    if method is not None:
        return Request(id_, method, found, text, text[at:end], at)
    result = Member(values_of(found), begin.start("result"), at, end, found)
    return Response(id_, result, None, text, place.span("id"))


_PARAMS: Final = ENVELOPE["params"]
_RESULT: Final = ENVELOPE["result"]
_PLAIN: Final = r'[^"\\\x00-\x1f]'
# Ids that can be nothing else: short of every bound, without escapes.
_ID: Final = rf'"id": ?(?P<id>-?(?:0|[1-9][0-9]{{0,17}})|"{_PLAIN}{{0,64}}")'
_VERSION: Final = r'"jsonrpc": ?"2\.0"'
_BEGIN: Final = re.compile(
    rf'\{{({_VERSION}, ?(?:{_ID}, ?)?)?(?:"method": ?"(?P<method>{_PLAIN}*)", ?"params"|(?P<result>"result")): ?(?=\{{)'
)
_CLOSE: Final = re.compile(r"[ \t\n\r]*\}[ \t\n\r]*\Z")
_ENVELOPE_AND_CLOSE: Final = re.compile(rf", ?{_VERSION}(?:, ?{_ID})?[ \t\n\r]*\}}[ \t\n\r]*\Z")
