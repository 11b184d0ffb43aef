"""Sessions with servers that hosts of the modern era share, and those that they do not."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.questions import DONE, ELICIT
from requirements import covers


def declared(server: ScriptedServer) -> list[dict[str, Any]]:
    """What the server was told, in the handshake of each session, that its host can do."""
    return [message["params"]["capabilities"] for message in server.heard("initialize")]


@covers("T-28", "V-META-4")
async def test_requests_that_declare_the_same_share_a_session_whoever_says_they_are_the_host(
    server: ScriptedServer, gateway: Gateway
) -> None:
    name = "io.modelcontextprotocol/clientInfo"
    await asyncio.gather(
        *(gateway.modern().call("echo", meta={name: {"name": who, "version": "1"}}) for who in ("a", "b", "c"))
    )
    assert len(server.heard("initialize")) == 1
    assert server.heard("initialize")[0]["params"]["clientInfo"]["name"] == "taskgate"
    assert len(server.heard("tools/call")) == 3


@covers("T-28", "T-8", "V-META-4", "B-CONV-5")
async def test_each_set_of_capabilities_has_a_session_that_knows_of_it(
    server: ScriptedServer, gateway: Gateway
) -> None:
    host = gateway.modern()
    for capabilities in ({}, {"sampling": {}}, {"elicitation": {"url": {}}}, {"sampling": {}}):
        await host.call("echo", capabilities=capabilities)
    assert sorted(map(sorted, declared(server))) == [[], ["elicitation"], ["sampling"]]


@covers("T-28")
async def test_a_session_of_a_host_is_not_shared_with_hosts_without(server: ScriptedServer, gateway: Gateway) -> None:
    await (await gateway.greeted()).call("echo")
    await gateway.modern(tasks=False).call("echo")
    assert len(server.heard("initialize")) == 2


@covers("T-28", "I-ISO-1")
async def test_callers_do_not_share_a_session(server: ScriptedServer, issuer: TokenIssuer) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        for who in ("alice", "bob", "alice"):
            host = gateway.modern(token=issuer.token(gateway.url(), sub=who))
            assert (await host.call("echo", {"who": who})).result["structuredContent"] == {"who": who}
    assert len(server.heard("initialize")) == 2


@covers("H-LEG-4")
async def test_a_session_that_its_server_forgot_is_opened_again(server: ScriptedServer, gateway: Gateway) -> None:
    host = gateway.modern()
    await host.call("echo")
    server.forget_sessions()
    assert (await host.call("echo", {"n": 1})).result["structuredContent"] == {"n": 1}
    assert (await host.call("echo", {"n": 2})).result["structuredContent"] == {"n": 2}


@covers("H-MOD-8")
async def test_what_a_server_asks_outside_of_every_call_is_refused(server: ScriptedServer, gateway: Gateway) -> None:
    host = gateway.modern(capabilities={"elicitation": {}})
    await host.discover()
    await server.streaming()
    await server.push(
        {"jsonrpc": "2.0", "id": "q", "method": ELICIT, "params": {"message": "m", "requestedSchema": {}}}
    )
    reply = await server.reply_to("q")
    assert "error" in reply or reply["result"]["action"] in ("cancel", "decline")


async def test_at_the_end_the_sessions_are_closed_at_their_servers(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url})) as gateway:
        await gateway.modern().discover()
        assert len(server.live) == 1
    assert server.live == set()


@covers("H-MOD-9")
@pytest.mark.parametrize("method", ["tools/call", "resources/read", "tools/list"])
async def test_a_host_that_leaves_cancels_its_request_and_no_other(
    server: ScriptedServer, gateway: Gateway, method: str
) -> None:
    params = {"tools/call": {"name": "report"}, "resources/read": {"uri": "file:///r"}, "tools/list": {}}
    hold, other = Hold(), Hold()
    server.script |= {"report": hold, "echo": other}
    host = gateway.modern(tasks=False)
    await host.call("broken")
    server.methods |= {"resources/read": hold, "tools/list": hold}
    async with host.asking("tools/call", {"name": "echo", "arguments": {}}) as stays, bounded():
        await other.begun.wait()
        async with host.asking(method, params[method]) as asked:
            await hold.begun.wait()
            await asked.leave()
        while not server.cancelled:
            await asyncio.sleep(0)
        [heard] = server.heard(method)[-1:]
        assert server.cancelled == [heard["id"]]
        other.release(DONE)
        assert (await stays.answer()).result["content"] == DONE["content"]
