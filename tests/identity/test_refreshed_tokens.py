"""A new token of the same caller changes nothing: all goes on but what was asked with a token that has ended."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import jwt
import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.identity_provider import IdentityProvider
from helpers.server import ScriptedServer
from helpers.waiting import bounded
from identity.gateways import acquire, begin, guarded, key_file, let_go, scripted
from requirements import covers

STATUS = "notifications/tasks/status"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted() as server:
        yield server


@pytest.fixture
async def gateway(server: ScriptedServer, provider: IdentityProvider) -> AsyncIterator[Gateway]:
    # No leeway: a token ends when it says.
    async with serve(guarded(server, provider, leeway="0s")) as gateway:
        yield gateway


@covers("A-AUTH-13", "I-ISO-1")
async def test_session_task_and_list_are_there_with_the_new_token(gateway: Gateway, provider: IdentityProvider) -> None:
    old, new = [await provider.token(subject="alice") for _ in range(2)]
    told_apart = [jwt.decode(token, options={"verify_signature": False})["jti"] for token in (old, new)]
    assert len(set(told_apart)) == 2
    host = await gateway.greeted(token=old)
    owned = await acquire(host)
    host.token = new
    assert (await host.ask("ping")).status == 200
    assert (await host.task(owned.running))["status"] == "working"
    listed = {task["taskId"] for task in (await host.ask("tasks/list")).result["tasks"]}
    assert listed == {owned.running, owned.ended}
    host.token = old
    assert (await host.task(owned.running))["status"] == "working"


async def test_a_stream_of_the_old_token_tells_of_what_is_done_with_the_new_one(
    gateway: Gateway, provider: IdentityProvider
) -> None:
    old, new = [await provider.token(subject="alice") for _ in range(2)]
    host = await gateway.greeted(token=old)
    async with host.listen() as stream:
        host.token = new
        task = await begin(host)
        await host.ask("tasks/cancel", {"taskId": task})
        assert (await stream.until(STATUS))["params"]["taskId"] == task


async def test_a_wait_of_the_old_token_brings_what_is_waited_for_with_the_new_one_too(
    gateway: Gateway, provider: IdentityProvider, server: ScriptedServer
) -> None:
    old, new = [await provider.token(subject="alice") for _ in range(2)]
    host = await gateway.greeted(token=old)
    task = await begin(host)
    waits = [asyncio.create_task(host.ask("tasks/result", {"taskId": task}))]
    await host.ask("ping")
    renewed = host.again()
    renewed.token = new
    waits.append(asyncio.create_task(renewed.ask("tasks/result", {"taskId": task})))
    await renewed.ask("ping")
    let_go(server)
    async with bounded():
        assert [(await each).result["content"] for each in waits] == [[], []]


@covers("A-AUTH-13")
async def test_when_a_token_ends_its_own_streams_and_waits_end_and_all_else_goes_on(
    gateway: Gateway, provider: IdentityProvider, server: ScriptedServer
) -> None:
    old = await provider.token(subject="alice", lifetime=2)
    new = await provider.token(subject="alice")
    host = await gateway.greeted(token=old)
    renewed = host.again()
    renewed.token = new
    task = await begin(host)
    async with host.listen() as ending, renewed.listen() as staying:
        wait = asyncio.create_task(host.ask("tasks/result", {"taskId": task}))
        # Nothing of the task is given out for a token that has ended meanwhile: the stream breaks off.
        async with bounded():
            with pytest.raises(aiohttp.ClientPayloadError):
                await wait
        await ending.end()
        assert (await renewed.task(task))["status"] == "working"
        let_go(server)
        assert (await renewed.ask("tasks/result", {"taskId": task})).result["content"] == []
        assert (await staying.until(STATUS))["params"]["taskId"] == task
        assert not staying.ended


async def test_a_refresh_across_a_rotation_of_the_deployment_key_keeps_everything(
    server: ScriptedServer, provider: IdentityProvider, tmp_path: Path
) -> None:
    keys = key_file(tmp_path / "key", "first")
    config = guarded(server, provider, auth={"context": {"key_file": str(keys)}}, folder=tmp_path)
    async with serve(config) as gateway:
        host = await gateway.greeted(token=await provider.token(subject="alice"))
        owned = await acquire(host, runs=False)
    key_file(keys, "second", "first")
    async with serve(config) as gateway:
        renewed = gateway.host(token=await provider.token(subject="alice"))
        renewed.session, renewed.revision = owned.session, owned.revision
        made_since = await begin(renewed, "echo")
        listed = [task["taskId"] for task in (await renewed.ask("tasks/list")).result["tasks"]]
        assert listed == [made_since, owned.ended]
        # What was made since is bound to the new key, in whichever session.
        assert (await renewed.task(made_since))["status"] in ("working", "completed")
