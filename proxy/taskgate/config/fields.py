"""Types of fields: durations, sizes, rates, numbers, texts and lists; `Section`, the base of every
model.

Each notation has a reader, a writer and a pattern for the JSON Schema. What a writer gives reads as
the same value. `Annotated` types bound and canonicalize one value; `NOT_EMPTY` and `UNIQUE` mark
lists. No message quotes the text that it refuses, because the text may have come from a secret.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
YEAR = timedelta(days=365)
KIB = 2**10
MIB = 2**20
GIB = 2**30

DURATION_PATTERN = "^(0|[1-9][0-9]{0,11})(ms|s|m|h|d)$"
SIZE_PATTERN = "^(0|[1-9][0-9]{0,14})(B|KiB|MiB|GiB|TiB)$"
RATE_PATTERN = "^([1-9][0-9]{0,8})/(s|m|h)$"

# Smallest unit first: the writers search from the end for the first unit that divides the value.
_DURATIONS = {"ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": timedelta(days=1)}
_SIZES = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 2**40}
_RATE_SECONDS = {"s": 1, "m": 60, "h": 3600}


# --- durations and sizes --------------------------------------------------------------------------------------------


def read_duration(written: object) -> timedelta:
    """Read `250ms`, `30s`, `5m`, `2h` or `7d`; a timedelta of whole milliseconds is returned as is.

    Raises ValueError for anything else.
    """
    if isinstance(written, timedelta):
        if written % MILLISECOND:
            raise ValueError("must be whole milliseconds")
        return written
    number, unit = _number_and_unit(written, DURATION_PATTERN, "a duration such as 250ms, 30s, 5m, 2h or 7d")
    try:
        return number * _DURATIONS[unit]
    except OverflowError:
        raise ValueError(f"must be at most {write_duration(YEAR)}") from None


def write_duration(duration: timedelta) -> str:
    """Write whole milliseconds in the largest unit that divides them: `90s`, `1h`, `0s`."""
    if not duration:
        return "0s"
    unit = next(unit for unit, length in reversed(_DURATIONS.items()) if not duration % length)
    return f"{duration // _DURATIONS[unit]}{unit}"


def read_size(written: object) -> int:
    """Read `512B`, `64KiB`, `4MiB`, `4GiB` or `1TiB` as bytes.

    Raises ValueError for anything else, bare numbers included.
    """
    number, unit = _number_and_unit(written, SIZE_PATTERN, "a size such as 512B, 64KiB, 4MiB or 4GiB")
    return number * _SIZES[unit]


def write_size(size: int) -> str:
    """Write bytes in the largest unit that divides them: `1536KiB`, `4GiB`, `0B`."""
    if not size:
        return "0B"
    unit = next(unit for unit, length in reversed(_SIZES.items()) if not size % length)
    return f"{size // _SIZES[unit]}{unit}"


def _number_and_unit(written: object, pattern: str, expected: str) -> tuple[int, str]:
    if isinstance(written, int | float) and not isinstance(written, bool):
        raise ValueError(f"needs a unit: must be {expected}")
    match = re.fullmatch(pattern, written) if isinstance(written, str) else None
    if match is None:
        raise ValueError(f"must be {expected}")
    return int(match[1]), match[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationIn:
    """Marker of a timedelta field that is written as a duration within bounds, both included."""

    least: timedelta = MILLISECOND
    most: timedelta = YEAR

    def read(self, written: object) -> timedelta:
        """Read a duration; ValueError names the bound."""
        duration = read_duration(written)
        if duration < self.least:
            raise ValueError(f"must be at least {write_duration(self.least)}")
        if duration > self.most:
            raise ValueError(f"must be at most {write_duration(self.most)}")
        return duration

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _validated_by(self.read, write_duration)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": DURATION_PATTERN}


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeIn:
    """Marker of an int field of bytes that is written as a size within bounds, both included.

    A number is no size, so a value of the field cannot be validated again: only files and what is
    dumped as JSON are.
    """

    least: int
    most: int

    def read(self, written: object) -> int:
        """Read a size; ValueError names the bounds."""
        size = read_size(written)
        if not self.least <= size <= self.most:
            raise ValueError(f"must be between {write_size(self.least)} and {write_size(self.most)}")
        return size

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _validated_by(self.read, write_size)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": SIZE_PATTERN}


def _validated_by(read: Callable[[object], Any], write: Callable[[Any], str]) -> CoreSchema:
    written = core_schema.plain_serializer_function_ser_schema(write, when_used="json")
    return core_schema.no_info_plain_validator_function(read, serialization=written)


# --- rates and numbers ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A number of events per second, minute or hour (`unit`: s, m or h)."""

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}/{self.unit}"

    @property
    def seconds(self) -> int:
        """Return the seconds of the unit."""
        return _RATE_SECONDS[self.unit]

    @property
    def every(self) -> float:
        """Return the seconds from one event to the next."""
        return self.seconds / self.count


