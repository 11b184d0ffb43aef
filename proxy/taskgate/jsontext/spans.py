"""Members of a JSON text by position: `read_object` and others give a `Member` for each.

The text stays as it is; only positions and values are read from it. Only objects that a `Shape`
opens are walked member by member, and only those must not repeat a key. All values below are
checked for syntax alone. One module, because walking an object and finding the positions of its
values is one recursion, which every message goes through.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from json.scanner import make_scanner
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.depth import ALWAYS_ALLOWED, has_at_most, has_too_many_containers, is_deeper
from taskgate.jsontext.long_values import NumberTooLarge, end_of_long_string, find_end

MAX_MEMBERS: Final = 4096
"""Default limit for the members of one walked object."""

RawJson = str
"""The text of one JSON value."""

Shape = Mapping[str, Any]
"""The objects to walk: a tree of member names."""


class Member(NamedTuple):
    """One member of a walked object: its value, the positions of key and value, and its own
    members.

    `members` is None for a value that was not walked.
    """

    value: Any
    key_at: int
    start: int
    end: int
    members: "dict[str, Member] | None"

    @property
    def whole(self) -> Any:
        """The value, even one that `value` leaves `UNREAD` for its size."""
        return self.value

    @property
    def is_object(self) -> bool:
        """Whether the value is an object; does not parse it."""
        return isinstance(self[0], dict)

    @property
    def is_array(self) -> bool:
        """Whether the value is an array; does not parse it."""
        return isinstance(self[0], list)


class WalkedMember(Member):
    """A member that was walked. Each access to `value` builds an object from its members."""

    __slots__ = ()

    @property
    def value(self) -> dict[str, Any]:
        return {name: member.value for name, member in (self[4] or {}).items()}

    @property
    def is_object(self) -> bool:
        return True

    @property
    def is_array(self) -> bool:
        return False


class LargeMember(Member):
    """A member with a long array or object: it has the whole text in place of the value.

    Each access to `value` parses it. A tree of objects takes up to 45 times the memory of its text.
    """

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The array or object; `UNREAD` if it has too many parts to be parsed on the event loop."""
        text, _, start, end, _ = self
        if end - start > _FEW_PARTS and sum(text.count(mark, start, end) for mark in ",[{") > MAX_PARTS:
            return UNREAD
        return self.whole

    @property
    def whole(self) -> Any:
        """The array or object, whatever it costs: for work off the event loop."""
        text, _, start, end, _ = self
        try:
            return orjson.loads(text[start:end])
        except ValueError:
            # A lone surrogate: orjson refuses it, the standard parser accepts it.
            return scan_value(text, start)[0]

    @property
    def is_object(self) -> bool:
        return bool(self[0][self.start] == "{")

    @property
    def is_array(self) -> bool:
        return bool(self[0][self.start] == "[")


Members = dict[str, Member]


# --- reading ----------------------------------------------------------------------------------------------------------


def decode(body: bytes, max_depth: int, *, counted: bool = False) -> str:
    """The text of a body. Raises UnparsableMessage if it is no UTF-8, has a byte order mark, or
    nests too deep.

    With `counted`, also if it has too many arrays and objects. That limit is for hosts only:
    servers have reasons for many, such as coordinates.
    """
    is_long = len(body) > ALWAYS_ALLOWED
    # One search for both limits: nearly every long text has few brackets, and long strings.
    has_few = is_long and has_at_most(body, min(max_depth, ALWAYS_ALLOWED))
    if counted and is_long and not has_few and has_too_many_containers(body):
        raise UnparsableMessage("The body has too many arrays and objects for its size")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise UnparsableMessage("The body is not UTF-8") from None
    if text[:1] == "\ufeff":
        raise UnparsableMessage("The body starts with a byte order mark")
    # A short text that has no more brackets than levels cannot nest deeper: nearly all are such texts.
    if (
        not has_few
        and (len(body) > LARGE or body.count(b"{") + body.count(b"[") > max_depth)
        and is_deeper(body, max_depth)
    ):
        raise UnparsableMessage(f"The body is nested deeper than {max_depth} levels")
    return text


