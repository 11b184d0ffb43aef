"""A program that sessions share, behind the whole gateway: whom it asks, and who hears it, when it names no call."""

from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.programs import program, who, with_program
from interaction.questions import ACCEPTED, CAPABLE, ELICIT, capable
from requirements import covers

UNTOLD = {"code": -32603, "message": "The request cannot be matched to a session"}


async def told(host: Host) -> Any:
    """What the program was answered, once it was."""
    async with bounded():
        while not (said := (await who(host))["told"]):
            pass
    return said


async def lingering(host: Host) -> str:
    """A task that asks once it is stirred, and waits for that."""
    task: str = (await host.start("linger"))["taskId"]
    # What the program was asked after that it has answered.
    await who(host)
    return task


async def asked_for_nobody_else(host: Host) -> Any:
    """What the program is answered that asks for a call of another while one of the host runs; what the host heard."""
    async with host.listen() as stream:
        task = (await host.start("hold"))["taskId"]
        await who(host)
        await host.call("stir")
        answered = await told(host)
        assert (await host.task(task))["status"] == "working"
        await host.call("release")
        await host.until(task, "completed")
        heard = [message["method"] for message in stream.heard]
    assert ELICIT not in heard
    return answered, heard


@covers("U-STDIO-4", "S-SEC-8")
@pytest.mark.parametrize("leaves", ["cancels", "goes", "stays"])
async def test_a_caller_is_asked_and_told_nothing_of_what_another_gave_up(tmp_path: Path, leaves: str) -> None:
    issuer = TokenIssuer(tmp_path)
    config = guarded({}, issuer, upstreams={"reports": program(sessions="shared", processes=1)})
    async with serve(config) as gateway:
        alice, bob = [await known(gateway, issuer, name) for name in ("alice", "bob")]
        task = await lingering(bob)
        if leaves != "stays":
            await bob.ask("tasks/cancel", {"taskId": task})
        if leaves == "goes":
            await bob.leave()
        answered, heard = await asked_for_nobody_else(alice)
    assert answered == [UNTOLD]
    assert "notifications/message" not in heard


@covers("U-STDIO-4")
@pytest.mark.parametrize("gives_up", [False, True])
async def test_what_may_be_for_another_session_of_the_caller_is_asked_all_the_same(gives_up: bool) -> None:
    async with serve(with_program()) as gateway:
        one, other = await capable(gateway), await capable(gateway)
        task = await lingering(other)
        if gives_up:
            await other.ask("tasks/cancel", {"taskId": task})
        async with one.listen() as stream:
            held = (await one.start("hold"))["taskId"]
            await who(one)
            await one.call("stir")
            await one.respond((await stream.until(ELICIT))["id"], ACCEPTED)
            assert await told(one) == [ACCEPTED]
            await one.call("release")
            await one.until(held, "completed")


@covers("U-STDIO-4")
async def test_a_long_task_keeps_no_other_call_of_its_caller_from_asking() -> None:
    async with serve(with_program()) as gateway:
        host = await capable(gateway)
        held = (await host.start("hold"))["taskId"]
        await who(host)
        async with host.asking("tools/call", {"name": "ask", "arguments": {}}) as stream:
            await host.respond((await stream.until(ELICIT))["id"], ACCEPTED)
            assert "structuredContent" in await stream.result()
        await host.call("release")
        await host.until(held, "completed")


@covers("U-STDIO-4")
async def test_the_only_session_with_a_call_is_asked_for_it_among_several() -> None:
    async with serve(with_program()) as gateway:
        _, host = await capable(gateway), await capable(gateway)
        task = await lingering(host)
        await host.call("stir")
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            await host.respond((await stream.until(ELICIT))["id"], ACCEPTED)
            assert (await stream.result())["structuredContent"] == {"answered": ACCEPTED}


async def known(gateway: Gateway, issuer: TokenIssuer, name: str) -> Host:
    host = gateway.host(token=issuer.token(gateway.url(), subject=name))
    await host.initialize("2025-11-25", capabilities=CAPABLE)
    return host
