"""Events about servers and what is sent to them; see `telemetry.events`, which everybody else takes them from."""

from dataclasses import dataclass
from typing import NamedTuple


class UpstreamAnswered(NamedTuple):
    """A server answered a request of ours, or failed to; `error` as in RpcAnswered, or the reason of the failure."""

    mount: str
    method: str
    seconds: float
    error: str | None


@dataclass(frozen=True, slots=True)
class UpstreamBegun:
    """A server is served from now on, at first or in the place of another of its name: nothing is known of it yet."""

    mount: str


@dataclass(frozen=True, slots=True)
class UpstreamRetried:
    """A request is tried again of which nothing had left; `reason` is connect."""

    mount: str
    reason: str


@dataclass(frozen=True, slots=True)
class CircuitMoved:
    """A server's circuit is closed, open or half_open from now on."""

    mount: str
    state: str


@dataclass(frozen=True, slots=True)
class HealthChecked:
    """A server was asked whether it is well; `up` is what is thought of it now, None where nobody knows yet."""

    mount: str
    ok: bool
    up: bool | None


@dataclass(frozen=True, slots=True)
class ProgramRestarted:
    """A program of a server was started after one that ended by itself; `cause` is why that did."""

    mount: str
    cause: str


@dataclass(frozen=True, slots=True)
class ProgramsRun:
    """So many programs of a server run now."""

    mount: str
    count: int


@dataclass(frozen=True, slots=True)
class ProgramSought:
    """Whether a program of a server answered, or could be had at all, when one was needed; told when that changes."""

    mount: str
    up: bool


@dataclass(frozen=True, slots=True)
class SessionLost:
    """A server ended its session; the next call opens another."""

    mount: str


@dataclass(frozen=True, slots=True)
class LateAnswerDropped:
    """A server answered a call whose task had ended before."""

    mount: str


@dataclass(frozen=True, slots=True)
class ExtensionDenied:
    """A side declared an extension that does not cross; `extension` is its identifier, which a peer may have chosen."""

    mount: str
    extension: str


@dataclass(frozen=True, slots=True)
class CredentialsGot:
    """A token for a server was asked for; `ok` tells whether there was one."""

    mount: str
    seconds: float
    ok: bool