def read_object(text: str, shape: Shape, limit: int = MAX_MEMBERS) -> Members:
    """The members of the one JSON object that `text` must be.

    Raises UnparsableMessage if it is no JSON document. Raises MalformedMessage if it is another
    kind of value, or if a walked object repeats a key or has more than `limit` members.
    """
    try:
        at = skip_space(text, 0)
        if text[at : at + 1] == "{":
            found, end = walk(text, at, shape, limit)
            _expect_end(text, end)
            return found
        _expect_end(text, _read_value(text, at, at)[1])
    except NumberTooLarge:
        raise UnparsableMessage("A number in the body is too large") from None
    except PARSE_ERRORS:
        raise UnparsableMessage("The body is not JSON") from None
    raise MalformedMessage("The message is not a JSON object")


def read_pairs(text: str) -> tuple[tuple[str, Member], ...]:
    """The members of an object as they are written, repeated or not; () for any other kind of
    value.

    Raises UnparsableMessage if `text` is no JSON document, MalformedMessage for more than
    `MAX_MEMBERS` members.
    """
    try:
        at = skip_space(text, 0)
        if text[at : at + 1] != "{":
            _expect_end(text, _read_value(text, at, at)[1])
            return ()
        found = tuple(islice(_pairs(text, at), MAX_MEMBERS + 1))
        if len(found) > MAX_MEMBERS:
            raise MalformedMessage(f"An object of the message has more than {MAX_MEMBERS} members")
        _expect_end(text, found[-1][1].end if found else at + 1, "}")
    except PARSE_ERRORS:
        raise UnparsableMessage("The body is not JSON") from None
    return found


def end_of_value(text: str, at: int) -> int:
    """The end of the value that starts at `at`. Raises one of `PARSE_ERRORS` if there is none."""
    return _read_value(text, at, at)[1]


def first_keys(member: Member, limit: int) -> tuple[str, ...] | None:
    """The first `limit` distinct keys of an object; None for any other kind of value."""
    if type(member) is LargeMember:
        return first_keys_at(member[0], member.start, limit)
    value = member.value
    return tuple(islice(value, limit)) if isinstance(value, dict) else None


def first_keys_at(text: RawJson, at: int, limit: int) -> tuple[str, ...] | None:
    """Like `first_keys`, for the value that starts at `at`. Values between the keys are parsed."""
    if text[at] != "{":
        return None
    return tuple(dict.fromkeys(key for key, _ in islice(_pairs(text, at), limit)))


def members(text: RawJson, shape: Shape | None = None) -> Members:
    """The members of the object `text`, `shape` below it; {} for any other kind of value.

    `text` must be valid JSON. Raises MalformedMessage on a duplicate key.
    """
    at = 0 if text[:1] == "{" else skip_space(text, 0)
    return walk(text, at, shape or {})[0] if text[at : at + 1] == "{" else {}


def elements(text: RawJson, shape: Shape, limit: int | None = None) -> list[Member]:
    """The elements of the array `text`, objects walked by `shape`; [] for any other kind of value.

    `text` must be valid JSON. Raises MalformedMessage if an element repeats a key, and if there are
    more than `limit` elements. It also raises it if the elements have more than
    `limit` * `_MEMBERS_PER_ELEMENT` members together.
    """
    at = skip_space(text, 0)
    if text[at : at + 1] != "[":
        return []
    found: list[Member] = []
    left = None if limit is None else limit * _MEMBERS_PER_ELEMENT
    at = skip_space(text, at + 1)
    while text[at] != "]":
        if text[at] == "{":
            inner, end = walk(text, at, shape)
            member: Member = WalkedMember(None, at, at, end, inner)
        else:
            member, end = _read_value(text, at, at)
        found.append(member)
        if limit is not None and left is not None:
            left -= count_members(member.members or {})
            if left < 0 or len(found) > limit:
                raise MalformedMessage(f"An array of the message has more than {limit} elements, or very large ones")
        at = skip_space(text, end)
        if text[at] == ",":
            at = skip_space(text, at + 1)
    return found


def span_with_comma(found: Members, member: Member) -> tuple[int, int]:
    """The place of a member of an object together with the comma that goes when the member goes.

    That is the comma before it; the one after it if it is the first.
    """
    start, end, before = member.key_at, member.end, None
    for each in found.values():
        if before is member:
            return start, each.key_at
        if each is member and before is not None:
            return before.end, end
        before = each
    return start, end


def count_members(found: Members) -> int:
    """The number of walked members of an object, at every depth: the work that reading it took."""
    return len(found) + sum([count_members(each.members) for each in found.values() if each.members])


