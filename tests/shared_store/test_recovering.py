"""A server that was away for a moment: those who wait for news of it go on."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.records_in_time import record_of_now
from helpers.shared_store import KINDS, Kind, SharedServer
from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import TaskWatch
from taskgate.stores.open import open_shared

LONG = timedelta(minutes=5)


@pytest.mark.parametrize("kind", KINDS)
async def test_who_waits_is_woken_once_the_server_can_be_asked(tmp_path: Path, kind: Kind) -> None:
    async with SharedServer(tmp_path, kind) as server, bounded():
        shared = await open_shared(server.options())
        record = record_of_now()
        await shared.store.insert(record, caps=())
        watch = TaskWatch(id=record.id, revision=record.revision)
        waiting = asyncio.create_task(shared.store.changed(watch, timeout=LONG))
        # What it looks at before it waits is answered by then.
        for _ in range(3):
            await shared.store.census()
        server.kill()
        # A connection that is cut is no outage yet; one that cannot be made is.
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await shared.store.census()
        server.start()
        assert not (await waiting).complete
        await shared.store.load(record.owner, record.id, now=record.created_at)
        await shared.store.close()
