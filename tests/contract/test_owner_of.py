"""Whose a record is, for operators: whoever asks, and for as long as it is kept."""

from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, keep, new_lease, new_record
from taskgate.domain.events import CallSucceeded
from taskgate.domain.machine import advance
from taskgate.domain.record import OwnerKey
from taskgate.stores.base import Store

OWNERS = [OWNER, OwnerKey("somebody", "elsewhere"), OwnerKey("context\ud800", "mount\udfff"), OwnerKey("a\0b", "c")]


@pytest.mark.parametrize("owner", OWNERS, ids=["usual", "another", "surrogates", "a NUL"])
async def test_whose_a_record_is_is_told_for_its_id_alone(store: Store, owner: OwnerKey) -> None:
    record = new_record(owner=owner, lease=new_lease())
    await keep(store, record, new_record(owner=OwnerKey("one", "more")))
    assert await store.owner_of(record.id) == owner


@pytest.mark.parametrize("id", ["", "unknown", "\ud800", "\0", "{id}\0", "{id} ", "' OR 1=1 --"])
async def test_an_id_that_nobody_has_is_nobodys(store: Store, id: str) -> None:
    record = new_record()
    await keep(store, record)
    assert await store.owner_of(id.replace("{id}", record.id)) is None


async def test_it_is_told_of_what_has_ended_and_what_has_expired_until_that_is_purged(store: Store) -> None:
    record = new_record(ttl=timedelta(seconds=5), lease=new_lease())
    await keep(store, record)
    ended = advance(record, CallSucceeded(result="{}", tool_error=False), EPOCH)
    assert await store.swap(ended, expected=0)
    assert await store.load(OWNER, record.id, now=record.expires_at) is None
    assert await store.owner_of(record.id) == OWNER
    assert len(await store.purge(now=record.expires_at, limit=10)) == 1
    assert await store.owner_of(record.id) is None