def may_have_key(text: RawJson, *keys: str) -> bool:
    """Whether any object in a text may have one of those keys, in any escaped spelling.

    False is certain, true is a guess. It is as fast as a string search. The keys consist of letters
    and underscores.
    """
    # One character is found many times as fast as two.
    has_escapes = "\\" in text and "\\u" in text
    # A generator would be a frame for each key.
    for key in keys:  # noqa: SIM110
        if f'"{key}"' in text or (has_escapes and _spellings(key).search(text) is not None):
            return True
    return False


@cache
def _spellings(key: str) -> re.Pattern[str]:
    """A pattern for a key with each letter as itself or as its `\\u` escape, in either case."""
    pattern = ""
    for letter in key:
        number = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(letter):04x}")
        pattern += rf"(?:{letter}|\\u{number})"
    return re.compile(f'"{pattern}"')


def skip_space(text: str, at: int) -> int:
    """The next position that is no white space. The common case, none at all, takes no regular
    expression.
    """
    if text[at : at + 1] > " ":
        return at
    match = _SPACES.match(text, at)
    return match.end() if match else at


# --- objects that peers repeat ----------------------------------------------------------------------------------------
#
# A modern host sends its name and capabilities with every request, with the same bytes. The members
# of such an object are cached by its text alone, for all senders; the cache is small.


class CachedObject:
    """The text of one object, and its members at the position `at`, where it was seen last."""

    __slots__ = ("at", "members", "size", "text")

    def __init__(self, text: str, members: Members, at: int) -> None:
        self.text = text
        self.size = len(text)
        self.members = members
        self.at = at


class CachedShape(dict[str, Any]):
    """A shape without names that caches objects beginning with `lead`; others are walked."""

    def __init__(self, lead: str) -> None:
        super().__init__()
        self.lead: Final = lead
        self.objects: list[CachedObject] = []
        self._seen_once: set[int] = set()

    def add(self, cached: CachedObject) -> None:
        """Cache an object that comes for the second time: most objects that vary come only once."""
        mark = hash(cached.text)
        if mark not in self._seen_once:
            if len(self._seen_once) >= MAX_SEEN_ONCE:
                self._seen_once.clear()
            self._seen_once.add(mark)
            return
        self.objects.insert(0, cached)
        del self.objects[MAX_CACHED:]


def _walk_cached(text: str, at: int, shape: CachedShape, limit: int) -> tuple[Members, int]:
    # The cache belongs to the event loop; a large text can be read in a thread.
    is_small = len(text) <= LARGE
    for cached in shape.objects if is_small else ():
        # No object is a prefix of another, so a match is exact.
        if text.startswith(cached.text, at):
            if cached.at != at:
                cached.members, cached.at = _moved(cached.members, at - cached.at), at
            return cached.members, at + cached.size
    inner, end = walk(text, at, shape, limit)
    if is_small:
        # So a cached text is small, and none of its values is a LargeMember.
        shape.add(CachedObject(text[at:end], inner, at))
    return inner, end


def _moved(found: Members, by: int) -> Members:
    return {
        name: _MEMBER(Member, (value, key_at + by, start + by, end + by, None))
        for name, (value, key_at, start, end, _) in found.items()
    }


# --- walking ----------------------------------------------------------------------------------------------------------


def walk(text: str, at: int, shape: Shape, limit: int = MAX_MEMBERS) -> tuple[Members, int]:
    """The members of the object that starts at `at`, and its end.

    Raises MalformedMessage for a repeated key and, in a large text, for more than `limit` members.
    Raises one of `PARSE_ERRORS` if there is no such object.
    """
    found: Members = {}
    at += 1
    # A text that is not large has no room for too many members.
    no_longer_large = len(text) - LARGE
    while True:
        plain = _PLAIN_KEY(text, at)
        if plain is not None:
            (_, value_at), (key_at, key_end) = plain.regs
            key, key_at = text[key_at:key_end], key_at - 1
        else:
            key_at = skip_space(text, at)
            if not found and text[key_at] == "}":
                return found, key_at + 1
            key, value_at = _read_key(text, key_at)
        if key in found or (no_longer_large > 0 and len(found) >= limit):
            problem = "has a key twice" if key in found else f"has more than {limit} members"
            raise MalformedMessage(f"An object of the message {problem}")
        below = shape.get(key)
        if below is not None and text[value_at] == "{":
            is_cached = type(below) is CachedShape and text.startswith(below.lead, value_at)
            inner, end = (_walk_cached if is_cached else walk)(text, value_at, below, limit)
            found[key] = _MEMBER(WalkedMember, (None, key_at, value_at, end, inner))
        elif value_at < no_longer_large:
            found[key], end = _read_value(text, key_at, value_at)
        else:
            value, end = scan_value(text, value_at)
            found[key] = _MEMBER(Member, (value, key_at, value_at, end, None))
        after = text[end]
        if after not in ",}":
            end = skip_space(text, end)
            after = text[end]
        if after == "}":
            return found, end + 1
        if after != ",":
            raise ValueError
        at = end + 1


