"""The configuration of how much a server gets to do, and of what is done when it does not do it.

What lives here: the sections `retries`, `health`, `circuit_breaker` and `queue` of an upstream with types, defaults and
bounds. What must not: rules between keys (protection_coherence), what floors below make of them (servers, rules).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from taskgate.config.fields import MILLISECOND, ONCE_EACH, SECOND, Count, Positive, Section

_NoneOrMore = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
_Attempts = Annotated[int, Field(strict=True, ge=1, le=10)]


class RetriesSection(Section):
    """When a request is tried again. One that a server may have got is never sent again."""

    attempts: _Attempts = 2
    """How often a request is tried in all."""
    when: Annotated[tuple[Literal["connect"], ...], *ONCE_EACH] = ("connect",)
    """What it is tried again for: connect, that there was no connection; [] means nothing."""
    backoff: Positive = 200 * MILLISECOND
    """The longest pause before the second try, which doubles with each one after it."""
    max_backoff: Positive = 5 * SECOND
    """The longest pause before any."""


class HealthSection(Section):
    """How a server is asked whether it is well, whether or not anybody calls it."""

    method: Literal["tools/list", "ping"] = "tools/list"
    """What it is asked; any answer will do, an error of its own as well."""
    interval: Positive = 15 * SECOND
    """How long after one answer the next is asked for."""
    timeout: Positive = 5 * SECOND
    """How long an answer may take."""
    unhealthy_after: Count = 3
    """So many failures in a row, and it is down."""
    healthy_after: Count = 1
    """So many answers in a row, and it is up again."""


class CircuitBreakerSection(Section):
    """When calls are refused at once, because those before them failed."""

    failures: Count = 5
    """So many failures within the window open the circuit."""
    window: Positive = 30 * SECOND
    """For how long a failure counts."""
    open_for: Positive = 30 * SECOND
    """How long everything is refused then."""
    half_open: Count = 1
    """How many requests at once may find out afterwards whether it works again."""


class QueueSection(Section):
    """Calls that wait for their turn, in the same number for each caller."""

    size: _NoneOrMore = 256
    """How many may wait, of one caller at most eight times as many as there is room for yet.

    One too many is refused.
    """
    max_wait: Positive = 300 * SECOND
    """How long one may wait, and 10s at most where its host waits for the answer."""
