"""The hosts without tasks that are connected for a call, or have its handle: `ConnectedHosts`.

A call made again is one whose earlier host is gone. So an equal call joins an earlier one only if no host
is connected for that. No request waits for it, at any replica, and no other session has its handle.
Equal calls of connected hosts are two calls. Each has a *slot*, and its key of the gateway's own is made of
the call and the slot.

Without tokens all hosts are one caller. A handle is then good for the hosts that got it (`grant`), which a session
or else `host_reference` tells apart.

The gateway may notice the end of a connection after the call that is made again. So a call whose slot is taken
waits for LOSS_WAIT before it takes another one.
"""

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from typing import Final

from taskgate.admission.rates import address_block
from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.messages import CallAttended, WhoAttends
from taskgate.domain.record import OwnerKey, TaskId
from taskgate.domain.versions import Client
from taskgate.protocol.host_requests import MAX_KEY, key_digest
from taskgate.streams.exchange import UNKNOWN, Exchange

LOSS_WAIT: Final = 0.25
"""Seconds until a connection counts as alive that may be lost, and for the answers of other replicas."""
MOST_SEARCHED: Final = 8
"""The most slots of equal calls in which an earlier one is looked up."""
REMEMBERED: Final = 10_000
"""Handles whose hosts are remembered, and calls whose slots are; the oldest are dropped."""
_REFERENCE: Final = 32

MOST_GRANTED: Final = 8
"""Hosts that are remembered of one handle; the oldest are dropped."""

CallKey = tuple[OwnerKey, str]
"""What finds a call: its owner and the key of its slot."""


def slot_key(own_key: str, slot: int) -> str:
    """The key of the gateway's own for a call in that slot."""
    return own_key if slot == 0 else key_digest(f"{own_key} {slot}").ljust(MAX_KEY + 1)


def host_reference(address: str, client: Client) -> str | None:
    """What tells a host without a token from others: its address block, and the name that it declares.

    None without an address, as of a request that another replica forwards.
    """
    if address == UNKNOWN:
        return None
    # One host may reach a listener of this machine by several addresses.
    block = "loopback" if ip_address(address).is_loopback else address_block(address)
    return sha256(json.dumps([block, *client]).encode()).hexdigest()[:_REFERENCE]


