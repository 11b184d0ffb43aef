"""The headers in which a request of the modern era repeats parts of its body, for those who do not read bodies.

What lives here: reading them, their values' encoding, and whether they say what the body says. What must not: HTTP
libraries, and any decision by what a header alone says (H-MOD-14). Every refusal is HeaderMismatch, and names the
header but never its value.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from taskgate.domain.versions import MODERN
from taskgate.errors import HeaderMismatch
from taskgate.jsontext.spans import Members, RawJson, Shape, members
from taskgate.protocol.alike import refuse_alike
from taskgate.protocol.envelope import Request
from taskgate.protocol.vocabulary import (
    METHOD_HEADER,
    MODERN_METHODS,
    MODERN_TASK_METHODS,
    NAME_HEADER,
    PARAM_HEADER,
    TOOLS_CALL,
    VERSION_HEADER,
)

NAMED_BY: Final[Mapping[str, str]] = MappingProxyType(
    {TOOLS_CALL: "name", "prompts/get": "name", "resources/read": "uri", **dict.fromkeys(MODERN_TASK_METHODS, "taskId")}
)
"""From a method to the parameter that `Mcp-Name` repeats; other methods have no such header (H-MOD-1, H-MOD-2)."""


class RequestHeaders(NamedTuple):
    """What a request says in its headers; values as sent, None where there is none.

    `params` are those that repeat arguments, by the rest of their name in lower case. `doubled` names one that was sent
    more than once.
    """

    version: str | None = None
    method: str | None = None
    name: str | None = None
    params: Mapping[str, str] = MappingProxyType({})
    doubled: str | None = None


def read_headers(fields: Collection[tuple[str, str]]) -> RequestHeaders:
    """The headers that matter here, out of all the fields of a request in any spelling of their names (H-MOD-4)."""
    usual: list[str | None] = [None, None, None]
    for spelt, value in fields:
        # One look at each name's first letter, for most of the fields are others.
        if spelt[:1] in _INITIALS:
            place = _USUAL.get(spelt)
            if place is None or usual[place] is not None:
                return _read_any(fields)
            usual[place] = value
    version, method, called = usual
    return RequestHeaders(version, method, called)


def _read_any(fields: Collection[tuple[str, str]]) -> RequestHeaders:
    named = [(spelt.lower(), value) for spelt, value in fields if spelt[:1] in _INITIALS]
    found = dict(named)
    doubled = _doubled(named) if len(found) < len(named) else None
    version, method, called = found.pop(_VERSION, None), found.pop(_METHOD, None), found.pop(_NAME, None)
    if not found:
        return RequestHeaders(version, method, called, doubled=doubled)
    params = {name.removeprefix(_PARAM): value for name, value in found.items() if name.startswith(_PARAM)}
    return RequestHeaders(version, method, called, params, doubled)


def _doubled(named: Iterable[tuple[str, str]]) -> str | None:
    """The first header that is there again, as the specification spells it; None where it is another one."""
    seen: set[str] = set()
    for name, _ in named:
        if name in seen and (name in _SINGLE or name.startswith(_PARAM)):
            return _SINGLE.get(name, f"{PARAM_HEADER}*")
        seen.add(name)
    return None


# --- the encoding of values --------------------------------------------------------------------------------------


def encode_value(value: str | int) -> str:
    """A string, integer or boolean as the value of a header that repeats it (H-MOD-3).

    ValueError for a string with a lone surrogate, which no encoding could write.
    """
    if isinstance(value, str) and _BARE(value):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if _PLAIN.fullmatch(text) and "\t" not in text and not (text.startswith(_OPENS) and text.endswith(_CLOSES)):
        return text
    return f"{_OPENS}{b64encode(text.encode()).decode()}{_CLOSES}"


def decode_value(sent: str) -> str:
    """The text that a header's value stands for.

    ValueError for what could not be sent as it is, and for Base64 that is not the one way to write a text.
    """
    encoded = _ENCODED.fullmatch(sent)
    if encoded is None:
        if not _PLAIN.fullmatch(sent):
            raise ValueError("not a plain value")
        return sent
    meant = b64decode(encoded[1])
    # The decoder passes over what is no Base64, and there are more ways to write one text.
    if b64encode(meant).decode() != encoded[1]:
        raise ValueError("not the Base64 of its bytes")
    return meant.decode()


def is_plain(value: str) -> bool:
    """Whether a header can have this value as it is."""
    return _PLAIN.fullmatch(value) is not None


# --- headers against the body ------------------------------------------------------------------------------------


def check_single(headers: RequestHeaders) -> None:
    """Refuse a request with a header that was sent more than once: two readers could take two values (H-MOD-4)."""
    if headers.doubled is not None:
        raise HeaderMismatch(f"{headers.doubled} was sent more than once")


def check_headers(headers: RequestHeaders, request: Request, version: str, *, strict_names: bool) -> None:
    """Refuse a request that says in its headers another version, method or name than in its body (H-MOD-1, H-MOD-2).

    `version` is the body's. The name of a task may be left out, for a released host sends none, unless the names are
    `strict_names` (AMB-8).
    """
    _expect(VERSION_HEADER, headers.version, version, "the version in _meta")
    _expect(METHOD_HEADER, headers.method, request.method, "the method")
    member = NAMED_BY.get(request.method)
    if member is None or (headers.name is None and member == "taskId" and not strict_names):
        return
    named = request.params.get(member)
    _expect_encoded(NAME_HEADER, headers.name, named and named.value, f"params.{member}")


def check_params(headers: RequestHeaders, request: Request, mirrored: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a call of a tool that says other arguments in its headers than in its body (H-MOD-6).

    `mirrored` tells for each argument that the tool wants repeated the rest of the header's name, and the path to it
    (`protocol.mirrored`). Other headers of the kind are nobody's business. To be asked of calls of tools alone. Raises
    MalformedMessage as `mirrored_members` does.
    """
    if not mirrored:
        return
    arguments = mirrored_members(request.params_text, mirrored.values())
    for header, path in mirrored.items():
        sent, value = headers.params.get(header.lower()), value_at(arguments, path)
        if sent is not None or value is not None:
            _expect_encoded(f"{PARAM_HEADER}{header}", sent, value, "its argument")


