"""The end of a shared store: nobody is kept waiting."""

import asyncio
from pathlib import Path

import pytest

from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.open import open_shared


async def test_closing_ends_what_is_under_way_and_a_closed_store_refuses(tmp_path: Path) -> None:
    async with SharedServer(tmp_path) as server:
        shared = await open_shared(server.options(max_connections=2))
        server.pause()
        # The last one waits for a connection.
        waiting = [asyncio.create_task(shared.bus.fetch(name)) for name in "abc"]
        for _ in range(3):
            await asyncio.sleep(0)
        async with bounded(1):
            await shared.store.close()
            await shared.store.close()
            await asyncio.wait(waiting)
        server.resume()
        for ended in (*waiting, asyncio.create_task(shared.leases.part("one"))):
            with pytest.raises(StoreUnavailable):
                await ended


async def test_an_outage_ends_with_the_store(tmp_path: Path) -> None:
    """Nobody looks for a server on behalf of a store that is closed."""
    server = SharedServer(tmp_path)
    shared = await open_shared(server.options())
    async with shared.open_leases() as leases:
        for ask in (shared.leases.part, leases.part):
            with pytest.raises(StoreUnavailable):
                await ask("one")
    async with bounded(1):
        await shared.store.close()
