"""Opening the store that several processes share: what is refused, and what is waited for."""

import asyncio
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.certificates import Authority
from helpers.manual_clock import EPOCH
from helpers.ports import free_port
from helpers.records import new_session
from helpers.records_in_time import record_of_now
from helpers.shared_store import KINDS, Clustered, Kind, SharedServer, Watched
from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.open import open_shared
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.shared import SharedBackend

SECRET = "a-password-that-is-told-to-nobody"
LONG = timedelta(minutes=5)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Both in turn."""
    return request.param


async def refusal(options: RedisOptions) -> str:
    """Why a store is not opened."""
    with pytest.raises(StoreUnavailable) as refused:
        await open_shared(options)
    assert SECRET not in repr(refused.value)
    return str(refused.value)


async def expect_all_to_work(shared: SharedBackend) -> None:
    """Everything that there is, once."""
    record, session = record_of_now(), new_session()
    assert await shared.store.insert(record, caps=()) == record.id
    assert await shared.store.load(record.owner, record.id, now=record.created_at) is not None
    assert len(await shared.store.lapsed(holder="one", until=EPOCH, now=EPOCH, limit=1)) == 1
    await shared.store.put(session)
    await shared.store.touch(frozenset({session.id}), until=session.expires_at)
    assert await shared.store.find(session.owner, session.id, now=EPOCH) == session
    assert await shared.store.drop(session.owner, session.id)
    assert await shared.store.purge_sessions(now=EPOCH) == 0
    await shared.store.census()
    assert (await shared.leases.beat("one", {}, lease=LONG)).alive == {"one"}
    await shared.leases.part("one")
    await shared.bus.send(b"word")
    assert await shared.bus.receive(timeout=timedelta(milliseconds=5)) == ()
    await shared.bus.leave("parcel", b"", keep=LONG)
    assert await shared.bus.fetch("parcel") == b""
    await shared.streams.begin("session", "stream", holder="one", about=b"", keep=LONG)
    await shared.streams.append("session", "stream", [(1, b"")], over=False, keep=LONG)
    assert await shared.streams.read("session", "stream", after=0) is not None
    await shared.streams.wait_for_events("session", "stream", timeout=LONG)
    await shared.streams.forget("session", "stream")
    await shared.store.purge(now=record.expires_at, limit=10)


async def expect_to_open(options: RedisOptions) -> None:
    """It opens, and all of it works."""
    async with bounded():
        shared = await open_shared(options)
        try:
            await expect_all_to_work(shared)
        finally:
            await shared.store.close()


async def test_a_server_without_a_password_is_opened(shared_options: RedisOptions) -> None:
    await expect_to_open(shared_options)
    await expect_to_open(replace(shared_options, database=3))


async def test_a_password_is_sent_and_a_wrong_one_refused(tmp_path: Path, kind: Kind) -> None:
    async with SharedServer(tmp_path, kind, password=SECRET) as server:
        await expect_to_open(server.options())
        for options in (
            server.options(password=None),
            server.options(password=SECRET + "?"),
            server.options(username="nobody"),
        ):
            assert "username or the password" in await refusal(options)


async def test_a_password_that_the_server_does_not_have_is_refused(shared_options: RedisOptions) -> None:
    assert "username or the password" in await refusal(replace(shared_options, password=SECRET))


async def test_a_user_needs_these_rights_and_no_others(tmp_path: Path, kind: Kind) -> None:
    rights = "-@all +@read +@write +@scripting +@pubsub +@connection +@transaction +time +info +wait +role"
    user = f"gate on >{SECRET} ~mine:* &mine:* {rights} -@dangerous +info +role"
    async with SharedServer(tmp_path, kind, settings={"user": user}) as server:
        await expect_to_open(server.options(username="gate", password=SECRET, key_prefix="mine:"))
        assert "refuses" in await refusal(server.options(username="gate", password=SECRET, key_prefix="others:"))


@pytest.mark.parametrize(
    "rights", ["+@all", "&{prefix}*news +@all", "&{prefix}*grown:* +@all", "&* +@all -publish", "&* +@all -subscribe"]
)
async def test_a_user_without_the_channels_is_refused(tmp_path: Path, kind: Kind, rights: str) -> None:
    """What others did would never be heard of, while all that is read or written would be answered."""
    granted = rights.format(prefix="mine:")
    user = f"gate on >{SECRET} ~mine:* resetchannels {granted}"
    async with SharedServer(tmp_path, kind, settings={"user": user}) as server:
        told = await refusal(server.options(username="gate", password=SECRET, key_prefix="mine:"))
    assert "needs access to the channels under store.redis.key_prefix (&mine:* +@pubsub)" in told
    assert "permissions to" in told


async def test_a_user_of_a_cluster_without_the_channels_is_refused(tmp_path: Path, kind: Kind) -> None:
    async with Clustered(tmp_path, kind, replicas=0) as cluster:
        for node in cluster.primaries:
            node.ask("ACL", "SETUSER", "gate", "on", f">{SECRET}", "~*", "resetchannels", "+@all")
        assert "the channels" in await refusal(cluster.options(username="gate", password=SECRET))


async def test_a_user_by_sentinel_without_the_channels_is_refused(tmp_path: Path, kind: Kind) -> None:
    async with Watched(tmp_path, kind) as watched:
        watched.primary.ask("ACL", "SETUSER", "gate", "on", f">{SECRET}", "~*", "resetchannels", "+@all")
        assert "the channels" in await refusal(watched.options(username="gate", password=SECRET))


async def test_a_store_whose_channels_are_taken_away_is_not_used_until_they_are_given_back(
    tmp_path: Path, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    user = f"gate on >{SECRET} ~* &* +@all"
    async with SharedServer(tmp_path, kind, settings={"user": user}) as server, bounded():
        shared = await open_shared(server.options(username="gate", password=SECRET))
        # Whoever listens there is cut off by that.
        server.ask("ACL", "SETUSER", "gate", "resetchannels")
        while "needs access to the channels" not in caplog.text:
            await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable):
            await shared.store.census()
        server.ask("ACL", "SETUSER", "gate", "allchannels")
        await until_it_works(shared)
        await shared.store.close()


async def test_a_user_who_may_not_ask_for_the_time_is_refused(tmp_path: Path, kind: Kind) -> None:
    """No sign of life would be taken from him, while all that is read would be answered."""
    async with SharedServer(tmp_path, kind, settings={"user": f"gate on >{SECRET} ~* &* +@all -time"}) as server:
        told = await refusal(server.options(username="gate", password=SECRET))
    assert "refuses" in told
    assert "time" in told


async def test_a_user_who_may_not_ask_for_the_policy_is_warned(
    tmp_path: Path, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"user": f"gate on >{SECRET} ~* &* +@all -info", "maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
    async with SharedServer(tmp_path, kind, settings=settings) as server, bounded():
        shared = await open_shared(server.options(username="gate", password=SECRET))
        await expect_all_to_work(shared)
        server.kill()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await shared.store.census()
        server.start()
        await until_it_works(shared)
        await shared.store.close()
    assert caplog.text.count("make sure that the server's maxmemory-policy is noeviction") == 1


async def test_a_database_that_is_not_there_is_refused(shared_options: RedisOptions) -> None:
    assert "refuses" in await refusal(replace(shared_options, database=16))


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
async def test_a_server_that_drops_keys_is_refused(tmp_path: Path, kind: Kind, policy: str) -> None:
    async with SharedServer(tmp_path, kind, settings={"maxmemory": "100mb", "maxmemory-policy": policy}) as server:
        assert policy in await refusal(server.options())
        server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await expect_to_open(server.options())


async def test_a_policy_is_of_no_interest_where_the_memory_has_no_bound(tmp_path: Path, kind: Kind) -> None:
    async with SharedServer(tmp_path, kind, settings={"maxmemory-policy": "allkeys-lru"}) as server:
        await expect_to_open(server.options())


async def test_a_node_of_a_cluster_is_refused_where_none_is_named(tmp_path: Path, kind: Kind) -> None:
    async with Clustered(tmp_path, kind, replicas=0) as cluster:
        assert "node of a cluster" in await refusal(replace(cluster.options(), mode="standalone"))
        await expect_to_open(cluster.options())


async def test_a_server_that_is_not_there_is_waited_for(
    tmp_path: Path, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    server = SharedServer(tmp_path, kind)
    shared = await open_shared(server.options())
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="not available"):
            await shared.store.census()
    async with server, bounded():
        await until_it_works(shared)
        await expect_all_to_work(shared)
        await shared.store.close()
    assert caplog.text.count("cannot be used") == 1
    assert caplog.text.count("can be used again") == 1


async def test_what_is_found_unfit_later_is_not_used_until_it_is_fit(
    tmp_path: Path, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    server = SharedServer(tmp_path, kind, settings={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    shared = await open_shared(server.options())
    async with server, bounded():
        while "maxmemory-policy allkeys-lru" not in caplog.text:
            with pytest.raises(StoreUnavailable):
                await shared.store.census()
            await asyncio.sleep(0)
        server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await until_it_works(shared)
        await shared.store.close()


async def until_it_works(shared: SharedBackend) -> None:
    """Ask until there is an answer."""
    while True:
        try:
            await shared.store.census()
            return
        except StoreUnavailable:
            await asyncio.sleep(0)


async def test_tls_is_spoken_to_a_server_that_the_authority_vouches_for(tmp_path: Path) -> None:
    authority, another = Authority(tmp_path), Authority(tmp_path, "another")
    async with SharedServer(tmp_path, "redis", tls=authority) as server:
        await expect_to_open(server.options())
        assert "certificate" in await refusal(server.options(ca_file=another.file))
        assert "cannot be used" in await refusal(server.options(ca_file=tmp_path / "none.pem"))


async def test_a_certificate_of_our_own_is_shown_where_one_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.host(tmp_path)
    own = {"cert_file": tmp_path / "host.crt", "key_file": tmp_path / "host.key"}
    own["key_file"].chmod(0o600)
    async with SharedServer(tmp_path, "redis", tls=authority, settings={"tls-auth-clients": "yes"}) as server:
        await expect_to_open(server.options(**own))
        assert "cannot be used" in await refusal(server.options(**{**own, "key_file": authority.file}))
        own["key_file"].chmod(0o604)
        assert "store.redis.tls.key_file" in await refusal(server.options(**own))


async def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("redis", "taskgate.stores.redis."))]:
        if name != "taskgate.stores.redis.options":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    assert "pip install 'taskgate[redis]'" in await refusal(RedisOptions(port=free_port()))
