"""Events about who may use how much; see `telemetry.events`, which everybody else takes them from."""

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple


class RateJudged(NamedTuple):
    """A rate policy was asked; `decision` is allowed, rejected, or shadow: it would have rejected.

    While the store cannot be asked that gateways share, what has room is fail_local, by this one's part, or fail_open.
    """

    policy: str
    scope: str
    decision: str


@dataclass(frozen=True, slots=True)
class RatesFellBack:
    """The store of rates could not be asked; `rule` is what counts instead: local, open or closed.

    Told at the first request that meets it, and each minute that it goes on.
    """

    rule: str


@dataclass(frozen=True, slots=True)
class CapRefused:
    """A cap refused something; `cap` is tasks, bytes, sessions or streams, `scope` is what it counts over."""

    cap: str
    scope: str


class SlotsUsed(NamedTuple):
    """How many calls of a server's `limit` are in flight now, and how many wait for a turn."""

    mount: str
    in_use: int
    limit: int
    queued: int


@dataclass(frozen=True, slots=True)
class QueueRefused:
    """A call found no place to wait, or waited for too long; `reason` is full or timeout."""

    mount: str
    reason: str


class TaskPolled(NamedTuple):
    """A task was looked at; `result` is changed, unchanged, terminal, early or limited."""

    mount: str
    result: str


class PollAdvised(NamedTuple):
    """The interval that the newest answer about a task of this mount advised."""

    mount: str
    interval: timedelta


@dataclass(frozen=True, slots=True)
class WouldPromote:
    """A rule in shadow would have made a task of a call that did not become one."""

    mount: str


@dataclass(frozen=True, slots=True)
class CallJoined:
    """A call was answered by an earlier one; `how` is key (the same idempotency key) or retry (identical, running)."""

    mount: str
    how: str
