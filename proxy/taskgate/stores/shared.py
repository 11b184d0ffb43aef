"""The protocols of a store that several gateways share: `SharedBackend` with its leases, message
log and stream log.

As in `base`, every failure is raised as StoreUnavailable, and no rule of the task state machine
applies here. `lifecycle` uses the leases, `cluster` the message log, and `streams` the stream log.

A *holder* is one gateway process, by name. It counts as alive until the lease of its last heartbeat
ends. Its tasks have leases of their own, which the same heartbeat renews.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple, Protocol

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.stores.base import RateStore, Store


class HeartbeatReply(NamedTuple):
    """The store's reply to a heartbeat of a holder.

    - `time`: the store's own time.
    - `ended`: those of the sent tasks that have ended.
    - `lost`: those that another process holds now.
    - `behind`: those that are missing, or older than the revision that the holder wrote. The store
      has lost an acknowledged write, for example in a failover.
    - `alive`: the live holders, this one included.
    - `before`: the time until which the holder counted as alive before this heartbeat. None if the
      store does not know the holder, or no longer.
    - `full`: whether the store has no memory for new data.
    - `vanished`: the holders that ended without a `part`, or hang, each by the time at which that was
      noticed: those of the last ten minutes.
    """

    time: datetime
    ended: frozenset[TaskId]
    lost: frozenset[TaskId]
    behind: frozenset[TaskId]
    alive: frozenset[str]
    before: datetime | None
    full: bool = False
    vanished: Mapping[str, datetime] = MappingProxyType({})


class LeaseStore(Protocol):
    """The live processes and the leases of tasks, by the store's clock."""

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> HeartbeatReply:
        """Count the holder as alive for `lease`, and renew its leases of `held` for as long.

        `held` maps each task to the revision that the holder knows to be stored. A lapsed lease is
        renewed too, unless another process took the task over. Changes no revision; one round trip.
        """
        ...

    async def restore(self, record: TaskRecord) -> bool:
        """Write back the last version of a record, with its bodies, after the store lost it.

        Returns whether it was written. It is, if the store has no such record, or an unfinished one
        of an older revision that no other process holds. For a `record` that has ended, and so has
        no lease, the holder is not compared. No cap is checked.
        """
        ...

    async def part(self, holder: str) -> None:
        """Count the process as gone from now on, because it ends. Its tasks' leases stay as they are."""
        ...


class MessageLog(Protocol):
    """Messages between the processes: every other live process receives each one once, in the order
    of sending.

    A message is small. Large data is stored as a *parcel*, under a name that a message carries.
    """

    async def send(self, message: bytes) -> None:
        """Send a message to all other processes.

        It stays stored for a while for those that are not connected.
        """
        ...

    async def receive(self, *, timeout: timedelta) -> tuple[bytes, ...]:
        """Wait for messages of others since the last call, or since the store was opened.

        Returns an empty tuple after `timeout`. For one reader. If messages expired before this
        process read them, the rest is returned. Raises StoreUnavailable after a short pause.
        Neither that nor a cancelled call loses a message.
        """
        ...

    async def leave(self, name: str, parcel: bytes, *, keep: timedelta) -> None:
        """Store a parcel under a name until one process fetches it, for at most `keep`."""
        ...

    async def fetch(self, name: str) -> bytes | None:
        """Remove and return the parcel under a name; None if there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSegment:
    """A part of a stream: its events after a given number, in order, each with its number.

    - `about`: the description that the writer gave at the start.
    - `newest`: the number of the newest event of the stream, in this part or before it.
    - `over`: whether the stream has ended.
    - `whole`: whether every event after the given number is in `events`.
    - `holder`: the process that writes the stream; `lives`: whether that counts as alive.
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
        """Store events in order, and notify readers. The oldest events beyond a bound are dropped.

        `over` ends the stream. It expires `keep` after this call. Numbers grow by one: a gap counts
        as if all events before it were dropped. An event that is already stored does not change, so
        a failed call may be repeated. An unknown stream is not created.
        """
        ...

    async def read(self, session: str, stream: str, *, after: int) -> StreamSegment | None:
        """The part of a stream after the event with the number `after`; None if it is unknown."""
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
    """The opener of a second lease store, for another thread with its own event loop."""

    def __call__(self) -> AbstractAsyncContextManager[LeaseStore]:
        """A lease store with a connection of its own, which is opened at its first use."""
        ...