def _read_key(text: str, at: int) -> tuple[str, int]:
    """Any key, escaped or not, and the start of its value."""
    if text[at] != '"':
        raise ValueError
    key, key_end = scan_value(text, at)
    colon = skip_space(text, key_end)
    if text[colon] != ":":
        raise ValueError
    return key, skip_space(text, colon + 1)


def _pairs(text: str, at: int) -> Iterator[tuple[str, Member]]:
    """The members of the object that starts at `at`, repeated or not; checks the syntax."""
    at = skip_space(text, at + 1)
    while text[at] != "}":
        try:
            key, value_at = _read_key(text, at)
            member, end = _read_value(text, at, value_at)
        except StopIteration:
            # In a generator it would become a RuntimeError.
            raise ValueError from None
        yield key, member
        at = skip_space(text, end)
        if text[at] == ",":
            at = skip_space(text, at + 1)
            if text[at] == "}":
                raise ValueError
        elif text[at] != "}":
            raise ValueError


def _read_value(text: str, key_at: int, at: int) -> tuple[Member, int]:
    """A value that is not walked, as a member with its key at `key_at`, and its end."""
    is_large = len(text) - at > LARGE
    if is_large and text[at] == '"':
        string_end = end_of_long_string(text, at)
        if string_end is not None:
            return _MEMBER(Member, (text[at + 1 : string_end - 1], key_at, at, string_end, None)), string_end
    if is_large and text[at] in _OPENING:
        # A value that is longer, or no JSON, fails here and is read again below.
        with suppress(*PARSE_ERRORS):
            value, length = scan_value(text[at : at + SHORT], 0)
            return _MEMBER(Member, (value, key_at, at, at + length, None)), at + length
        try:
            end = find_end(text, at)
            return _MEMBER(LargeMember, (text, key_at, at, end, None)), end
        except NumberTooLarge:
            if len(text) > _MAX_SLOW:
                raise
    value, end = scan_value(text, at)
    return _MEMBER(Member, (value, key_at, at, end, None)), end


def _expect_end(text: str, at: int, closing: str = "") -> None:
    at = skip_space(text, at)
    if not text.startswith(closing, at) or skip_space(text, at + len(closing)) != len(text):
        raise UnparsableMessage("Something follows the JSON document")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


scan_value: Callable[[str, int], tuple[Any, int]] = make_scanner(
    json.JSONDecoder(parse_constant=_refuse_constant)  # type: ignore[arg-type]  # typeshed names the wrong class
)
"""The scanner of the standard library: the value at a position of a text, and its end.

It raises StopIteration if no value starts there.
"""
PARSE_ERRORS: Final = (ValueError, IndexError, StopIteration, RecursionError)
"""Exceptions for a text that is no JSON: a bad literal, the end too early, no value, a nest too
deep.
"""
LARGE: Final = 4 * 1024
"""Length of a text from which on long values in it are skipped and not parsed, in characters."""
SHORT: Final = 512
"""Length up to which the standard parser reads a value even in a large text, in characters."""
MAX_PARTS: Final = 50_000
"""Approximate number of parts up to which a large value is parsed on the event loop."""
MAX_CACHED: Final = 8
"""Objects that a `CachedShape` has: each is compared with the next one, since its end is unknown.
"""
MAX_SEEN_ONCE: Final = 256
"""Hashes of objects that came once and can become cached."""
UNREAD: Final = object()
"""The value of a `LargeMember` with too many parts: of no JSON type, so every type check fails."""
_MEMBERS_PER_ELEMENT: Final = 8
"""Average members of an element if elements are limited: content blocks have about five."""
_FEW_PARTS: Final = 64 * 1024
_MAX_SLOW: Final = 256 * 1024
"""Length of a text up to which numbers beyond a double are read: the standard parser is slow."""
_OPENING: Final = ("{", "[")
_MEMBER: Final = tuple.__new__
"""Builds a Member in half the time of its class."""
_SPACES = re.compile(r"[ \t\n\r]+")
_PLAIN_KEY: Final = re.compile(r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match
"""A key without escapes, the common case, with the white space before it, up to the start of its
value.
"""
