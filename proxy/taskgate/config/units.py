"""Durations and sizes as a file writes them, and the same as values.

What lives here: the two notations (`30s`, `4MiB`), their patterns for the JSON Schema, and the pydantic markers that
bound them. What must not: any key or default of the configuration. What holds: reading what was written gives the
value back, and no message quotes the text it refuses, because that text may have come from a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

MILLISECOND = timedelta(milliseconds=1)
YEAR = timedelta(days=365)

DURATION_PATTERN = "^(0|[1-9][0-9]{0,11})(ms|s|m|h|d)$"
SIZE_PATTERN = "^(0|[1-9][0-9]{0,14})(B|KiB|MiB|GiB|TiB)$"

# Smallest unit first: writing tries them from the end and keeps the first that divides.
_DURATIONS = {
    "ms": MILLISECOND,
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def read_duration(written: object) -> timedelta:
    """The timedelta that `250ms`, `30s`, `5m`, `2h` or `7d` means; a timedelta passes. ValueError for all else."""
    if isinstance(written, timedelta):
        if written % MILLISECOND:
            raise ValueError("must be whole milliseconds")
        return written
    number, unit = _parts(written, DURATION_PATTERN, "a duration such as 250ms, 30s, 5m, 2h or 7d")
    try:
        return number * _DURATIONS[unit]
    except OverflowError:
        raise ValueError(f"must be at most {write_duration(YEAR)}") from None


def write_duration(duration: timedelta) -> str:
    """The shortest notation: the largest unit that divides it (`90s`, `1h`, `0s`). Whole milliseconds only."""
    if not duration:
        return "0s"
    unit = next(unit for unit, length in reversed(_DURATIONS.items()) if not duration % length)
    return f"{duration // _DURATIONS[unit]}{unit}"


def read_size(written: object) -> int:
    """The bytes that `512B`, `64KiB`, `4MiB`, `4GiB` or `1TiB` means; ValueError for all else, bare numbers too."""
    number, unit = _parts(written, SIZE_PATTERN, "a size such as 512B, 64KiB, 4MiB or 4GiB")
    return number * _SIZES[unit]


def write_size(size: int) -> str:
    """The shortest notation: the largest unit that divides it (`1536KiB`, `4GiB`, `0B`)."""
    if not size:
        return "0B"
    unit = next(unit for unit, length in reversed(_SIZES.items()) if not size % length)
    return f"{size // _SIZES[unit]}{unit}"


def _parts(written: object, pattern: str, expected: str) -> tuple[int, str]:
    if isinstance(written, int | float) and not isinstance(written, bool):
        raise ValueError(f"needs a unit: must be {expected}")
    match = re.fullmatch(pattern, written) if isinstance(written, str) else None
    if match is None:
        raise ValueError(f"must be {expected}")
    return int(match[1]), match[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationIn:
    """Marks a timedelta that the file writes as a duration between two bounds, both allowed."""

    least: timedelta = MILLISECOND
    most: timedelta = YEAR
    reason: str = ""

    def read(self, written: object) -> timedelta:
        """`read_duration` within the bounds; ValueError names the bound and, for the upper one, its reason."""
        duration = read_duration(written)
        if duration < self.least:
            raise ValueError(f"must be at least {write_duration(self.least)}")
        if duration > self.most:
            raise ValueError(f"must be at most {write_duration(self.most)}{self.reason and ' ' + self.reason}")
        return duration

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _validated_by(self.read, write_duration)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": DURATION_PATTERN}


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeIn:
    """Marks an int of bytes that the file writes as a size between two bounds, both allowed.

    Numbers are not sizes, so a value read before cannot be read again: only files and their like are validated.
    """

    least: int
    most: int

    def read(self, written: object) -> int:
        """`read_size` within the bounds; ValueError names the bound."""
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
