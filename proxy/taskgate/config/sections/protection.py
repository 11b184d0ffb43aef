"""Sections `retries`, `health`, `circuit_breaker` and `queue` of an upstream.

They protect servers from load, and hosts from servers that fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from taskgate.config.fields import MILLISECOND, SECOND, UNIQUE, Count, PositiveDuration, Section
from taskgate.config.problems import Conflict, mapping_at, order_conflict
from taskgate.upstream.settings import Breaker, HealthSettings, Retries

_QueueSize = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
_Attempts = Annotated[int, Field(strict=True, ge=1, le=10)]


class RetriesSection(Section):
    """Retries of requests. A request that a server may have received is never sent again."""

    attempts: _Attempts = 2
    """The most attempts for a request, the first included."""
    when: Annotated[tuple[Literal["connect"], ...], *UNIQUE] = ("connect",)
    """The failures that are retried: connect, that no connection could be opened; [] means none."""
    backoff: PositiveDuration = 200 * MILLISECOND
    """The longest pause before the second attempt; it doubles with each further one."""
    max_backoff: PositiveDuration = 5 * SECOND
    """The longest pause before any attempt."""

    def to_settings(self) -> Retries | None:
        """Return the settings of retries, None where there are none."""
        if "connect" not in self.when:
            return None
        return Retries(attempts=self.attempts, backoff=self.backoff, max_backoff=self.max_backoff)


class HealthSection(Section):
    """Health checks: requests of the gateway that find out whether a server answers, also while it
    gets no calls.
    """

    method: Literal["tools/list", "ping"] = "tools/list"
    """The method of the request. Any answer counts as healthy, a JSON-RPC error as well."""
    interval: PositiveDuration = 15 * SECOND
    """The pause between an answer and the next check."""
    timeout: PositiveDuration = 5 * SECOND
    """How long an answer may take."""
    unhealthy_after: Count = 3
    """Failures in a row after which the server is down."""
    healthy_after: Count = 1
    """Answers in a row after which the server is up again."""

    def to_settings(self) -> HealthSettings:
        """Return the settings of health checks."""
        return HealthSettings(
            method=self.method,
            interval=self.interval,
            timeout=self.timeout,
            unhealthy_after=self.unhealthy_after,
            healthy_after=self.healthy_after,
        )


class CircuitBreakerSection(Section):
    """A circuit breaker: calls are refused at once after earlier ones failed."""

    failures: Count = 5
    """Failures within the window that open the circuit."""
    window: PositiveDuration = 30 * SECOND
    """For how long a failure counts."""
    open_for: PositiveDuration = 30 * SECOND
    """How long the circuit stays open, and every request is refused."""
    half_open: Count = 1
    """How many requests at a time may probe the server afterwards."""

    def to_settings(self) -> Breaker:
        """Return the settings of the circuit breaker."""
        return Breaker(failures=self.failures, window=self.window, open_for=self.open_for, half_open=self.half_open)


class QueueSection(Section):
    """The queue of calls that wait for a permit. Callers take turns."""

    size: _QueueSize = 256
    """The most calls that wait; one caller may have at most eight times as many as there is room
    left.

    Further calls are refused.
    """
    max_wait: PositiveDuration = 300 * SECOND
    """How long a call may wait; at most 10s where its host waits for the answer."""


def protection_conflicts(raw: object, defaults: object) -> Iterator[Conflict]:
    """Find conflicts between keys of `retries`, and health checks without a token to exchange."""
    for name, upstream in mapping_at(raw, "upstreams").items():
        here = ("upstreams", name)
        is_exchanged = mapping_at(upstream, "credentials").get("mode") == "token_exchange"
        if is_exchanged and mapping_at(upstream).get("health") is not None:
            why = "with credentials.mode token_exchange: without a caller there is no token to exchange"
            yield (*here, "health"), f"must be null {why}"
        if mapping_at(upstream, "retries"):
            trees = raw, {"upstreams": {name: {"retries": mapping_at(defaults, "upstream", "retries")}}}
            keys = (*here, "retries", "backoff"), (*here, "retries", "max_backoff")
            conflict = order_conflict(trees, *keys)
            if conflict:
                yield conflict
