"""The seams of what a store does besides, where several processes share it: its time, leases, words, streams.

As in `base`: whatever goes wrong below leaves as StoreUnavailable, and no rule of the task machine is known here. What
must not live here: what a process does when a lease of its own is gone (`lifecycle`), what words and streams say
(`cluster`, `streams`).
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.stores.base import RateStore, Store


class HeartbeatReply(NamedTuple):
    """What a store says to a sign of life.

    `time` is the store's own. `ended` are held tasks that are unfinished no more, `lost` those that another process
    holds, `behind` those that are gone, or that the store has at an older revision than the holder wrote: it forgot
    what it had acknowledged. `alive` are the holders that gave a sign of life lately, this one included. `before` is
    until when the store had it, before this sign, that the holder lives; None where it knew nothing of that. `full` is
    whether it takes nothing new, for want of memory.
    """

    time: datetime
    ended: frozenset[TaskId]
    lost: frozenset[TaskId]
    behind: frozenset[TaskId]
    alive: frozenset[str]
    before: datetime | None
    full: bool = False


class LeaseStore(Protocol):
    """Who lives, and who holds what, by the store's clock."""

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> HeartbeatReply:
        """Renew the holder's leases of `held`, which has the revisions that it knows to be stored. One round trip.

        A task whose lease has lapsed but that nobody took over is renewed, too. No revision is touched.
        """
        ...

    async def restore(self, record: TaskRecord) -> bool:
        """Put back what the holder of its lease wrote last, bodies and all, where the store has forgotten it.

        Only where there is no such record, or an unfinished one of an older revision that nobody else holds; whether it
        was put back. No cap is asked. A record that has ended has no lease; then `unfinished one` is enough.
        """
        ...

    async def part(self, holder: str) -> None:
        """The process ends: it is not counted any more. Leases stay as they are."""
        ...


class MessageLog(Protocol):
    """Words between the processes: each is heard once by every other process that lives, in the order it was sent.

    A word is small; what is large travels as a parcel that a word names.
    """

    async def send(self, word: bytes) -> None:
        """Say something to all others. It is kept for those that are not connected just now, for a while."""
        ...

    async def receive(self, *, timeout: timedelta) -> tuple[bytes, ...]:
        """What others said since the last call, or since the store was opened; empty after `timeout`. For one reader.

        Where words were lost, because nobody fetched them in time, what is left of them is returned. Raises
        StoreUnavailable, after a moment, and loses no word by that; nor does a call that is cancelled.
        """
        ...

    async def leave(self, name: str, parcel: bytes, *, keep: timedelta) -> None:
        """Keep something under a name for whoever fetches it, so long at the most."""
        ...

    async def fetch(self, name: str) -> bytes | None:
        """What was left under a name, which nobody gets again; None where there is nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSegment:
    """A part of a stream: its events after some number, in order, each with its number.

    `about` is what its writer said when it began. `newest` is the number of the newest event. `over` is whether the
    stream has ended: then no other event comes. `whole` is whether nothing is missing before the first of `events`.
    `holder` is the process that writes it, `lives` whether that gave a sign of life lately.
    """

    about: bytes
    events: Sequence[tuple[int, bytes]]
    newest: int
    over: bool
    whole: bool
    holder: str
    lives: bool


class StreamLog(Protocol):
    """The events of hosts' streams, where every process finds them; see streams/event_log for what they are.

    A stream is named by whoever makes it, together with its session: `session` is the id of a host session.
    """

    async def begin(self, session: str, stream: str, *, holder: str, about: bytes, keep: timedelta) -> None:
        """A stream begins. It is kept for `keep` after what was last done with it."""
        ...

    async def append(
        self, session: str, stream: str, events: Sequence[tuple[int, bytes]], *, over: bool, keep: timedelta
    ) -> None:
        """Keep events, in order; `over` ends the stream. Whoever reads it is told. Bounded: the oldest give way.

        Numbers grow by one: one that is left out makes what comes before it not whole. An event that is there already
        is left as it is, so that a call that failed may be made again. A stream that is not known is not begun by this.
        """
        ...

    async def read(self, session: str, stream: str, *, after: int) -> StreamSegment | None:
        """What came after an event; None where the stream is not known."""
        ...

    async def wait_for_events(self, session: str, stream: str, *, timeout: timedelta) -> None:
        """Wait until a stream may have grown, at most `timeout`. A hint, which may come early and may be lost.

        Who asks for the first time in a while is told at once: what was appended before is not listened to. So who
        reads, waits, and reads again misses nothing.
        """
        ...

    async def forget(self, session: str, stream: str) -> None:
        """Drop a stream."""
        ...


class SharedBackend(NamedTuple):
    """A backend that several processes use at once; closing the store closes all of it.

    All belong to the event loop that they were opened on, but for what is had through `open_leases`.
    """

    store: Store
    rates: RateStore
    leases: LeaseStore
    bus: MessageLog
    streams: StreamLog
    open_leases: "LeaseStoreFactory"


class LeaseStoreFactory(Protocol):
    """Opens the leases a second time, for another thread with an event loop of its own."""

    def __call__(self) -> AbstractAsyncContextManager[LeaseStore]:
        """Connected when it is first used; whoever is inside of the block has a connection that nobody shares."""
        ...
