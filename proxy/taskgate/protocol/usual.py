"""Messages written as nearly all peers write them, read in a few steps instead of member by member.

Usual is: "jsonrpc" and the id stand before everything else or after it, and besides them there are a method and its
parameters, or a result, which are an object. What is read here is read the same by the walk over all members
(`jsonrpc`); that one takes whatever is left aside here, and alone refuses. Knows no method's meaning.
"""

import re
from typing import Final

from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.long_values import NumberTooLarge
from taskgate.jsontext.spans import LARGE, MAX_MEMBERS, PARSE_ERRORS, Member, Members, WalkedMember, walk
from taskgate.protocol.envelope import ENVELOPE, Message, Notification, Request, Response


def read_usual(text: str, most: int = MAX_MEMBERS) -> Message | None:
    """The message that `text` is; None for one that is written in another way, and for what is no message.

    What is large and no message is not read twice: it raises UnparsableMessage or MalformedMessage at once.
    """
    flat = _PROGRESS(text)
    if flat is not None:
        return _read_progress(text, flat)
    begin = _BEGIN.match(text)
    if begin is None:
        return None
    leads, method, at = begin[1] is not None, begin["method"], begin.end()
    try:
        found, end = walk(text, at, _RESULT if method is None else _PARAMS, most)
    except (*PARSE_ERRORS, MalformedMessage) as refusal:
        if len(text) <= LARGE or begin["id"] is None or isinstance(refusal, NumberTooLarge):
            return None
        # To read all of it again would tell nothing else.
        if isinstance(refusal, MalformedMessage):
            raise MalformedMessage(str(refusal), id=_id(begin["id"])) from None
        raise UnparsableMessage("The body is not JSON") from None
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
    result = _MEMBER(WalkedMember, (None, begin.start("result"), at, end, found))
    return Response(id_, result, None, text, place.span("id"))


def _id(written: str) -> str | int:
    return written[1:-1] if written[0] == '"' else int(written)


def _read_progress(text: str, flat: re.Match[str]) -> Notification:
    """A progress notification, of which there are more than of all other messages: seen to be one in a single step."""
    _, _, (begin, end), token, done, total, message = flat.regs
    found: Members = {"progressToken": _member(text, token, 16), "progress": _member(text, done, 11)}
    if total[1] > 0:
        found["total"] = _member(text, total, 8)
    if message[1] > 0:
        found["message"] = _member(text, message, 10)
    return Notification(_NOTE_PROGRESS, found, text, text[begin:end])


def _member(text: str, place: tuple[int, int], lead: int) -> Member:
    """A plain value; `lead` is the length of its key with quotes and colon, after which a space may stand."""
    start, end = place
    written = text[start:end]
    value = written[1:-1] if written[0] == '"' else float(written) if "." in written else int(written)
    return _MEMBER(Member, (value, start - lead - (text[start - 1] == " "), start, end, None))


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

_NOTE_PROGRESS: Final = "notifications/progress"
_NUMBER: Final = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?"
# As many digits as the gateway's own tokens have, which begin with 52 random bits.
_TOKEN: Final = rf'-?(?:0|[1-9][0-9]{{0,15}})|"{_PLAIN}{{0,64}}"'
_PROGRESS: Final = re.compile(
    rf'\{{(?P<lead>{_VERSION}, ?)?"method": ?"{_NOTE_PROGRESS}", ?"params": ?'
    rf'(?P<params>\{{"progressToken": ?(?P<progressToken>{_TOKEN}), ?"progress": ?(?P<progress>{_NUMBER})'
    rf'(?:, ?"total": ?(?P<total>{_NUMBER}))?(?:, ?"message": ?(?P<message>"{_PLAIN}{{0,1000}}"))?\}})'
    rf"(?(lead)|, ?{_VERSION})\}}"
).fullmatch
_MEMBER: Final = tuple.__new__
