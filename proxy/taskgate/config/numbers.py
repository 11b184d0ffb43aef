"""Numbers and rates as a file writes them, and the same as values.

What lives here: plain numbers between bounds, and the notation of rates (`5/s`), with readers, writers and what the
JSON Schema says of them. What must not: any key or default of the configuration. What holds: reading what was written
gives the value back, and no message quotes the text it refuses, because that text may have come from a secret.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

RATE_PATTERN = "^([1-9][0-9]{0,8})/(s|m|h)$"

_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many in one second, minute or hour (`unit`: s, m or h)."""

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}/{self.unit}"

    @property
    def seconds(self) -> int:
        """The length of the unit."""
        return _SECONDS[self.unit]

    @property
    def every(self) -> float:
        """Seconds from one to the next."""
        return self.seconds / self.count


def read_rate(written: object) -> Rate:
    """The rate that `5/s`, `10/m` or `100/h` means; a Rate passes. ValueError for all else."""
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
    """Marks a float that the file writes as a number between two bounds, both allowed."""

    least: float
    most: float

    def read(self, written: object) -> float:
        """The number; ValueError for what is none, or beyond a bound, which is named then."""
        if not isinstance(written, int | float) or isinstance(written, bool) or not math.isfinite(written):
            raise ValueError("must be a number")
        if not self.least <= written <= self.most:
            raise ValueError(f"must be between {self.least:g} and {self.most:g}")
        return float(written)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "number", "minimum": self.least, "maximum": self.most}
