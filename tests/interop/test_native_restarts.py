"""Tasks that a real server runs as its own go on when the gateway is there again that was killed meanwhile."""

from pathlib import Path

import aiohttp
import pytest

from helpers.host.host import Host
from helpers.waiting import eventually
from interop.hosts import OFFICIAL, place_for
from interop.native import native_server

pytestmark = [*OFFICIAL, pytest.mark.timeout(300)]

ELICIT = "elicitation/create"


async def test_tasks_go_on_and_what_was_asked_before_is_answered_after(tmp_path: Path) -> None:
    async with native_server(tmp_path) as native, aiohttp.ClientSession() as http:
        place = place_for(native.url, tmp_path)
        host = Host(http, place.url)
        async with place.gateway() as gateway:
            await host.initialize(capabilities={"elicitation": {"form": {}}})
            working = (await host.start("research", {"topic": "it", "steps": 6, "pause": 0.5}))["taskId"]
            asking = (await host.start("consult", {"rounds": 2}))["taskId"]
            async with host.asking("tasks/result", {"taskId": asking}) as stream:
                await stream.until(ELICIT)
            await eventually(lambda: native.did("began it"))
            gateway.kill()
            await gateway.exit_status()
        async with place.gateway():
            async with host.asking("tasks/result", {"taskId": asking}) as stream:
                for number in (1, 2):
                    asked = await stream.until(ELICIT, times=number)
                    assert asked["params"]["message"] == f"Word {number}?"
                    await host.respond(asked["id"], {"action": "accept", "content": {"word": f"w{number}"}})
                assert (await stream.result())["content"][0]["text"] == "w1 w2"
            result = (await host.ask("tasks/result", {"taskId": working})).result
            assert result["content"][0]["text"] == "all about it"
    assert [native.did(what) for what in ("began it", "stopped it", "ended it", "began consult")] == [1, 0, 1, 1]
