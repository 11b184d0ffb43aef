"""Where the members of a JSON text stand: the text stays, only places and values are read from it.

Only the objects that a `Shape` opens are walked member by member; there repeated keys are refused. Everything below is
checked for syntax and left alone. Knows nothing of JSON-RPC.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from json.scanner import make_scanner
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.depth import ALWAYS_ALLOWED, has_too_many, is_deeper
from taskgate.jsontext.extents import NumberTooLarge, end_of
from taskgate.jsontext.familiar import Familiar, Known

MOST_MEMBERS: Final = 4096
"""Members of one walked object, where nothing else is said."""

RawJson = str
"""The text of one JSON value."""

Shape = Mapping[str, Any]
"""Which members to walk into: a tree of names."""


class Member(NamedTuple):
    """One member of a walked object: its value, where its key and its value stand, and its own members if walked."""

    value: Any
    key_at: int
    start: int
    end: int
    members: "dict[str, Member] | None"

    @property
    def whole(self) -> Any:
        """The value, however many parts it has."""
        return self.value

    @property
    def is_object(self) -> bool:
        """Whether the value is an object: told without a look at what is in it."""
        return isinstance(self[0], dict)

    @property
    def is_array(self) -> bool:
        """Whether the value is an array, told in the same way."""
        return isinstance(self[0], list)


class WalkedMember(Member):
    """A member that was walked: its value is made of its members when it is asked for."""

    __slots__ = ()

    @property
    def value(self) -> dict[str, Any]:
        """The object, made anew at each look."""
        return {name: member.value for name, member in (self[4] or {}).items()}

    @property
    def is_object(self) -> bool:
        """It is."""
        return True

    @property
    def is_array(self) -> bool:
        """It is none."""
        return False


class LargeMember(Member):
    """A member whose value is a long array or object: only its place is kept, and the text in the place of the value.

    A tree of objects takes up to 45 times the memory of its text.
    """

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The array or object, read anew at each look; `UNREAD` where it has too many parts to be read on the way."""
        text, _, start, end, _ = self
        if end - start > _FEW_PARTS and sum(text.count(mark, start, end) for mark in ",[{") > MOST_PARTS:
            return UNREAD
        return self.whole

    @property
    def whole(self) -> Any:
        """The array or object, read anew, whatever it costs: for work that is done off the event loop."""
        text, _, start, end, _ = self
        try:
            return orjson.loads(text[start:end])
        except ValueError:
            # A lone surrogate, which this parser does not read though the standard one does.
            return _SCAN(text, start)[0]

    @property
    def is_object(self) -> bool:
        """Whether the text begins so."""
        return bool(self[0][self.start] == "{")

    @property
    def is_array(self) -> bool:
        """Whether the text begins so."""
        return bool(self[0][self.start] == "[")


Members = dict[str, Member]


def decode(body: bytes, max_depth: int, *, counted: bool = False) -> str:
    """The text of a body. Raises UnparsableMessage for what is not UTF-8, starts with a mark, or nests too deep.

    With `counted` also for too many arrays and objects: servers have good reason for many, as coordinates are.
    """
    if counted and len(body) > ALWAYS_ALLOWED and has_too_many(body):
        raise UnparsableMessage("The body has too many arrays and objects for its size")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise UnparsableMessage("The body is not UTF-8") from None
    if text[:1] == "\ufeff":
        raise UnparsableMessage("The body starts with a byte order mark")
    if is_deeper(body, max_depth):
        raise UnparsableMessage(f"The body is nested deeper than {max_depth} levels")
    return text


def read_object(text: str, shape: Shape, most: int = MOST_MEMBERS) -> Members:
    """The members of the one JSON object that `text` should be.

    Raises UnparsableMessage where it is no JSON document, MalformedMessage where it is another kind of value, and where
    a walked object repeats a key or has more than `most` members; what follows there has not been looked at.
    """
    try:
        at = skip_space(text, 0)
        if text[at : at + 1] == "{":
            found, end = walk(text, at, shape, most)
            _expect_end(text, end)
            return found
        _expect_end(text, _read_value(text, at, at)[1])
    except NumberTooLarge:
        raise UnparsableMessage("A number in the body is too large") from None
    except NOT_JSON:
        raise UnparsableMessage("The body is not JSON") from None
    raise MalformedMessage("The message is not a JSON object")


