"""The names of the gateway's own tools: at every mount they are the gateway's, as soon as one mount hands off."""

from typing import Any

import pytest

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import ERAS, Host
from helpers.server import Hold, ScriptedServer
from interaction.handoffs import CANCEL, WAIT, YEAR, calls, handle_of, handoff, taskless, waited
from interaction.questions import DONE
from interaction.reloads import SUCCESS
from requirements import covers

eras = pytest.mark.parametrize("era", ERAS)
knowledge = pytest.mark.parametrize("knows_tasks", [False, True], ids=["without tasks", "with tasks"])
PLAIN = {"tool": "*", "mode": "auto"}
HANDLE = {"handle": "A" * 32}


@pytest.fixture
def taken(other: ScriptedServer) -> ScriptedServer:
    """A server with tools of these names."""
    other.tools += [{"name": name, "inputSchema": {"type": "object"}} for name in (WAIT, CANCEL)]
    return other


def some(server: ScriptedServer, other: ScriptedServer, *, hands_off: bool = True, **more: Any) -> GatewayConfig:
    """A configuration with both servers, of which at most `reports` hands off."""
    tasks = handoff()
    tasks["upgrade"] = [{**tasks["upgrade"][0], "upstream": "reports"}, PLAIN] if hands_off else [PLAIN]
    tasks |= more
    return configuration({"reports": server.url, "other": other.url}, tasks=tasks)


async def host_of(gateway: Gateway, era: str, mount: str, *, knows_tasks: bool) -> Host:
    known = {"tasks": {"list": {}}} if knows_tasks and era == "legacy" else {}
    return await gateway.greeted(mount=mount, era=era, tasks=knows_tasks, capabilities=known)


async def names(host: Host) -> list[str]:
    return [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]]


@covers("T72")
@eras
@knowledge
async def test_no_host_sees_such_a_tool_of_a_server_that_hands_nothing_off(
    server: ScriptedServer, taken: ScriptedServer, era: str, knows_tasks: bool
) -> None:
    async with serve(some(server, taken)) as gateway:
        host = await host_of(gateway, era, "other", knows_tasks=knows_tasks)
        assert await names(host) == [tool["name"] for tool in taken.tools[:-2]]


@covers("T72")
@eras
@knowledge
@pytest.mark.parametrize("arguments", [HANDLE, YEAR], ids=["a handle", "no handle"])
async def test_a_call_of_such_a_tool_is_refused_and_not_sent(
    server: ScriptedServer, taken: ScriptedServer, era: str, knows_tasks: bool, arguments: dict[str, Any]
) -> None:
    async with serve(some(server, taken)) as gateway:
        host = await host_of(gateway, era, "other", knows_tasks=knows_tasks)
        for name in (WAIT, CANCEL):
            refused = (await host.call(name, arguments)).error
            assert (refused["code"], refused["message"]) == (
                -32602,
                f"{name} is a tool of the gateway, which has no handles here: no such tool is called",
            )
        assert (await host.call("echo", YEAR)).result["structuredContent"] == {"from": "the other"}
    assert calls(taken) == 1


@covers("T72")
@eras
async def test_a_host_with_tasks_gets_no_such_tool_of_a_server_that_hands_off(
    server: ScriptedServer, taken: ScriptedServer, era: str
) -> None:
    config = configuration({"reports": server.url, "other": taken.url}, tasks=handoff())
    async with serve(config) as gateway:
        host = await host_of(gateway, era, "other", knows_tasks=True)
        assert await names(host) == [tool["name"] for tool in taken.tools[:-2]]
        message = (await host.call(WAIT, YEAR)).error["message"]
        assert message == f"{WAIT} is a tool of the gateway: its argument handle must be a string"
    assert calls(taken) == 0


@eras
async def test_where_no_mount_hands_off_a_server_may_have_such_tools(
    server: ScriptedServer, taken: ScriptedServer, era: str
) -> None:
    async with serve(some(server, taken, hands_off=False)) as gateway:
        host = await host_of(gateway, era, "other", knows_tasks=False)
        assert await names(host) == [tool["name"] for tool in taken.tools]
        assert "error" not in ((await host.call(WAIT, YEAR)).message or {})
    assert calls(taken) == 1


@covers("T72")
@eras
async def test_a_reload_that_hands_off_somewhere_hides_them_in_open_sessions_and_for_good(
    server: ScriptedServer, taken: ScriptedServer, era: str
) -> None:
    server.script["report"] = hold = Hold()
    async with serve(some(server, taken, hands_off=False)) as gateway:
        host = await host_of(gateway, era, "other", knows_tasks=False)
        assert WAIT in await names(host)
        assert await gateway.reload(some(server, taken)) == SUCCESS
        assert WAIT not in await names(host)
        assert (await host.call(WAIT, HANDLE)).code == -32602
        reports = await taskless(gateway, era)
        handle = handle_of(await reports.call("report", YEAR))
        # Models have handles for longer than the rule is there.
        assert await gateway.reload(some(server, taken, hands_off=False)) == SUCCESS
        assert WAIT not in await names(host)
        assert (await host.call(WAIT, {"handle": handle})).code == -32602
        hold.release(DONE)
        assert (await waited(reports, handle)).result["content"] == DONE["content"]
    assert calls(taken) == 0


@covers("T72")
@eras
async def test_other_names_of_the_configuration_are_hidden_in_their_place(
    server: ScriptedServer, taken: ScriptedServer, era: str
) -> None:
    tools = {"wait": {"name": "result_of"}, "cancel": {"name": "end_of"}}
    taken.tools.append({"name": "result_of", "inputSchema": {"type": "object"}})
    async with serve(some(server, taken, handoff={"tools": tools})) as gateway:
        host = await host_of(gateway, era, "other", knows_tasks=False)
        listed = await names(host)
        assert "result_of" not in listed
        assert WAIT in listed
        assert (await host.call("result_of", YEAR)).code == -32602
    assert calls(taken) == 0


@covers("T72")
@eras
async def test_an_earlier_name_is_no_tool_after_a_reload_that_renames_the_tools(
    server: ScriptedServer, taken: ScriptedServer, era: str
) -> None:
    server.script["report"] = hold = Hold()
    server.tools += [{"name": name, "inputSchema": {"type": "object"}} for name in (WAIT, CANCEL)]
    renamed = {"handoff": {"tools": {"wait": {"name": "await_call"}, "cancel": {"name": "end_call"}}}}
    async with serve(some(server, taken)) as gateway:
        reports = await taskless(gateway, era)
        handle = handle_of(await reports.call("report", YEAR))
        assert await gateway.reload(some(server, taken, **renamed)) == SUCCESS
        other = await host_of(gateway, era, "other", knows_tasks=False)
        assert not {WAIT, CANCEL} & {*await names(reports), *await names(other)}
        for name in (WAIT, CANCEL):
            message = (await reports.call(name, {"handle": handle})).error["message"]
            assert message.startswith(f"{name} is an earlier name of a tool of the gateway")
        assert (await reports.call("end_call", {"handle": handle})).result
        assert (await reports.call("await_call", {"handle": handle})).result
        hold.release(DONE)
