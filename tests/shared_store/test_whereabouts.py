"""Where the server is, as sentinels and nodes of a cluster tell it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import redis.asyncio as redis

from helpers.shared_store import Clustered, Watched
from helpers.waiting import bounded
from taskgate.stores.redis.options import KeyNames, RedisOptions
from taskgate.stores.redis.topology import ClusterTopology, SentinelTopology, ServerAddress

NOWHERE = ServerAddress("127.0.0.1", 1)


def dialer(options: RedisOptions) -> Callable[..., redis.Connection]:
    """Makes connections to whichever server it is told."""

    def dial(address: ServerAddress, known: bool = True) -> redis.Connection:
        user = {"username": options.username, "password": options.password} if known else {}
        return redis.Connection(host=address.host, port=address.port, protocol=2, driver_info=None, **user)

    return dial


def slotted(options: RedisOptions, first: ServerAddress) -> ClusterTopology:
    """Whoever has the slot of the deployment, asked of a node."""
    return ClusterTopology(first, KeyNames(options.key_prefix).of("any"), dialer(options), 2)


async def test_a_place_that_another_node_names_is_believed_without_asking() -> None:
    options = RedisOptions(mode="cluster")
    nodes = slotted(options, NOWHERE)
    nodes.redirect(ServerAddress("127.0.0.1", 7))
    async with bounded():
        assert await nodes.locate() == ("127.0.0.1", 7)


async def test_other_nodes_are_asked_where_the_first_is_gone(tmp_path: Path) -> None:
    async with Clustered(tmp_path, replicas=0) as cluster, bounded():
        options = cluster.options()
        slot = cluster.primaries[0].ask("CLUSTER", "KEYSLOT", KeyNames(options.key_prefix).of("any"))
        holder = cluster.primaries[slot * 3 // 16384]
        nodes = slotted(options, ServerAddress("127.0.0.1", cluster.primaries[0].port))
        there = ServerAddress("127.0.0.1", holder.port)
        assert await nodes.locate() == there
        next(node for node in cluster.primaries if node is not holder).kill()
        nodes.forget(NOWHERE)
        assert await nodes.locate() == there
        nodes.forget(there)
        assert await nodes.locate() == there


async def test_sentinels_are_asked_once_however_many_want_to_know(tmp_path: Path) -> None:
    async with Watched(tmp_path) as watched, bounded():
        options = watched.options()
        sentinels = [ServerAddress(*each) for each in options.sentinels]
        elected = SentinelTopology(sentinels, watched.SERVICE, dialer(options), 2)
        before = watched.sentinel.info("stats")["total_connections_received"]
        found = await asyncio.gather(*(elected.locate() for _ in range(20)))
        assert set(found) == {("127.0.0.1", watched.primary.port)}
        # One that asks for the primary, and one that counts.
        assert watched.sentinel.info("stats")["total_connections_received"] <= before + 2
