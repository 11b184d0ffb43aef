"""What the values of a file may be, whatever their key: the types that sections put together.

What lives here: durations, sizes, counts, names, texts, globs, methods and scopes within the bounds that several keys
share, and the section itself. What must not: a key or its default. What holds: no message quotes the text it refuses,
because that text may have come from a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema

from taskgate.config.units import DurationIn, SizeIn

MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
KIB = 2**10
MIB = 2**20
GIB = 2**30

# As fnmatch reads it: a ] that stands first in a set, or first after its !, is one of the set and closes nothing.
_GLOB = re.compile(r"(?:[^\[]|\[!?+\]?+[^\]]*+\])*+")
# RFC 6749, 3.3.
_SCOPE = r"^[!#-\[\]-~]{1,256}$"

_List = TypeVar("_List", bound=Sequence[object])


def _readable(written: str) -> str:
    if not written.isprintable():
        raise ValueError("must not hold control characters or line ends")
    return written


def _glob(written: str) -> str:
    # fnmatch takes a [ that nothing closes for itself, so the rule would name no tool that its author meant.
    if not _GLOB.fullmatch(written):
        raise ValueError("must have a ] for every [ (the character [ itself is written [[])")
    return written


def _scope(written: str) -> str:
    if not re.fullmatch(_SCOPE, written):
        raise ValueError('must be one scope of 1 to 256 characters: visible ASCII without " and \\')
    return written


def _some(written: _List) -> _List:
    if not written:
        raise ValueError("must not be empty")
    return written


def _once_each(written: _List) -> _List:
    if len(set(written)) != len(written):
        raise ValueError("must not hold the same twice")
    return written


Positive = Annotated[timedelta, DurationIn()]
ZeroOrMore = Annotated[timedelta, DurationIn(least=timedelta())]
# What is held in memory as a whole is bounded, so that a slip of the unit is told at the start.
Held = Annotated[int, SizeIn(least=KIB, most=GIB)]
Count = Annotated[int, Field(strict=True, ge=1)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, StringConstraints(pattern="^[a-z0-9][a-z0-9_-]{0,63}$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_readable)]
Words = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_readable)]
Glob = Annotated[Text, AfterValidator(_glob)]
Scope = Annotated[str, AfterValidator(_scope), WithJsonSchema({"type": "string", "pattern": _SCOPE})]

# Marks for lists. They judge a list whose items are good, so that a bad item is told alone.
SOME = (AfterValidator(_some), Field(json_schema_extra={"minItems": 1}))
ONCE_EACH = (AfterValidator(_once_each), Field(json_schema_extra={"uniqueItems": True}))


class Section(BaseModel):
    """A mapping of the file: nothing in it changes, and a key that it does not name is refused.

    The text under a key, or else of its section, is its description in the JSON Schema.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
