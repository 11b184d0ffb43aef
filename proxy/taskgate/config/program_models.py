"""The configuration of a server that is a program of this machine: what is run, and how often.

What lives here: the types of `command`, `env` and `processes`, and the sections `restart` and `pool`. What must not:
rules between keys (transport_coherence), what floors below make of them (servers). What holds: no repr and no JSON
shows what is in an environment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from taskgate.config.addresses import MASK
from taskgate.config.credential_models import HIDDEN
from taskgate.config.fields import SECOND, Positive, Section

# What systems take as one text, less than which Linux has as MAX_ARG_STRLEN.
_LONGEST: Final = 65536
_VARIABLE: Final = r"^[!-<>-~]{1,256}$"


def _without_zeros(written: str) -> str:
    if "\0" in written:
        raise ValueError("must not hold the character U+0000")
    return written


def _listed(written: object) -> object:
    if not isinstance(written, list | tuple):
        raise ValueError("must be a list of the program and its arguments, such as [python3, -m, some_server]")
    return written


def _begun(written: Sequence[str]) -> Sequence[str]:
    if not written or not written[0].strip():
        raise ValueError("must begin with the name of a program")
    return written


def _variable(written: str) -> str:
    if not re.fullmatch(_VARIABLE, written):
        raise ValueError("must be named by 1 to 256 characters of ASCII without spaces and =")
    return written


def _value(written: str) -> str:
    if written == MASK:
        raise ValueError(f"must not be {MASK}, which stands for a secret that is not shown")
    return _without_zeros(written)


_Argument = Annotated[str, StringConstraints(max_length=_LONGEST), AfterValidator(_without_zeros)]
Command = Annotated[
    tuple[_Argument, ...],
    BeforeValidator(_listed),
    AfterValidator(_begun),
    Field(json_schema_extra={"minItems": 1}),
]
VariableName = Annotated[str, AfterValidator(_variable), WithJsonSchema({"type": "string", "pattern": _VARIABLE})]
VariableValue = Annotated[str, StringConstraints(max_length=_LONGEST), AfterValidator(_value), HIDDEN]
Processes = Annotated[int, Field(strict=True, ge=1, le=1000)]


class RestartSection(Section):
    """When a program is started again that ended soon after its start, or could not be started. Of transport stdio."""

    backoff: Positive = SECOND
    """How long it is not started after the first time; it doubles with each one after it."""
    max_backoff: Positive = 60 * SECOND
    """The longest it is not started."""


class PoolSection(Section):
    """Processes that are kept for whoever comes next. Of transport stdio."""

    idle_timeout: Positive = 60 * SECOND
    """A process that no session uses ends after this."""
