"""Servers that are programs, while the configuration changes under them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, Reloaded, serve
from helpers.waiting import bounded, eventually
from interaction.programs import program, who, with_program
from interaction.reloads import SUCCESS
from interaction.test_programs_of_processes import is_there


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with serve(with_program(env={"A": "1"})) as gateway:
        yield gateway


async def test_a_program_that_was_not_changed_keeps_its_process(gateway: Gateway) -> None:
    host = await gateway.greeted()
    before = await who(host)
    upstreams = {"reports": program(env={"A": "1"}, concurrency=3), "more": program("more") | {"path": "/more"}}
    assert await gateway.reload(configuration({}, upstreams=upstreams)) == SUCCESS
    assert (await who(host))["pid"] == (await who(await gateway.greeted()))["pid"] == before["pid"]
    assert await gateway.reload(configuration({}, upstreams=upstreams)) == Reloaded(result="unchanged")


@pytest.mark.parametrize(
    ("arguments", "env"), [(("other",), {"A": "1"}), ((), {"A": "2"})], ids=["command", "environment"]
)
async def test_a_program_that_was_changed_is_started_anew_for_new_sessions(
    gateway: Gateway, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    old = await gateway.greeted()
    before = await who(old)
    assert await gateway.reload(with_program(*arguments, env=env)) == SUCCESS
    after = await who(await gateway.greeted())
    assert (after["arguments"], after["environment"]["A"]) == (list(arguments), env["A"])
    assert (await who(old))["pid"] == before["pid"] != after["pid"]


async def test_the_process_of_a_program_that_was_changed_ends_once_nobody_uses_it(gateway: Gateway) -> None:
    host = await gateway.greeted()
    pid = (await who(host))["pid"]
    assert await gateway.reload(with_program("other")) == SUCCESS
    await who(host)
    assert is_there(pid)
    assert await host.leave() == 200
    await eventually(lambda: not is_there(pid))


async def test_a_call_that_runs_while_its_program_is_changed_completes_and_the_next_meets_the_change(
    gateway: Gateway,
) -> None:
    host, modern = await gateway.greeted(), gateway.modern()
    old = (await who(host))["pid"]
    waiting, task = asyncio.create_task(host.call("hold")), (await host.start("hold"))["taskId"]
    await gateway.upstream_is(in_use=2)
    await who(host)
    assert await gateway.reload(with_program(env={"A": "2"})) == SUCCESS
    for next_ in (modern, await gateway.greeted()):
        found = await who(next_)
        assert (found["environment"]["A"], found["pid"] == old) == ("2", False)
    assert (await host.call("release")).result["structuredContent"] == {"released": 2}
    async with bounded():
        assert (await waiting).result["structuredContent"] == {"held": True}
    assert (await host.ask("tasks/result", {"taskId": task})).result["structuredContent"] == {"held": True}