class ConnectedHosts:
    """The hosts of this process, and questions to the other replicas about theirs."""

    def __init__(self, bus: ClusterBus | None = None) -> None:
        self._bus = bus
        self._exchanges: dict[CallKey, Exchange] = {}
        """The connected request of a call, by its slot."""
        self._last_slots: OrderedDict[CallKey, int] = OrderedDict()
        """The last slot in which equal calls are known, if it is not 0, by the key of that."""
        self._waiting: Counter[TaskId] = Counter()
        """The requests that wait for the result of a call that is a task."""
        self._received: OrderedDict[TaskId, str] = OrderedDict()
        """The sessions that have received the handle of a call, and whose last request for it was not lost."""
        self._granted: OrderedDict[TaskId, tuple[str, ...]] = OrderedDict()
        """The hosts that got the handle of a call, by session or reference."""
        self._changes: set[asyncio.Event] = set()
        """What is set when a host is gone."""
        self._asked: dict[TaskId, set[asyncio.Event]] = {}
        """What is set when another replica answers that it has a host."""
        if bus is not None:
            bus.subscribe(WhoAttends, self._on_asked)
            bus.subscribe(CallAttended, lambda message, _: self._on_answer(message.task))
        self._answers: set[asyncio.Task[None]] = set()

    # --- slots of equal calls -----------------------------------------------------------------------------------------

    async def wait_for_loss(self, owner: OwnerKey, own_key: str) -> None:
        """Wait briefly while an equal call has a connected host: it may be the host of this call."""
        await self._wait_until(lambda: (owner, own_key) not in self._exchanges)

    def take(self, owner: OwnerKey, own_key: str, slot: int, exchange: Exchange) -> bool:
        """Take a slot until the host is gone or has its answer; False if another connected host has it."""
        key = owner, slot_key(own_key, slot)
        if key in self._exchanges:
            return False
        self._exchanges[key] = exchange
        exchange.on_sent(lambda _: self._release(key, exchange))
        return True

    def take_next(self, owner: OwnerKey, own_key: str, first: int, exchange: Exchange) -> int:
        """Take the first free slot from `first` on; return it."""
        slot = first
        while not self.take(owner, own_key, slot, exchange):
            slot += 1
        self.set_last_slot(owner, own_key, max(slot, self.last_slot(owner, own_key)))
        return slot

    def release(self, owner: OwnerKey, own_key: str, slot: int, exchange: Exchange) -> None:
        """Release a slot, if the exchange has it: its host has cancelled the call, or takes another one."""
        self._release((owner, slot_key(own_key, slot)), exchange)

    def _release(self, key: CallKey, exchange: Exchange) -> None:
        if self._exchanges.get(key) is exchange:
            del self._exchanges[key]
            self._announce()

    def last_slot(self, owner: OwnerKey, own_key: str) -> int:
        """The last slot in which equal calls are known."""
        return self._last_slots.get((owner, own_key), 0)

    def set_last_slot(self, owner: OwnerKey, own_key: str, slot: int) -> None:
        """Remember the last slot in which equal calls are known."""
        self._last_slots.pop((owner, own_key), None)
        if slot:
            self._last_slots[owner, own_key] = slot
            if len(self._last_slots) > REMEMBERED:
                self._last_slots.popitem(last=False)

    # --- hosts of calls that are tasks --------------------------------------------------------------------------------

    def attend(self, exchange: Exchange, task: TaskId, session: str) -> None:
        """Handle that a host waits for the result or handle of a call, until it is gone or has received that.

        `session` is the id of its session, and empty for a modern host.
        """
        self._waiting[task] += 1
        exchange.on_sent(partial(self._on_sent, task, session))

    def _on_sent(self, task: TaskId, session: str, was_sent: bool) -> None:
        self._waiting[task] -= 1
        if self._waiting[task] <= 0:
            del self._waiting[task]
        self._received.pop(task, None)
        if was_sent:
            self._received[task] = session
            if len(self._received) > REMEMBERED:
                self._received.popitem(last=False)
        self._announce()

    def grant(self, task: TaskId, host: str) -> None:
        """Handle that a host gets the handle of a call; `host` is its session, or its reference."""
        others = tuple(each for each in self._granted.pop(task, ()) if each != host)
        self._granted[task] = (*others[1 - MOST_GRANTED :], host)
        if len(self._granted) > REMEMBERED:
            self._granted.popitem(last=False)

    def is_granted(self, task: TaskId, host: str) -> bool:
        """Whether that host got the handle of a call from this process."""
        return host in self._granted.get(task, ())

    async def attends(self, task: TaskId, session: str) -> bool:
        """Return whether another host than that of the session is connected for a call, or has its handle."""
        await self._wait_until(lambda: task not in self._waiting)
        if self._has_host(task, session):
            return True
        if self._bus is None or not self._bus.has_peers:
            return False
        return await self._ask_others(self._bus, task, session)

    def _has_host(self, task: TaskId, session: str) -> bool:
        return task in self._waiting or self._received.get(task, session) != session

    # --- other replicas -----------------------------------------------------------------------------------------------

    async def _ask_others(self, bus: ClusterBus, task: TaskId, session: str) -> bool:
        answered = asyncio.Event()
        self._asked.setdefault(task, set()).add(answered)
        try:
            bus.send(WhoAttends(task, session))
            async with asyncio.timeout(2 * LOSS_WAIT):
                await answered.wait()
        except TimeoutError:
            return False
        finally:
            self._asked[task].discard(answered)
            if not self._asked[task]:
                del self._asked[task]
        return True

    def _on_asked(self, message: WhoAttends, sender: str) -> None:
        if self._has_host(message.task, message.session):
            answer = asyncio.get_running_loop().create_task(self._answer(message, sender))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)

    async def _answer(self, message: WhoAttends, sender: str) -> None:
        await self._wait_until(lambda: message.task not in self._waiting)
        if self._bus is not None and self._has_host(message.task, message.session):
            self._bus.send(CallAttended(message.task), to=sender)

    def _on_answer(self, task: TaskId) -> None:
        for answered in self._asked.get(task, ()):
            answered.set()

    # --- waits --------------------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        for change in self._changes:
            change.set()

    async def _wait_until(self, is_gone: Callable[[], bool]) -> None:
        """Wait until that is so, at most for LOSS_WAIT."""
        if is_gone():
            return
        change = asyncio.Event()
        self._changes.add(change)
        try:
            async with asyncio.timeout(LOSS_WAIT):
                while not is_gone():
                    change.clear()
                    await change.wait()
        except TimeoutError:
            pass
        finally:
            self._changes.discard(change)

    async def close(self) -> None:
        """Stop to answer other replicas."""
        for answer in self._answers:
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)
