"""HTTP headers of modern requests that repeat parts of the body: read, encoded, compared with it.

Intermediaries that do not parse bodies read them. `read_headers` finds those of a host's request.
`classify` compares them with the body by `check_headers`, the gateway by `check_params`. For a
request to a server, `encode_value` writes them. The gateway decides nothing by a header alone
(H-MOD-14). Every refusal is HeaderMismatch; it names the header, never its value.

A tool can name arguments that headers repeat, `Mcp-Param-*`, in its input schema (H-MOD-5). The
keyword that does so is here called an annotation, and `read_header_paths` reads it.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from taskgate.domain.versions import MODERN
from taskgate.errors import HeaderMismatch
from taskgate.jsontext.spans import Members, RawJson, Shape, members
from taskgate.protocol.jsonrpc import refuse_lookalikes
from taskgate.protocol.messages import Request
from taskgate.protocol.vocabulary import (
    METHOD_HEADER,
    MODERN_METHODS,
    MODERN_TASK_METHODS,
    NAME_HEADER,
    PARAM_ANNOTATION,
    PARAM_HEADER,
    TOOLS_CALL,
    VERSION_HEADER,
)

NAME_PARAMS: Final[Mapping[str, str]] = MappingProxyType(
    {TOOLS_CALL: "name", "prompts/get": "name", "resources/read": "uri", **dict.fromkeys(MODERN_TASK_METHODS, "taskId")}
)
"""The parameter that `Mcp-Name` repeats, by method; other methods have no such header (H-MOD-1,
H-MOD-2).
"""


class RequestHeaders(NamedTuple):
    """The headers of a request that repeat its body; values as sent, None for a missing header.

    `params` are those that repeat arguments, by the part of their name after `Mcp-Param-`, in lower
    case. `duplicate` names a header that was sent more than once.
    """

    version: str | None = None
    method: str | None = None
    name: str | None = None
    params: Mapping[str, str] = MappingProxyType({})
    duplicate: str | None = None


def read_headers(fields: Collection[tuple[str, str]]) -> RequestHeaders:
    """The headers that matter here, out of all fields of a request, in any case (H-MOD-4)."""
    common: list[str | None] = [None, None, None]
    for spelling, value in fields:
        # Most fields are others: the first letter of the name tells.
        if spelling[:1] in _INITIALS:
            place = _COMMON.get(spelling)
            if place is None or common[place] is not None:
                return _read_any(fields)
            common[place] = value
    version, method, name = common
    return RequestHeaders(version, method, name)


def _read_any(fields: Collection[tuple[str, str]]) -> RequestHeaders:
    """As `read_headers`, for any spelling, for repeated headers and for those of arguments."""
    named = [(spelling.lower(), value) for spelling, value in fields if spelling[:1] in _INITIALS]
    found = dict(named)
    duplicate = _duplicate(named) if len(found) < len(named) else None
    version, method, name = found.pop(_VERSION, None), found.pop(_METHOD, None), found.pop(_NAME, None)
    if not found:
        return RequestHeaders(version, method, name, duplicate=duplicate)
    params = {header.removeprefix(_PARAM): value for header, value in found.items() if header.startswith(_PARAM)}
    return RequestHeaders(version, method, name, params, duplicate)


def _duplicate(named: Iterable[tuple[str, str]]) -> str | None:
    """The first of these headers that is repeated, as the specification spells it; None for
    others.
    """
    seen: set[str] = set()
    for name, _ in named:
        if name in seen and (name in _SINGLE or name.startswith(_PARAM)):
            return _SINGLE.get(name, f"{PARAM_HEADER}*")
        seen.add(name)
    return None


# --- the encoding of values -------------------------------------------------------------------------------------------


def encode_value(value: str | int) -> str:
    """A string, integer or boolean as the value of a header that repeats it (H-MOD-3).

    Raises ValueError for a string with a lone surrogate.
    """
    if isinstance(value, str) and is_bare(value):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if _PLAIN.fullmatch(text) and "\t" not in text and not (text.startswith(_OPENS) and text.endswith(_CLOSES)):
        return text
    return f"{_OPENS}{b64encode(text.encode()).decode()}{_CLOSES}"


def decode_value(sent: str) -> str:
    """The text that a header's value stands for.

    Raises ValueError for a value that needs encoding and has none, and for Base64 in a
    non-canonical form.
    """
    encoded = _ENCODED.fullmatch(sent)
    if encoded is None:
        if not _PLAIN.fullmatch(sent):
            raise ValueError("not a plain value")
        return sent
    decoded = b64decode(encoded[1])
    # The decoder skips characters that are no Base64, and accepts several spellings of one text.
    if b64encode(decoded).decode() != encoded[1]:
        raise ValueError("not the Base64 of its bytes")
    return decoded.decode()


def is_plain(value: str) -> bool:
    """Whether a header can have this value without encoding."""
    return _PLAIN.fullmatch(value) is not None


# --- headers against the body -----------------------------------------------------------------------------------------


def check_headers(headers: RequestHeaders, request: Request, version: str, *, strict_names: bool) -> None:
    """Refuse a request whose version, method or name differs between headers and body (H-MOD-1,
    H-MOD-2).

    `version` is the body's. The name of a task may be missing, unless `strict_names`: a released
    host sends none (AMB-8).
    """
    # Values of `_KNOWN` and those that `is_bare` takes are plain: nearly all values are such.
    if headers.version != version or version not in _KNOWN:
        _expect(VERSION_HEADER, headers.version, version, "the version in _meta")
    if headers.method != request.method or request.method not in _KNOWN:
        _expect(METHOD_HEADER, headers.method, request.method, "the method")
    member, name = NAME_PARAMS.get(request.method), headers.name
    if member is None or (name is None and member == "taskId" and not strict_names):
        return
    named = request.params.get(member)
    value = named and named.value
    if name is None or name != value or not is_bare(name):
        _expect_encoded(NAME_HEADER, name, value, f"params.{member}")


def check_params(params: Mapping[str, str], request: Request, header_paths: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a `tools/call` whose arguments differ between headers and body (H-MOD-6).

    `params` are those of RequestHeaders. `header_paths` is as `read_header_paths` gives it for the
    tool. Other `Mcp-Param-*` headers are ignored. Raises MalformedMessage as `header_arguments`
    does.
    """
    if not header_paths:
        return
    arguments = header_arguments(request.params_text, header_paths.values())
    for header, path in header_paths.items():
        sent, value = params.get(header.lower()), value_at(arguments, path)
        if sent is not None or value is not None:
            _expect_encoded(f"{PARAM_HEADER}{header}", sent, value, "its argument")