def read_rate(written: object) -> Rate:
    """Read `5/s`, `10/m` or `100/h`; a Rate is returned as is. Raises ValueError for others."""
    if isinstance(written, Rate):
        return written
    match = re.fullmatch(RATE_PATTERN, written) if isinstance(written, str) else None
    if match is None:
        raise ValueError("must be a rate such as 5/s, 10/m or 100/h: a whole number and one unit")
    return Rate(count=int(match[1]), unit=match[2])


RateText = Annotated[
    Rate,
    PlainValidator(read_rate),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": RATE_PATTERN}),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberIn:
    """Marker of a float field that is written as a number within bounds, both included."""

    least: float
    most: float

    def read(self, written: object) -> float:
        """Read a finite number; ValueError names the bounds."""
        if not isinstance(written, int | float) or isinstance(written, bool) or not math.isfinite(written):
            raise ValueError("must be a number")
        if not self.least <= written <= self.most:
            raise ValueError(f"must be between {self.least:g} and {self.most:g}")
        return float(written)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


# fnmatch takes a ] as a member of a set where it comes first, or first after its !.
_GLOB = re.compile(r"(?:[^\[]|\[!?+\]?+[^\]]*+\])*+")
# RFC 6749, 3.3.
_SCOPE = r"^[!#-\[\]-~]{1,256}$"
_SECRET = r"^[!-~]([ -~]{0,8190}[!-~])?$"  # noqa: S105 - a pattern

_List = TypeVar("_List", bound=Sequence[object])


# --- texts, and types of several sections ---------------------------------------------------------------------------


def json_pattern(pattern: str) -> WithJsonSchema:
    """Return the mark of a text that the JSON Schema describes by a pattern alone."""
    return WithJsonSchema({"type": "string", "pattern": pattern})


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not hold control characters or line ends")
    return text


def _check_glob(text: str) -> str:
    # fnmatch reads an unclosed [ as the character itself, so the rule would match other tools than meant.
    if not _GLOB.fullmatch(text):
        raise ValueError("must have a ] for every [ (the character [ itself is written [[])")
    return text


def _check_scope(text: str) -> str:
    if not re.fullmatch(_SCOPE, text):
        raise ValueError('must be one scope of 1 to 256 characters: visible ASCII without " and \\')
    return text


PositiveDuration = Annotated[timedelta, DurationIn()]
# The default is a minute: load balancers forget a flow after 350 s, some after 120 s.
TcpKeepalive = Annotated[timedelta, DurationIn(least=SECOND, most=9 * HOUR)]
Duration = Annotated[timedelta, DurationIn(least=timedelta())]
# The bound of what is in memory as a whole: a slip of the unit fails at the start.
MemorySize = Annotated[int, SizeIn(least=KIB, most=GIB)]
Count = Annotated[int, Field(strict=True, ge=1)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, StringConstraints(pattern="^[a-z0-9][a-z0-9_-]{0,63}$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_check_printable)]
LongText = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_check_printable)]
Glob = Annotated[Text, AfterValidator(_check_glob)]
Scope = Annotated[str, AfterValidator(_check_scope), json_pattern(_SCOPE)]


# --- secrets --------------------------------------------------------------------------------------------------------


MASK: Final = "********"
"""The text that is shown in place of a secret."""

HIDDEN: Final = PlainSerializer(lambda _: MASK, return_type=str, when_used="json")
"""The mark of a type whose values are never shown; a field of it also needs `repr=False`."""


def _check_secret(text: str) -> str:
    if not re.fullmatch(_SECRET, text):
        raise ValueError("must be 1 to 8192 characters of ASCII without control characters, or spaces at the ends")
    return text


Secret = Annotated[str, AfterValidator(_check_secret), HIDDEN, json_pattern(_SECRET)]


# --- lists and sections ---------------------------------------------------------------------------------------------


def _check_not_empty(values: _List) -> _List:
    if not values:
        raise ValueError("must not be empty")
    return values


def _check_unique(values: _List) -> _List:
    if len(set(values)) != len(values):
        raise ValueError("must not hold the same twice")
    return values


# Lists are checked after their items, so a wrong item is the only problem that is reported.
NOT_EMPTY = (AfterValidator(_check_not_empty), Field(json_schema_extra={"minItems": 1}))
UNIQUE = (AfterValidator(_check_unique), Field(json_schema_extra={"uniqueItems": True}))


class Section(BaseModel):
    """Base of the models: frozen, and an unknown key is refused.

    The docstring of a field, or else of its section, is its description in the JSON Schema and in
    docs/configuration.md.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the descriptions.

        The option of pydantic that does so reads all sources at each start, which took a tenth of it.
        """
        made = handler(schema)
        fields = handler.resolve_ref_schema(made)["properties"]
        for name, text in _docstrings_of_members(cls):
            if name in fields:
                fields[name]["description"] = text
        return made


def _docstrings_of_members(section: type[Section]) -> Iterator[tuple[str, str]]:
    (tree,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(tree, ast.ClassDef)
    for member, following in pairwise(tree.body):
        match member, following:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                yield name, inspect.cleandoc(text)
