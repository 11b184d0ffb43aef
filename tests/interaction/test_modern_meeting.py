"""Hosts of the modern era that wait for a server to be met before their request goes to it."""

from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.host import called
from helpers.server import Hold, ScriptedServer, error, in_turn, stream
from helpers.waiting import bounded, eventually
from interaction.questions import DONE
from interaction.refusals import refused
from requirements import covers

PROGRESS = "notifications/progress"
CUT_OFF = {"origin": "gateway", "reason": "shutdown", "dispatched": True}


@pytest.fixture
def server(server: ScriptedServer) -> ScriptedServer:
    """The server, which has no sessions that would end with an answer to it."""
    server.sessions = False
    return server


def config(server: ScriptedServer, mode: str = "auto", **listener: Any) -> str:
    rules = {"upgrade": [{"tool": "*", "mode": mode}]}
    return configuration({"reports": server.url}, tasks=rules, server={"sse_keepalive": "10ms", **listener})


@pytest.mark.parametrize(("method", "params"), [("tools/call", called("echo")), ("server/discover", {})])
async def test_a_drain_cuts_off_who_still_waits(server: ScriptedServer, method: str, params: dict[str, Any]) -> None:
    server.methods["initialize"] = hold = Hold()
    drain = {"delay": "0s", "timeout": "100ms"}
    async with (
        serve(config(server, drain=drain)) as gateway,
        gateway.modern().asking(method, params) as asked,
        bounded(),
    ):
        await hold.begun.wait()
        await gateway.drain()
        answer = await asked.answer()
    assert refused(answer, 200, -32603)["data"] == CUT_OFF
    assert server.heard("tools/call") == []


@covers("M-PROG-1")
async def test_progress_begins_with_the_call_and_only_grows(server: ScriptedServer) -> None:
    server.methods["tools/list"] = listing = Hold()
    server.script["echo"] = hold = Hold()
    async with serve(config(server, "sync")) as gateway:
        calling = gateway.modern().asking("tools/call", called("echo"), meta={"progressToken": "mine"})
        async with calling as asked, bounded():
            await asked.opened()
            assert asked.of(PROGRESS) == []
            listing.release({"tools": server.tools})
            await hold.begun.wait()
            told = len(asked.of(PROGRESS))
            await eventually(lambda: len(asked.of(PROGRESS)) > told + 1)
            hold.release(DONE)
            answer = await asked.answer()
    done = [each["params"]["progress"] for each in answer.notices]
    assert done == sorted(set(done))
    assert answer.result["content"] == DONE["content"]


@covers("H-MOD-13", "M-MRTR-5")
async def test_who_brings_answers_is_kept_alive_too(server: ScriptedServer) -> None:
    server.methods |= {"initialize": Hold(), "resources/read": stream({"contents": []})}
    answers = {"uri": "file:///a", "inputResponses": {}}
    async with serve(config(server)) as gateway, gateway.modern().asking("resources/read", answers) as asked:
        await asked.kept_waiting()


@covers("H-MOD-13")
async def test_who_is_to_get_a_task_is_kept_alive_too(server: ScriptedServer) -> None:
    server.methods["tools/list"] = in_turn(error(-32603, "not yet"), Hold())
    async with (
        serve(config(server, "always")) as gateway,
        gateway.modern().asking("tools/call", called("echo")) as asked,
    ):
        await asked.kept_waiting()


async def test_who_calls_a_tool_that_is_known_waits_for_nothing_but_its_answer(server: ScriptedServer) -> None:
    async with serve(config(server)) as gateway:
        host = gateway.modern()
        assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
        # Whoever had to wait for either would wait long.
        server.methods |= {"initialize": Hold(), "tools/list": Hold()}
        before = len(server.requests)
        for _ in range(2):
            answer = await host.call("echo", {"a": 1})
            assert (answer.result["structuredContent"], answer.streamed) == ({"a": 1}, False)
        assert [request.message["method"] for request in server.requests[before:]] == ["tools/call"] * 2