def header_arguments(params: RawJson, paths: Collection[tuple[str, ...]]) -> Members:
    """The arguments of a call, walked along the paths to those that headers repeat.

    Raises MalformedMessage for a duplicate or lookalike key on a path. A reader of headers could
    take the header for an argument that the server does not use.
    """
    shape: dict[str, Any] = {}
    for path in paths:
        below = shape
        for name in path:
            below = below.setdefault(name, {})
    found = members(params, {"arguments": shape}).get("arguments")
    arguments = (found and found.members) or {}
    _refuse_lookalikes_on_paths(arguments, shape)
    return arguments


def _refuse_lookalikes_on_paths(found: Members, shape: Shape) -> None:
    refuse_lookalikes(found, frozenset(shape))
    for name, below in shape.items():
        if below and name in found:
            _refuse_lookalikes_on_paths(found[name].members or {}, below)


def value_at(found: Members, path: tuple[str, ...]) -> Any:
    """The value at the end of a path of names; None if there is none."""
    *way, last = path
    for name in way:
        member = found.get(name)
        found = (member and member.members) or {}
    member = found.get(last)
    return member and member.value


def _expect(header: str, sent: str | None, value: str, what: str) -> None:
    """Refuse a header that is missing or differs from `value`; `what` names that value."""
    if sent is None:
        raise HeaderMismatch(f"{header} is missing")
    if sent != value or not _PLAIN.fullmatch(sent):
        raise _mismatch(header, what)