def mirrored_members(params: RawJson, paths: Collection[tuple[str, ...]]) -> Members:
    """The arguments of a call with these parameters, walked along the paths to those that headers repeat.

    Raises MalformedMessage where a key stands twice in an object on the way, or folds to one of the way: a reader of
    headers would take the header for an argument that the server does not take.
    """
    shape: dict[str, Any] = {}
    for path in paths:
        within = shape
        for name in path:
            within = within.setdefault(name, {})
    found = members(params, {"arguments": shape}).get("arguments")
    arguments = (found and found.members) or {}
    _refuse_alike(arguments, shape)
    return arguments


def _refuse_alike(found: Members, shape: Shape) -> None:
    refuse_alike(found, frozenset(shape))
    for name, below in shape.items():
        if below and name in found:
            _refuse_alike(found[name].members or {}, below)


def value_at(found: Members, path: tuple[str, ...]) -> Any:
    """What stands at the end of a path of names; None where it leads to nothing."""
    *way, last = path
    for name in way:
        member = found.get(name)
        found = (member and member.members) or {}
    member = found.get(last)
    return member and member.value


def _expect(header: str, sent: str | None, value: str, what: str) -> None:
    if sent is None:
        raise HeaderMismatch(f"{header} is missing")
    if sent != value or not (sent in _KNOWN or _PLAIN.fullmatch(sent)):
        raise _contradiction(header, what)


def _expect_encoded(header: str, sent: str | None, value: object, what: str) -> None:
    if sent is None:
        raise HeaderMismatch(f"{header} is missing")
    if sent == value and _BARE(sent):
        return
    try:
        meant = decode_value(sent)
    except ValueError:
        raise HeaderMismatch(f"{header} is malformed") from None
    if not _says(meant, value):
        raise _contradiction(header, what)


def _contradiction(header: str, what: str) -> HeaderMismatch:
    mismatch = HeaderMismatch(f"{header} does not equal {what}")
    mismatch.contradicts = True
    return mismatch


def _says(meant: str, value: object) -> bool:
    """Whether a decoded value stands for one of the body; numbers count as what they are worth, not as written."""
    if isinstance(value, bool):
        return meant == ("true" if value else "false")
    if isinstance(value, int | float):
        return _INTEGER.fullmatch(meant) is not None and int(meant.partition(".")[0]) == value
    return meant == value


_VERSION: Final = VERSION_HEADER.lower()
_METHOD: Final = METHOD_HEADER.lower()
_NAME: Final = NAME_HEADER.lower()
_SINGLE: Final = {_VERSION: VERSION_HEADER, _METHOD: METHOD_HEADER, _NAME: NAME_HEADER}
_USUAL: Final = {
    spelt: place
    for place, header in enumerate((VERSION_HEADER, METHOD_HEADER, NAME_HEADER))
    for spelt in (header, header.lower())
}
"""How nearly all hosts spell them, and where each stands in RequestHeaders."""
_PARAM: Final = PARAM_HEADER.lower()
_INITIALS: Final = "Mm"
# What nearly all requests say; plain, all of it.
_KNOWN: Final = MODERN_METHODS | {revision.value for revision in MODERN}
_OPENS: Final = "=?base64?"
_CLOSES: Final = "?="
_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=")
# Names as nearly all are: what is no more than that means itself.
_BARE: Final = re.compile(r"[A-Za-z0-9_./:-]+").fullmatch
# Without whitespace at its ends, which is not the value's on the wire.
_PLAIN: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}(?:\.0{1,20})?")
