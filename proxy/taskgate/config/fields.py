"""Types of fields that several sections share, and `Section`, the base of every model.

`Annotated` types bound and canonicalize one value; `NOT_EMPTY` and `UNIQUE` mark lists. No message
quotes the text that it refuses, because the text may have come from a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)

from taskgate.config.units import GIB, KIB, DurationIn, SizeIn

# fnmatch takes a ] as a member of a set where it comes first, or first after its !.
_GLOB = re.compile(r"(?:[^\[]|\[!?+\]?+[^\]]*+\])*+")
# RFC 6749, 3.3.
_SCOPE = r"^[!#-\[\]-~]{1,256}$"
_SECRET = r"^[!-~]([ -~]{0,8190}[!-~])?$"  # noqa: S105 - a pattern

_List = TypeVar("_List", bound=Sequence[object])


# --- durations, numbers and texts -----------------------------------------------------------------------------------


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
    if text == MASK:
        raise ValueError(f"must not be {MASK}, which stands for a secret that is not shown")
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

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