def read_pairs(text: str) -> tuple[tuple[str, Member], ...]:
    """The members of an object as they are written, repeated or not; () for any other kind of value.

    Raises UnparsableMessage where `text` is no JSON document, MalformedMessage where they are very many.
    """
    try:
        at = skip_space(text, 0)
        if text[at : at + 1] != "{":
            _expect_end(text, _read_value(text, at, at)[1])
            return ()
        found = tuple(islice(_pairs(text, at), MOST_MEMBERS + 1))
        if len(found) > MOST_MEMBERS:
            raise MalformedMessage(f"An object of the message has more than {MOST_MEMBERS} members")
        _expect_end(text, found[-1][1].end if found else at + 1, "}")
    except NOT_JSON:
        raise UnparsableMessage("The body is not JSON") from None
    return found


def end_of_value(text: str, at: int) -> int:
    """Where the value ends that starts at `at`. Raises what `NOT_JSON` names where there is none."""
    return _read_value(text, at, at)[1]


def keys_of(member: Member, most: int) -> tuple[str, ...] | None:
    """The first keys of an object, each once and so many at most; None for any other kind of value."""
    if type(member) is LargeMember:
        return keys_in(member[0], member.start, most)
    value = member.value
    return tuple(islice(value, most)) if isinstance(value, dict) else None


def keys_in(text: RawJson, at: int, most: int) -> tuple[str, ...] | None:
    """The same of the value that starts at `at`. What stands between the keys is looked at."""
    if text[at] != "{":
        return None
    return tuple(dict.fromkeys(key for key, _ in islice(_pairs(text, at), most)))


def members(text: RawJson, shape: Shape | None = None) -> Members:
    """The members of the object that `text` is, `shape` below it; {} for any other kind of value.

    `text` must be valid JSON. Raises MalformedMessage on a duplicate key.
    """
    at = skip_space(text, 0)
    return walk(text, at, shape or {})[0] if text[at : at + 1] == "{" else {}


def elements(text: RawJson, shape: Shape, most: int | None = None) -> list[Member]:
    """The elements of the array that `text` is, objects walked by `shape`; [] for any other kind of value.

    `text` must be valid JSON. Raises MalformedMessage where an element repeats a key, or there are more than `most`, or
    those have more members together than so many objects need.
    """
    at = skip_space(text, 0)
    if text[at : at + 1] != "[":
        return []
    found: list[Member] = []
    left = None if most is None else most * _MEMBERS_OF_EACH
    at = skip_space(text, at + 1)
    while text[at] != "]":
        member, at = _walk_value(text, at, at, shape)
        found.append(member)
        if most is not None and left is not None:
            left -= walked(member.members or {})
            if left < 0 or len(found) > most:
                raise MalformedMessage(f"An array of the message has more than {most} elements, or very large ones")
        at = skip_space(text, at)
        if text[at] == ",":
            at = skip_space(text, at + 1)
    return found


def walked(found: Members) -> int:
    """How many members were walked in an object, at every depth: what reading it took."""
    return len(found) + sum([walked(each.members) for each in found.values() if each.members])


def skip_space(text: str, at: int) -> int:
    """The next place that is not white space; no regular expression where there is none, which is nearly always."""
    if text[at : at + 1] > " ":
        return at
    match = _SPACES.match(text, at)
    return match.end() if match else at


# --- walking -----------------------------------------------------------------------------------------------------


def walk(text: str, at: int, shape: Shape, most: int = MOST_MEMBERS) -> tuple[Members, int]:
    """The members of the object that starts at `at`, and where it ends.

    Raises MalformedMessage for a repeated key and for more than `most` members, and what `NOT_JSON` names where there
    is no such object.
    """
    found: Members = {}
    at += 1
    if text[at] != '"':
        at = skip_space(text, at)
        if text[at] == "}":
            return found, at + 1
    # A text that is not large has no room for so many members.
    no_longer_large = len(text) - LARGE
    while True:
        plain = _PLAIN_KEY(text, at)
        if plain is not None:
            key, value_at = plain[1], plain.end()
        else:
            key, value_at = _odd_key(text, at)
        if key in found or (no_longer_large > 0 and len(found) >= most):
            said = "has a key twice" if key in found else f"has more than {most} members"
            raise MalformedMessage(f"An object of the message {said}")
        if key in shape or value_at < no_longer_large:
            found[key], end = _walk_value(text, at, value_at, shape.get(key), most)
        else:
            value, end = _SCAN(text, value_at)
            found[key] = _MEMBER(Member, (value, at, value_at, end, None))
        after = text[end]
        if after not in ",}":
            end = skip_space(text, end)
            after = text[end]
        if after == "}":
            return found, end + 1
        if after != ",":
            raise ValueError
        at = end + 1
        if text[at] != '"':
            at = skip_space(text, at)


