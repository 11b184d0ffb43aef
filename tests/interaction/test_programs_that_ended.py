"""Programs that ended between two requests: whoever comes next finds another, and nothing failed."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import serve
from helpers.loop_pace import paced
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from interaction.programs import program, who, with_program
from interaction.test_awkward_programs import GREETING, awkward, text_of
from interaction.test_programs_of_processes import is_there
from requirements import covers

ENDS = ("answers_and_leaves_a_child", "answers_and_closes_output", "answers_and_closes_input")
"""Tools that answer, and after which nothing can be said to the program any more, though not all signs of it come."""


@covers("U-STDIO-2")
@pytest.mark.parametrize("tool", ENDS)
async def test_a_request_that_meets_a_program_that_ended_is_asked_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tool: str
) -> None:
    def has_ended() -> bool:
        return (tmp_path / "has-closed").exists() or "a server's program ended" in caplog.messages

    async with awkward(tmp_path) as gateway:
        host = await gateway.greeted()
        assert text_of((await host.call(tool)).result) == "well"
        await eventually(has_ended)
        assert text_of((await host.call("echo")).result) == "well"


async def test_of_a_program_that_ends_at_once_the_log_tells_in_order_and_of_which_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where all that is known of it is known at once, as on a busy machine."""

    async def be_busy() -> None:
        while True:
            time.sleep(0.1)
            await asyncio.sleep(0)

    caplog.set_level("INFO")
    async with serve(with_program(command=["sh", "-c", "echo license expired >&2; exit 3"])) as gateway:
        busy = asyncio.create_task(be_busy())
        try:
            await gateway.host().ask("initialize", GREETING)
            for message in ("a server's program ended", "output of a server's program"):
                await eventually(lambda: message in caplog.messages)  # noqa: B023  at once
        finally:
            busy.cancel()
    told = [record for record in caplog.records if record.message.startswith("a server's program")]
    assert told[0].message == "a server's program was started"
    assert told[0].__dict__["pid"] > 0
    assert len({record.__dict__["pid"] for record in told}) == 1


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_callers_who_take_each_others_place_lose_no_call(tmp_path: Path, *, modern: bool) -> None:
    issuer = TokenIssuer(tmp_path)
    config = guarded({}, issuer, upstreams={"reports": program(processes=1, protocol_version="auto")})
    async with serve(config) as gateway:
        # Whoever is quiet for a moment makes room.
        with paced(5):
            tokens = [issuer.token(gateway.url(), subject=name) for name in ("alice", "bob", "carol")]
            hosts: list[Any] = [
                gateway.modern(token=token) if modern else await gateway.greeted(token=token) for token in tokens
            ]
            pids = [(await who(host))["pid"] for _ in range(2) for host in hosts]
            assert len(set(pids)) == 6
            found = await asyncio.gather(*(who(host) for _ in range(3) for host in hosts))
            assert len({each["pid"] for each in found}) >= 3


async def test_a_program_that_was_stopped_for_being_idle_is_started_for_the_next_session() -> None:
    async with serve(with_program(pool={"idle_timeout": "10ms"})) as gateway:
        for _ in range(2):
            host = await gateway.greeted()
            found = await who(host)
            assert await host.leave() == 200
            await eventually(lambda: not is_there(found["pid"]))  # noqa: B023  at once
        # One that comes while the process ends does not meet it.
        host = await gateway.greeted()
        await who(host)
        assert await host.leave() == 200
        assert (await who(await gateway.greeted()))["declared"] == {}
