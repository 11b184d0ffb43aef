"""A write counts once as many replicas have it as are configured, and once the server has it on its disk."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import new_session
from helpers.records_in_time import record_of_now
from helpers.shared_store import KINDS, Clustered, Kind, SharedServer
from taskgate.errors import StoreUnavailable
from taskgate.stores.open import open_shared
from taskgate.stores.redis.options import KeyNames

SHORT = timedelta(milliseconds=400)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Both in turn."""
    return request.param


async def test_what_was_acknowledged_is_at_the_replica(tmp_path: Path, kind: Kind) -> None:
    async with SharedServer(tmp_path, kind) as primary, SharedServer(tmp_path, kind, replica_of=primary) as replica:
        await asyncio.to_thread(primary.until, lambda: primary.has_replicas(1))
        options = primary.options(wait_replicas=1, command_timeout=SHORT)
        shared = await open_shared(options)
        await shared.store.insert(record_of_now(), caps=())
        await shared.store.put(new_session())
        primary.ask("CONFIG", "RESETSTAT")
        record, session = record_of_now(), new_session()
        await shared.store.insert(record, caps=())
        await shared.store.put(session)
        assert len(replica.keys(options.key_prefix)) == len(primary.keys(options.key_prefix))
        assert primary.commands()["wait"] == 2
        assert await shared.store.load(record.owner, record.id, now=record.created_at) is not None
        assert primary.commands()["wait"] == 2
        replica.pause()
        with pytest.raises(StoreUnavailable, match="too few replicas"):
            await shared.store.put(new_session())
        assert await shared.store.find(session.owner, session.id, now=EPOCH) == session
        replica.resume()
        await shared.store.put(new_session())
        primary.ask("SCRIPT", "FLUSH")
        await shared.store.put(new_session())
        with pytest.raises(StoreUnavailable, match="already"):
            await shared.store.put(session)
        await shared.store.close()


async def test_replicas_that_are_not_there_are_not_waited_for_in_vain(tmp_path: Path, kind: Kind) -> None:
    async with SharedServer(tmp_path, kind) as server:
        shared = await open_shared(server.options(wait_replicas=1, command_timeout=SHORT))
        with pytest.raises(StoreUnavailable, match="too few replicas"):
            await shared.store.put(new_session())
        await shared.store.census()
        await shared.store.close()


async def test_a_node_of_a_cluster_waits_for_its_replicas(tmp_path: Path, kind: Kind) -> None:
    async with Clustered(tmp_path, kind) as cluster:
        options = cluster.options(wait_replicas=1, command_timeout=SHORT)
        primary, replica = cluster.holder(KeyNames(options.key_prefix).of("any"))
        shared = await open_shared(options)
        await shared.store.put(new_session())
        primary.ask("CONFIG", "RESETSTAT")
        await shared.store.put(new_session())
        assert primary.commands()["wait"] == 1
        replica.pause()
        with pytest.raises(StoreUnavailable, match="too few replicas"):
            await shared.store.put(new_session())
        replica.resume()
        await shared.store.close()


async def test_what_was_acknowledged_outlives_the_server_that_syncs_each_write(tmp_path: Path, kind: Kind) -> None:
    async with SharedServer(tmp_path, kind, durable=True) as server:
        shared = await open_shared(server.options())
        sessions = [new_session() for _ in range(50)]
        await asyncio.gather(*(shared.store.put(session) for session in sessions))
        await server.restart(kill=True)
        found = [await shared.store.find(session.owner, session.id, now=EPOCH) for session in sessions]
        assert found == sessions
        await shared.store.close()