def _odd_key(text: str, at: int) -> tuple[str, int]:
    """A key that is more than plain letters, and where its value starts."""
    if text[at] != '"':
        raise ValueError
    key, key_end = _SCAN(text, at)
    colon = skip_space(text, key_end)
    if text[colon] != ":":
        raise ValueError
    return key, skip_space(text, colon + 1)


def _walk_value(text: str, key_at: int, at: int, shape: Shape | None, most: int = MOST_MEMBERS) -> tuple[Member, int]:
    if shape is not None and text[at] == "{":
        if type(shape) is Familiar and text.startswith(shape.lead, at):
            return _walk_familiar(text, key_at, at, shape, most)
        inner, end = walk(text, at, shape, most)
        return _MEMBER(WalkedMember, (None, key_at, at, end, inner)), end
    return _read_value(text, key_at, at)


def _walk_familiar(text: str, key_at: int, at: int, shape: Familiar, most: int) -> tuple[Member, int]:
    """An object of which the same text may have been read before: then only its place is new."""
    # What is remembered is the event loop's alone: a large text may be read in a thread.
    known = shape.find(text, at) if len(text) <= LARGE else None
    if known is not None:
        if known.at != at:
            known.members, known.at = _moved(known.members, at - known.at), at
        end = at + known.size
        return _MEMBER(WalkedMember, (None, key_at, at, end, known.members)), end
    inner, end = walk(text, at, shape, most)
    if len(text) <= LARGE:
        # What is kept is small then, and its values were read by the one parser.
        shape.meet(Known(text[at:end], inner, at))
    return _MEMBER(WalkedMember, (None, key_at, at, end, inner)), end


def _moved(found: Members, by: int) -> Members:
    return {
        name: _MEMBER(Member, (value, key_at + by, start + by, end + by, None))
        for name, (value, key_at, start, end, _) in found.items()
    }


def _pairs(text: str, at: int) -> Iterator[tuple[str, Member]]:
    """The members of the object that starts at `at`, one by one, repeated or not; of what is wrong only up to there."""
    at = skip_space(text, at + 1)
    while text[at] != "}":
        try:
            key, value_at = _odd_key(text, at)
            member, end = _read_value(text, at, value_at)
        except StopIteration:
            # A generator may not raise it.
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
    """A value that is not walked, as the member whose key stands at `key_at`, and where it ends."""
    if len(text) - at > LARGE and text[at] in _OPENING:
        # Where it is longer, or no JSON, that shows below.
        with suppress(*NOT_JSON):
            value, length = _SCAN(text[at : at + SHORT], 0)
            return _MEMBER(Member, (value, key_at, at, at + length, None)), at + length
        try:
            end = end_of(text, at)
            return _MEMBER(LargeMember, (text, key_at, at, end, None)), end
        except NumberTooLarge:
            if len(text) > _MOST_ODD:
                raise
    value, end = _SCAN(text, at)
    return _MEMBER(Member, (value, key_at, at, end, None)), end


def _expect_end(text: str, at: int, closing: str = "") -> None:
    at = skip_space(text, at)
    if not text.startswith(closing, at) or skip_space(text, at + len(closing)) != len(text):
        raise UnparsableMessage("Something follows the JSON document")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


# The standard scanner: one value from a place in a text, and where it ends. It raises StopIteration where no value is.
_SCAN: Callable[[str, int], tuple[Any, int]] = make_scanner(
    json.JSONDecoder(parse_constant=_refuse_constant)  # type: ignore[arg-type]  # typeshed names the wrong class
)
NOT_JSON: Final = (ValueError, IndexError, StopIteration, RecursionError)
"""What reading a text that is no JSON raises: a digit too many, the end too early, no value, a nest too deep."""
LARGE: Final = 4 * 1024
"""Letters of a text from which on long values in it are not read but only passed over."""
SHORT: Final = 512
"""Letters up to which a value in a large text is read by the standard parser all the same."""
MOST_PARTS: Final = 50_000
"""Values in a large array or object, about so many, up to which they are read on the event loop."""
_MEMBERS_OF_EACH: Final = 8
"""Members of one element, on the average, where elements are counted: blocks of content have about five."""
UNREAD: Final = object()
"""What stands for a value with more parts: it is of no kind that anybody looks for."""
_FEW_PARTS: Final = 64 * 1024
_MOST_ODD: Final = 256 * 1024
"""Letters of a text in which a number may be larger than a double: the standard parser reads them, but slowly."""
_OPENING: Final = ("{", "[")
_MEMBER: Final = tuple.__new__
"""Makes a Member in half the time that its class takes."""
_SPACES = re.compile(r"[ \t\n\r]+")
_PLAIN_KEY: Final = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match
"""A key without escapes, as nearly all are, up to the start of its value: one step of the machine instead of five."""
