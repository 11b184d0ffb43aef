"""A record comes back as it was, for its owner, until it expires."""

from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, in_text, keep, new_call, new_input, new_lease, new_peer, new_record
from taskgate.domain.events import CallSucceeded
from taskgate.domain.machine import advance
from taskgate.domain.record import Faulted, FaultReason, OwnerKey, Succeeded, TaskRecord, TaskStatus
from taskgate.domain.versions import Revision
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import Store
from taskgate.stores.codec import as_head

MIB = 1024 * 1024
RECORDS = {
    "plain": new_record(),
    "every field": new_record(
        call=new_call(
            peer=new_peer(revision=Revision.R2025_06_18, capabilities={"x": [1, None, {"y": 0.5}]}, info={}),
            host_session="session",
            progress_token=7,
            params="{}",
        ),
        status=TaskStatus.INPUT_REQUIRED,
        status_message="Höher, weiter \N{ROCKET}",
        updated_at=EPOCH + timedelta(microseconds=1),
        ttl=timedelta(days=36_500, microseconds=3),
        poll_interval=timedelta(milliseconds=250),
        revision=41,
        dispatched=True,
        dispatched_at=EPOCH + timedelta(microseconds=1),
        inputs=(new_input("input-2"), new_input("input-3", claimed_by="stream")),
        inputs_made=3,
        answers={"input-1": '{"action":"accept"}'},
        lease=new_lease(),
    ),
    "a token that is text": new_record(call=new_call(progress_token="seven")),
    "no params": new_record(params=None),
    "empty params": new_record(params=""),
    "completed": new_record(status=TaskStatus.COMPLETED, outcome=Succeeded(result='{"content": []}', tool_error=False)),
    "a tool's error": new_record(
        status=TaskStatus.COMPLETED, tool_error=True, outcome=Succeeded(result='{"isError":true}', tool_error=True)
    ),
    "failed": new_record(
        status=TaskStatus.FAILED, outcome=Faulted(error='{"code":-32000}', reason=FaultReason.JSONRPC_ERROR)
    ),
    "cancelled": new_record(status=TaskStatus.CANCELLED),
    "lone surrogates": new_record(
        call=new_call(tool="tool\ud800", params='{"x":"\udfff"}', peer=new_peer(info={"name": "\ud83d"})),
        status_message="\udc00",
        owner=OwnerKey("context\ud800", "mount\udfff"),
    ),
    "a NUL": new_record(params='"\0"', status_message="a\0b", owner=OwnerKey("a\0b", "c")),
    "a large number": new_record(call=new_call(progress_token=2**80, peer=new_peer(capabilities={"n": -(2**64)}))),
    "1 MiB": new_record(
        params='"' + "pä\n\u2028" * (MIB // 6) + '"',
        status=TaskStatus.COMPLETED,
        outcome=Succeeded(result="[" + "0," * (MIB // 2) + "0]", tool_error=False),
    ),
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
async def test_a_record_comes_back_as_it_was(store: Store, record: TaskRecord) -> None:
    await keep(store, record)
    assert in_text(await store.load(record.owner, record.id, now=EPOCH, bodies=True)) == record


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
async def test_a_head_comes_back_without_its_bodies(store: Store, record: TaskRecord) -> None:
    await keep(store, record)
    head = await store.load(record.owner, record.id, now=EPOCH)
    assert head is not None
    assert (head.call.params, head.outcome) == (None, None)
    assert head == as_head(record)


@pytest.mark.parametrize(
    "owner",
    [
        OwnerKey("somebody", OWNER.mount),
        OwnerKey(OWNER.context, "elsewhere"),
        OwnerKey(OWNER.mount, OWNER.context),
        OwnerKey(OWNER.context + OWNER.mount[0], OWNER.mount[1:]),
        OwnerKey(f"{OWNER.context}\0", OWNER.mount),
        OwnerKey("", ""),
    ],
    ids=["context", "mount", "swapped", "shifted", "longer", "empty"],
)
@pytest.mark.parametrize("bodies", [False, True])
async def test_a_record_of_somebody_else_is_not_found(store: Store, owner: OwnerKey, bodies: bool) -> None:
    record = new_record()
    await keep(store, record)
    assert await store.load(owner, record.id, now=EPOCH, bodies=bodies) is None


@pytest.mark.parametrize("id", ["", "unknown", "\ud800", "\0", "{id}\0", "{id} ", "' OR 1=1 --"])
async def test_an_id_that_nobody_has_is_not_found(store: Store, id: str) -> None:
    record = new_record()
    await keep(store, record)
    assert await store.load(OWNER, id.replace("{id}", record.id), now=EPOCH) is None


@pytest.mark.parametrize("bodies", [False, True])
async def test_a_record_is_not_found_from_the_moment_it_expires(store: Store, bodies: bool) -> None:
    record = new_record(ttl=timedelta(seconds=5))
    await keep(store, record)
    last = record.expires_at - timedelta(microseconds=1)
    assert await store.load(OWNER, record.id, now=last, bodies=bodies) is not None
    assert await store.load(OWNER, record.id, now=record.expires_at, bodies=bodies) is None


async def test_expiry_follows_the_callers_time_even_when_it_goes_back(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    assert await store.load(OWNER, record.id, now=record.expires_at) is None
    assert await store.load(OWNER, record.id, now=EPOCH) is not None


async def test_an_id_is_kept_once_and_the_first_record_stays(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    with pytest.raises(StoreUnavailable):
        await store.insert(new_record(id=record.id, owner=OwnerKey("somebody", "else"), params="2"), caps=())
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record


# --- owners, for operators --------------------------------------------------------------------------------------------


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
