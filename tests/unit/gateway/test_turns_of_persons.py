"""Large bodies of all clients of one person take one turn on the thread that parses them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.test_clients_of_one_person import both_eras, client
from requirements import covers
from taskgate.system import offload

TURNS_OF_THE_LOOP = 100


@covers("T46")
@both_eras
async def test_large_bodies_of_all_clients_of_a_person_take_one_turn(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_thread, at_once = offload.in_thread, [0, 0]

    async def counted(work: Callable[[], Any]) -> Any:
        at_once[0] += 1
        at_once[1] = max(at_once)
        try:
            # Time for another body to come beside this one.
            for _ in range(TURNS_OF_THE_LOOP):
                await asyncio.sleep(0)
            return await in_thread(work)
        finally:
            at_once[0] -= 1

    issuer = TokenIssuer(tmp_path)
    async with ScriptedServer() as server, serve(guarded({"reports": server.url}, issuer)) as gateway, bounded():
        hosts = [await client(gateway, issuer, era, "mallory", number) for number in range(3)]
        monkeypatch.setattr(offload, "in_thread", counted)
        body = b" " * 300 * 1024 + b"no message"
        await asyncio.gather(*(host.post(body) for host in hosts))
    assert at_once == [0, 1]
