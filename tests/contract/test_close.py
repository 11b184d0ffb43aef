"""A closed store: what was acknowledged is finished, everything else raises StoreUnavailable."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, new_record, new_session
from helpers.waiting import bounded
from taskgate.domain.listing import TaskFilter, TaskOrder
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import HolderWatch, OwnerWatch, Store, StoreWatch, TaskWatch, Watch
from taskgate.stores.references import plain_reference

RECORD, SESSION = new_record(), new_session()
NONE = timedelta()
VERBS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "insert": lambda store: store.insert(new_record(), caps=()),
    "load": lambda store: store.load(OWNER, RECORD.id, now=EPOCH),
    "load bodies": lambda store: store.load(OWNER, RECORD.id, now=EPOCH, bodies=True),
    "owner_of": lambda store: store.owner_of(RECORD.id),
    "referred": lambda store: store.referred(plain_reference(RECORD.id)),
    "transitions": lambda store: store.transitions(RECORD.id),
    "scan": lambda store: store.scan(unfinished=True, wants=lambda _: True, after=None, limit=1, now=EPOCH),
    "swap": lambda store: store.swap(RECORD, expected=0),
    "page": lambda store: store.page(OWNER, where=TaskFilter(), order=TaskOrder(), after=None, limit=1, now=EPOCH),
    "changed task": lambda store: store.changed(TaskWatch(id=RECORD.id, revision=0), timeout=NONE),
    "changed owner": lambda store: store.changed(OwnerWatch(owner=OWNER), timeout=NONE),
    "changed holder": lambda store: store.changed(HolderWatch(holder=HOLDER, since=0), timeout=NONE),
    "changed store": lambda store: store.changed(StoreWatch(since=0), timeout=NONE),
    "renew": lambda store: store.renew(HOLDER, frozenset({RECORD.id}), EPOCH),
    "lapsed": lambda store: store.lapsed(holder=HOLDER, until=EPOCH, now=EPOCH, limit=1),
    "purge": lambda store: store.purge(now=EPOCH, limit=1),
    "put": lambda store: store.put(new_session()),
    "find": lambda store: store.find(OWNER, SESSION.id, now=EPOCH),
    "touch": lambda store: store.touch(frozenset({SESSION.id}), until=EPOCH),
    "drop": lambda store: store.drop(OWNER, SESSION.id),
    "purge_sessions": lambda store: store.purge_sessions(now=EPOCH),
    "census": lambda store: store.census(),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_a_closed_store_refuses(store: Store, verb: Callable[[Store], Awaitable[object]]) -> None:
    await store.insert(RECORD, caps=())
    await store.put(SESSION)
    await store.close()
    async with bounded():
        with pytest.raises(StoreUnavailable):
            await verb(store)


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_what_began_before_the_close_ends(store: Store, verb: Callable[[Store], Awaitable[object]]) -> None:
    beginning = asyncio.ensure_future(verb(store))
    await asyncio.sleep(0)
    async with bounded():
        await store.close()
        (end,) = await asyncio.gather(beginning, return_exceptions=True)
    assert not isinstance(end, Exception) or isinstance(end, StoreUnavailable)


@pytest.mark.parametrize(
    "watch",
    [TaskWatch(id=RECORD.id, revision=0), OwnerWatch(owner=OWNER), HolderWatch(holder=HOLDER), StoreWatch()],
    ids=["task", "owner", "holder", "store"],
)
async def test_a_close_ends_every_wait_early_and_empty(store: Store, watch: Watch) -> None:
    await store.insert(RECORD, caps=())
    waiting = asyncio.create_task(store.changed(watch, timeout=timedelta(hours=1)))
    await asyncio.sleep(0)
    async with bounded():
        await store.close()
        assert (await waiting).changes == ()


async def test_a_second_close_does_nothing(store: Store) -> None:
    async with bounded():
        await asyncio.gather(store.close(), store.close())
        await store.close()


async def test_a_store_that_was_never_used_closes(store: Store) -> None:
    async with bounded():
        await store.close()
