"""The protocols of a store that several gateways share: `SharedBackend` with its leases, message
log and stream log.

As in `base`, every failure is raised as StoreUnavailable, and no rule of the task state machine
applies here. `lifecycle` uses the leases, `cluster` the message log, and `streams` the stream log.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.stores.base import RateStore, Store


class HeartbeatReply(NamedTuple):
    """The store's reply to a heartbeat of a holder.

    `time` is the store's own time. `ended` are held tasks that have ended, `lost` those that
    another process holds. `behind` are tasks that are missing, or older than the revision that the
    holder wrote: the store lost an acknowledged write. `alive` are the holders with a recent
    heartbeat, this one included. `before` is the time until which the store counted the holder as
    alive before this heartbeat; None if it did not know the holder. `full` is true if the store has
    no memory for new data.
    """

    time: datetime
    ended: frozenset[TaskId]
    lost: frozenset[TaskId]
    behind: frozenset[TaskId]
    alive: frozenset[str]
    before: datetime | None
    full: bool = False


class LeaseStore(Protocol):
    """The live processes and the leases of tasks, by the store's clock."""

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> HeartbeatReply:
        """Renew the holder's leases of `held`, in one round trip. Changes no revision.

        `held` maps each task to the revision that the holder knows to be stored. A lapsed lease is
        renewed too, unless another process took the task over.
        """
        ...

    async def restore(self, record: TaskRecord) -> bool:
        """Write back the last version of a record, with its bodies, after the store lost it.
        Returns whether it did.

        It does so if the store has no such record, or an unfinished one of an older revision
        without another holder. A record that has ended has no lease, so its holder is not compared.
        No cap is checked.
        """
        ...

    async def part(self, holder: str) -> None:
        """Stop counting the process as alive, because it ends. Its leases do not change."""
        ...


class MessageLog(Protocol):
    """Messages between the processes: every other live process receives each one once, in the order
    of sending.

    A message is small. Large data travels as a parcel that a message names.
    """

    async def send(self, message: bytes) -> None:
        """Send a message to all other processes.

        It stays stored for a while for those that are not connected.
        """
        ...

    async def receive(self, *, timeout: timedelta) -> tuple[bytes, ...]:
        """The messages of others since the last call, or since the store was opened; empty after
        `timeout`.

        For one reader. If messages expired before this process read them, the rest is returned.
        Raises StoreUnavailable after a short pause. Neither that nor a cancelled call loses a
        message.
        """
        ...

    async def leave(self, name: str, parcel: bytes, *, keep: timedelta) -> None:
        """Store a parcel under a name for the process that fetches it, for at most `keep`."""
        ...

    async def fetch(self, name: str) -> bytes | None:
        """Remove and return the parcel under a name; None if there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSegment:
    """A part of a stream: its events after a given number, in order, each with its number.

    `about` is the description that the writer gave at the start. `newest` is the number of the
    newest event. `over` is true if the stream has ended. `whole` is true if no event before the
    first of `events` is missing. `holder` is the process that writes the stream, and `lives` is
    true if it had a recent heartbeat.
    """

    about: bytes
    events: Sequence[tuple[int, bytes]]
    newest: int
    over: bool
    whole: bool
    holder: str
    lives: bool


class StreamLog(Protocol):
    """The events of hosts' streams, readable by every process; `streams/event_log` explains the
    events.

    The writer names a stream. `session` is the id of a host session, and part of the stream's
    identity.
    """

    async def begin(self, session: str, stream: str, *, holder: str, about: bytes, keep: timedelta) -> None:
        """Create a stream, which expires `keep` after its last use."""
        ...

    async def append(
        self, session: str, stream: str, events: Sequence[tuple[int, bytes]], *, over: bool, keep: timedelta
    ) -> None:
        """Store events in order, and notify readers; `over` ends the stream. The oldest events
        beyond a bound are dropped.

        Numbers grow by one: after a gap, what comes before it is not whole. An event that is
        already stored does not change, so a failed call may be repeated. An unknown stream is not
        created.
        """
        ...

    async def read(self, session: str, stream: str, *, after: int) -> StreamSegment | None:
        """The part of a stream after an event; None if the stream is unknown."""
        ...

    async def wait_for_events(self, session: str, stream: str, *, timeout: timedelta) -> None:
        """Wait until a stream may have new events, at most `timeout`. The wake-up is a hint: it may
        be early or lost.

        The first wait in a while returns at once, because the subscription begins only then. A
        reader that reads, waits and reads again misses nothing.
        """
        ...

    async def forget(self, session: str, stream: str) -> None:
        """Remove a stream."""
        ...


class SharedBackend(NamedTuple):
    """A backend that several processes use at once; closing the store closes all of it.

    All parts belong to the event loop that opened them, except the lease stores that `open_leases`
    makes.
    """

    store: Store
    rates: RateStore
    leases: LeaseStore
    bus: MessageLog
    streams: StreamLog
    open_leases: "LeaseStoreFactory"


class LeaseStoreFactory(Protocol):
    """Opens a second lease store, for another thread with its own event loop."""

    def __call__(self) -> AbstractAsyncContextManager[LeaseStore]:
        """A lease store with a connection of its own, which is opened at its first use."""
        ...
