"""What somebody else says on the channels of the gateways: it makes nobody deaf."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from helpers.records import OWNER
from helpers.records_in_time import record_of_now
from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import OwnerWatch, SessionRecord
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.shared import SharedBackend

LONG = timedelta(hours=1)
GARBAGE = (b"\xff\xfe", b"", b"too\0few", b"m\0one\0o\0h\0id", b"m\x001\0\xff\0h\0id", b"\0\0\0\0\0\0")


async def test_news_that_cannot_be_read_are_dropped(
    one: SharedBackend,
    other: SharedBackend,
    shared_server: SharedServer,
    shared_options: RedisOptions,
    caplog: pytest.LogCaptureFixture,
) -> None:
    since = (await other.store.changed(OwnerWatch(owner=OWNER), timeout=timedelta())).place
    for garbage in GARBAGE:
        assert shared_server.ask("PUBLISH", f"{shared_options.key_prefix}{{taskgate}}:news", garbage) == 2
    record = record_of_now()
    await one.store.insert(record, caps=())
    async with bounded():
        news = await other.store.changed(OwnerWatch(owner=OWNER, since=since), timeout=LONG)
    assert news.complete
    assert [change.id for change in news.changes] == [record.id]
    # Each of the two processes, once.
    assert caplog.text.count("An unreadable change message was ignored") == 2


async def test_garbage_on_the_channel_of_a_stream_is_a_hint_like_any(
    one: SharedBackend, other: SharedBackend, shared_server: SharedServer, caplog: pytest.LogCaptureFixture
) -> None:
    await one.streams.begin("session", "stream", holder="one", about=b"", keep=LONG)
    await other.streams.wait_for_events("session", "stream", timeout=LONG)
    (channel,) = (each for each in shared_server.ask("PUBSUB", "CHANNELS") if b"grown" in each)
    for garbage in GARBAGE:
        async with bounded():
            waiting = asyncio.create_task(other.streams.wait_for_events("session", "stream", timeout=LONG))
            await asyncio.sleep(0)
            shared_server.ask("PUBLISH", channel, garbage)
            await waiting
    assert "growth" not in caplog.text


@pytest.mark.parametrize("field", ["expires", "peer"])
@pytest.mark.parametrize("garbage", [b"lots", b"\xff", b""])
async def test_a_session_that_cannot_be_read_is_no_more_than_that(
    one: SharedBackend, shared_server: SharedServer, shared_options: RedisOptions, field: str, garbage: bytes
) -> None:
    now = datetime.now(UTC)
    session = SessionRecord(id="session", owner=OWNER, peer=record_of_now().call.peer, expires_at=now + LONG)
    await one.store.put(session)
    (row,) = [key for key in shared_server.keys(shared_options.key_prefix) if b":session:" in key]
    shared_server.ask("HSET", row, field, garbage)
    with pytest.raises(StoreUnavailable):
        await one.store.find(OWNER, "session", now=now)
    # To whom it is foreign it is no more than unknown, whatever is in it.
    assert await one.store.find(OWNER._replace(mount="other"), "session", now=now) is None
