"""The watch sees what an attack does to a gateway."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from attacks.watch import watching
from helpers.gateway.process import serve_process
from helpers.waiting import bounded

pytestmark = [pytest.mark.attack, pytest.mark.alone]


async def test_a_gateway_that_nobody_attacks_answers_and_one_that_stands_still_is_silent(tmp_path: Path) -> None:
    async with (
        bounded(50),
        serve_process(tmp_path, "http://127.0.0.1:9/mcp") as gateway,
        aiohttp.ClientSession(f"http://{gateway.admin}") as http,
    ):
        async with watching(gateway, "nothing") as calm:
            for _ in range(2_000):
                async with http.get("/livez") as answer:
                    assert answer.status == 200
        async with watching(gateway, "stopped") as stopped:
            gateway.ask(signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.8), http.get("/livez"):
                    pass
            gateway.ask(signal.SIGCONT)
        assert calm.answers > 10
        assert calm.longest_silence < 0.5 <= stopped.longest_silence
        assert 0 <= calm.memory_growth < 8 * 2**20