def _expect_encoded(header: str, sent: str | None, value: object, what: str) -> None:
    """As `_expect`, for a header that `decode_value` decodes."""
    if sent is None:
        raise HeaderMismatch(f"{header} is missing")
    try:
        decoded = decode_value(sent)
    except ValueError:
        raise HeaderMismatch(f"{header} is malformed") from None
    if not _equals(decoded, value):
        raise _mismatch(header, what)


def _mismatch(header: str, what: str) -> HeaderMismatch:
    """The refusal of a header that contradicts the body, rather than being missing or malformed."""
    mismatch = HeaderMismatch(f"{header} does not equal {what}")
    mismatch.contradicts = True
    return mismatch


def _equals(decoded: str, value: object) -> bool:
    """Whether a decoded header equals a value of the body; numbers are compared by value, not by
    spelling.
    """
    if isinstance(value, bool):
        return decoded == ("true" if value else "false")
    if isinstance(value, int | float):
        return _INTEGER.fullmatch(decoded) is not None and int(decoded.partition(".")[0]) == value
    return decoded == value


# --- header annotations of a tool -------------------------------------------------------------------------------------


def read_header_paths(schema: object) -> dict[str, tuple[str, ...]]:
    """The arguments that a tool with this input schema wants in headers, in no certain order.

    Keys are header names after `Mcp-Param-`, as the tool spells them; values are the paths of names
    to the argument. A tool with unsound annotations must not be offered and raises ValueError.
    Unsound is a name that no header can have, and names that differ only by case. So is an argument
    that is no string, integer or boolean, and one in an array or an alternative.
    """
    found: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    for path, annotated in _annotated(schema):
        name = annotated[PARAM_ANNOTATION]
        if path is None:
            raise ValueError("an annotation stands where no name leads")
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError("an annotation is no name of a header")
        if annotated.get("type") not in _PRIMITIVE:
            raise ValueError("an annotated argument is not of a primitive type")
        header = name.lower()
        if header in taken:
            raise ValueError("two annotations are the same name")
        taken.add(header)
        found[name] = path
    return found


def _annotated(schema: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every annotated schema inside a schema, with its path; None if names alone do not lead to
    it.
    """
    waiting: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while waiting:
        path, current = waiting.pop()
        if isinstance(current, list):
            waiting += [(None, each) for each in current]
        elif isinstance(current, dict):
            if PARAM_ANNOTATION in current:
                # The root is no argument.
                yield path or None, current
            for keyword, value in current.items():
                waiting += _subschemas(path, keyword, value)


def _subschemas(path: tuple[str, ...] | None, keyword: str, value: Any) -> list[tuple[tuple[str, ...] | None, Any]]:
    """The schemas of a keyword; an array of schemas stays one entry."""
    if keyword in _VALUES:
        return []
    if keyword in _NAMED and isinstance(value, dict):
        if path is None or keyword != "properties":
            return [(None, each) for each in value.values()]
        return [((*path, name), each) for name, each in value.items()]
    return [(None, value)]


_VERSION: Final = VERSION_HEADER.lower()
_METHOD: Final = METHOD_HEADER.lower()
_NAME: Final = NAME_HEADER.lower()
_SINGLE: Final = {_VERSION: VERSION_HEADER, _METHOD: METHOD_HEADER, _NAME: NAME_HEADER}
_COMMON: Final = {
    spelling: place
    for place, header in enumerate((VERSION_HEADER, METHOD_HEADER, NAME_HEADER))
    for spelling in (header, header.lower())
}
"""The common spellings, and the position of each header in RequestHeaders."""
_PARAM: Final = PARAM_HEADER.lower()
_INITIALS: Final = "Mm"
# The common values, all of them plain.
_KNOWN: Final = MODERN_METHODS | {revision.value for revision in MODERN}
_OPENS: Final = "=?base64?"
_CLOSES: Final = "?="
_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=")
is_bare: Final = re.compile(r"[A-Za-z0-9_./:-]+").fullmatch
"""Matches a common name, which needs no encoding."""
# Without white space at its ends, which HTTP strips.
_PLAIN: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}(?:\.0{1,20})?")
# 1*tchar, as in all header names.
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PRIMITIVE: Final = ("string", "integer", "boolean")
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value maps names to schemas."""
_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords without schemas in them."""
