"""Host sessions: for their owner, until they expire or end."""

from dataclasses import replace
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, new_peer, new_session
from taskgate.domain.record import OwnerKey
from taskgate.domain.versions import Revision
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import SessionRecord, Store

FOREIGN = [OwnerKey("somebody", OWNER.mount), OwnerKey(OWNER.context, "elsewhere"), OwnerKey("", "")]
LATER = EPOCH + timedelta(hours=5)
SESSIONS = {
    "plain": new_session(),
    "every field": new_session(
        owner=OwnerKey("kontext\ud800", "möunt"),
        peer=new_peer(
            revision=Revision.R2024_11_05,
            capabilities={"roots": {"listChanged": True}},
            info={"name": "\udfff", "n": 2**70},
        ),
        expires_at=EPOCH + timedelta(days=3, microseconds=7),
    ),
}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
async def test_a_session_comes_back_as_it_was(store: Store, session: SessionRecord) -> None:
    await store.put(session)
    assert await store.find(session.owner, session.id, now=EPOCH) == session


@pytest.mark.parametrize("owner", FOREIGN)
async def test_a_session_of_somebody_else_is_not_found(store: Store, owner: OwnerKey) -> None:
    session = new_session()
    await store.put(session)
    assert await store.find(owner, session.id, now=EPOCH) is None


@pytest.mark.parametrize("id", ["", "unknown", "\ud800", "{id}\0"])
async def test_an_id_that_nobody_has_is_not_found(store: Store, id: str) -> None:
    session = new_session()
    await store.put(session)
    assert await store.find(OWNER, id.replace("{id}", session.id), now=EPOCH) is None
    assert not await store.drop(OWNER, id.replace("{id}", session.id))


async def test_a_session_is_not_found_from_the_moment_it_expires(store: Store) -> None:
    session = new_session()
    await store.put(session)
    assert await store.find(OWNER, session.id, now=session.expires_at - timedelta(microseconds=1)) == session
    assert await store.find(OWNER, session.id, now=session.expires_at) is None


async def test_an_id_is_kept_once_and_the_first_session_stays(store: Store) -> None:
    session = new_session()
    await store.put(session)
    with pytest.raises(StoreUnavailable):
        await store.put(replace(session, owner=FOREIGN[0]))
    assert await store.find(OWNER, session.id, now=EPOCH) == session
    assert await store.find(FOREIGN[0], session.id, now=EPOCH) is None


async def test_touching_moves_the_expiry_of_those_that_are_there(store: Store) -> None:
    touched, left = new_session(), new_session()
    await store.put(touched)
    await store.put(left)
    await store.touch(frozenset({touched.id, "gone", "\ud800"}), until=LATER)
    assert await store.find(OWNER, touched.id, now=EPOCH) == replace(touched, expires_at=LATER)
    assert await store.find(OWNER, left.id, now=EPOCH) == left
    assert await store.find(OWNER, "gone", now=EPOCH) is None


async def test_touching_nothing_does_nothing(store: Store) -> None:
    await store.touch(frozenset(), until=LATER)


async def test_a_session_is_dropped_once_and_by_its_owner_alone(store: Store) -> None:
    session = new_session()
    await store.put(session)
    for owner in FOREIGN:
        assert not await store.drop(owner, session.id)
    assert await store.find(OWNER, session.id, now=EPOCH) == session
    assert await store.drop(OWNER, session.id)
    assert await store.find(OWNER, session.id, now=EPOCH) is None
    assert not await store.drop(OWNER, session.id)


async def test_a_purge_forgets_what_has_expired_and_tells_how_many(store: Store) -> None:
    sessions = [new_session(expires_at=EPOCH + timedelta(seconds=number)) for number in range(4)]
    for session in sessions:
        await store.put(session)
    assert await store.purge_sessions(now=EPOCH + timedelta(seconds=1)) == 2
    assert await store.purge_sessions(now=EPOCH + timedelta(seconds=1)) == 0
    found = [await store.find(OWNER, session.id, now=EPOCH - timedelta(days=1)) for session in sessions]
    assert found == [None, None, *sessions[2:]]
