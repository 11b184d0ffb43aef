"""The tool by which models find calls whose handles are lost: their user's own, at one mount, and only with a token."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import ERAS, Host
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.audit_logs import audited, kept, lines, text
from interaction.handoffs import CANCEL, LIST, WAIT, YEAR, calls, handle_of, handoff, taskless, text_of, waited
from interaction.questions import DONE
from requirements import covers

MANY = {"concurrency": {"tasks_per_context": 200}}
NOTHING = "No call runs, and no result waits to be read."
REFUSED = f"{LIST} is a tool of the gateway, which lists no calls here: no such tool is called"
INBOX = {"inbox": True, "upgrade": [{"tool": "report", "mode": "always"}, {"tool": "*", "mode": "auto"}]}
KNOWN = {"tasks": {"list": {}}}
"""What a legacy host declares that knows tasks."""
eras = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@pytest.fixture
def some(server: ScriptedServer, other: ScriptedServer, issuer: TokenIssuer) -> Callable[..., GatewayConfig]:
    """A configuration with both servers, which asks for tokens; its rule hands off, unless `tasks` has others."""

    def made(tasks: dict[str, Any] | None = None, **more: Any) -> GatewayConfig:
        servers = {"reports": server.url, "other": other.url}
        return guarded(servers, issuer, tasks=handoff() if tasks is None else tasks, **{"limits": MANY, **more})

    return made


async def come(
    gateway: Gateway, issuer: TokenIssuer, era: str, mount: str = "reports", *, knows_tasks: bool = False, **claims: Any
) -> Host:
    """A host of that era with a token."""
    token = issuer.token(gateway.url(mount), **claims)
    known = KNOWN if knows_tasks and era == "legacy" else {}
    return await gateway.greeted(mount=mount, token=token, era=era, tasks=knows_tasks, capabilities=known)


async def handed_off(host: Host, count: int, tool: str = "report") -> list[str]:
    """The handles of so many calls, which came one after another."""
    return [handle_of(await host.call(tool, {"year": number})) for number in range(count)]


async def names(host: Host) -> list[str]:
    return [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]]


def handles_in(text: str, key: str = "handle") -> list[str]:
    """The handles in a list of calls, newest first."""
    return re.findall(f'"{key}": "([A-Za-z0-9_-]{{32}})"', text)


async def listed(host: Host) -> str:
    return text_of(await host.call(LIST))


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.error["code"], answer.error["message"]


@pytest.mark.parametrize("stored", [False, True], ids=["one process", "after a restart"])
@eras
async def test_a_new_session_of_the_same_user_finds_each_call_and_another_user_none(
    some: Callable[..., GatewayConfig],
    server: ScriptedServer,
    issuer: TokenIssuer,
    tmp_path: Path,
    era: str,
    stored: bool,
) -> None:
    server.script["report"] = server.script["echo"] = hold = Hold()
    config = some(folder=tmp_path if stored else None)
    async with serve(config, data_directory=tmp_path) as gateway:
        lost = await come(gateway, issuer, era)
        handles = await handed_off(lost, 10)
        hold.release(DONE)
        await gateway.shows("taskgate_tasks_finished_total", 10)
        server.script["echo"] = still = Hold()
        handles += await handed_off(lost, 10, "echo")
        if not stored:
            found = await listed(await come(gateway, issuer, era))
            assert handles_in(found) == handles[::-1]
            assert [line.partition(",")[0] for line in found.splitlines()] == ["echo"] * 10 + ["report"] * 10
            assert await listed(await come(gateway, issuer, era, subject="bob")) == NOTHING
            still.release(DONE)
            await gateway.shows("taskgate_tasks_finished_total", 20)
    if stored:
        async with serve(config, data_directory=tmp_path) as gateway:
            host = await come(gateway, issuer, era)
            assert set(handles_in(await listed(host))) == set(handles)
            assert await listed(await come(gateway, issuer, era, subject="bob")) == NOTHING
            assert (await waited(host, handles[0])).result["content"] == DONE["content"]


@eras
async def test_a_call_leaves_the_list_when_its_result_is_read_or_it_is_cancelled(
    some: Callable[..., GatewayConfig], hold: Hold, issuer: TokenIssuer, era: str
) -> None:
    async with serve(some()) as gateway:
        host = await come(gateway, issuer, era)
        read, cancelled, left = await handed_off(host, 3)
        assert "still runs: call taskgate_wait" in await listed(host)
        await host.call(CANCEL, {"handle": cancelled})
        hold.release(DONE)
        assert (await waited(host, read)).result["content"] == DONE["content"]
        found = await listed(host)
        assert (handles_in(found), "has ended: call taskgate_wait" in found) == ([left], True)
        assert (await waited(host, left)).result["content"] == DONE["content"]
        assert await listed(host) == NOTHING


@eras
async def test_a_call_that_was_stored_and_answered_in_time_is_not_listed(
    some: Callable[..., GatewayConfig], issuer: TokenIssuer, era: str
) -> None:
    async with serve(some(handoff("1h", mode="always"))) as gateway:
        host = await come(gateway, issuer, era)
        assert (await host.call("echo", YEAR)).result["structuredContent"] == YEAR
        assert await gateway.count("taskgate_tool_calls_total", disposition="handoff") == 1
        assert await listed(host) == NOTHING


@eras
async def test_of_many_calls_the_newest_are_listed_and_the_others_counted(
    some: Callable[..., GatewayConfig], server: ScriptedServer, hold: Hold, issuer: TokenIssuer, era: str
) -> None:
    async with serve(some()) as gateway:
        host = await come(gateway, issuer, era)
        handles = await handed_off(host, 25)
        found = (await listed(host)).splitlines()
        assert handles_in("\n".join(found)) == handles[:5:-1]
        assert (len(found), found[-1]) == (20, "Older calls that are not listed: 6")


@covers("T72")
@eras
@pytest.mark.parametrize(
    ("mount", "claims"),
    [("reports", {"subject": "bob"}), ("reports", {"tid": "b"}), ("reports", {"client_id": "cli"}), ("other", {})],
    ids=["another user", "another tenant", "another client", "another mount"],
)
async def test_the_calls_of_others_are_as_if_there_were_none(
    some: Callable[..., GatewayConfig],
    server: ScriptedServer,
    other: ScriptedServer,
    hold: Hold,
    issuer: TokenIssuer,
    era: str,
    mount: str,
    claims: dict[str, Any],
) -> None:
    known = {"corp": {**issuer.section, "claims": {"tenant": "tid"}}}
    config = some(auth={"issuers": known})
    async with serve(config) as gateway:
        host = await come(gateway, issuer, era, tid="a")
        [handle] = await handed_off(host, 1)
        stranger = await come(gateway, issuer, era, mount, **{"tid": "a", **claims})
        assert await listed(stranger) == NOTHING
        assert (await waited(stranger, handle)).code == -32602
        assert handles_in(await listed(host)) == [handle]


@covers("T72")
@eras
async def test_without_tokens_no_host_has_the_tool_and_its_name_stays_the_gateways(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    server.tools.append({"name": LIST, "inputSchema": {"type": "object"}})
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        assert [name for name in await names(host) if name.startswith("taskgate")] == [WAIT, CANCEL]
        [_] = await handed_off(host, 1)
        assert refusal(await host.call(LIST)) == (-32602, REFUSED)
        assert calls(server) == 1


@covers("T72")
@eras
@pytest.mark.parametrize("tasks", [handoff(), INBOX], ids=["handoff", "inbox"])
async def test_no_host_gets_or_calls_such_a_tool_of_a_server(
    some: Callable[..., GatewayConfig],
    server: ScriptedServer,
    other: ScriptedServer,
    issuer: TokenIssuer,
    era: str,
    tasks: Any,
) -> None:
    own = {"name": LIST, "title": "of the server", "inputSchema": {"type": "object"}}
    server.tools.append(own)
    other.tools.append(own)
    rules = {**tasks, "upgrade": [{**tasks["upgrade"][0], "upstream": "reports"}, {"tool": "*", "mode": "sync"}]}
    async with serve(some(rules)) as gateway:
        for mount, offered in (("reports", [LIST]), ("other", [])):
            for knows_tasks in (True, False):
                host = await come(gateway, issuer, era, mount, knows_tasks=knows_tasks)
                found = (await host.ask("tools/list")).result["tools"]
                assert own not in found
                has_list = offered if knows_tasks == ("inbox" in tasks) else []
                assert [tool["name"] for tool in found if tool["name"] == LIST] == has_list
                if mount == "other":
                    assert refusal(await host.call(LIST)) == (-32602, REFUSED)
    assert calls(server) == calls(other) == 0


@eras
async def test_without_such_a_rule_or_key_a_server_may_have_such_a_tool(
    some: Callable[..., GatewayConfig], other: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    other.tools.append({"name": LIST, "inputSchema": {"type": "object"}})
    async with serve(some({"upgrade": [{"tool": "*", "mode": "auto"}]})) as gateway:
        host = await come(gateway, issuer, era, "other", knows_tasks=True)
        assert LIST in await names(host)
        assert "error" not in ((await host.call(LIST)).message or {})
    assert calls(other) == 1


@eras
async def test_a_host_that_knows_tasks_lists_them_by_their_ids_where_the_operator_wants_it(
    some: Callable[..., GatewayConfig], hold: Hold, issuer: TokenIssuer, era: str
) -> None:
    async with serve(some(INBOX)) as gateway:
        lost = await come(gateway, issuer, era, knows_tasks=True)
        ids = [(await lost.start("report"))["taskId"] for _ in range(3)]
        host = await come(gateway, issuer, era, knows_tasks=True)
        assert (await names(host))[-1] == LIST
        assert WAIT not in await names(host)
        found = await listed(host)
        assert handles_in(found, "taskId") == ids[::-1]
        assert "still runs: tasks/get with" in found
        hold.release(DONE)
        assert (await host.until(ids[0], "completed"))["taskId"] == ids[0]
        if era == "legacy":
            assert (await host.ask("tasks/result", {"taskId": ids[0]})).result["content"] == DONE["content"]
        assert handles_in(await listed(host), "taskId") == ids[:0:-1]
        plain = await come(gateway, issuer, era)
        assert LIST not in await names(plain)
        assert refusal(await plain.call(LIST)) == (-32602, REFUSED)


@eras
async def test_a_host_that_knows_no_tasks_lists_calls_that_became_tasks_for_another(
    some: Callable[..., GatewayConfig], hold: Hold, issuer: TokenIssuer, era: str
) -> None:
    async with serve(some({**handoff(mode="always"), "inbox": True})) as gateway:
        task = (await (await come(gateway, issuer, era, knows_tasks=True)).start("report"))["taskId"]
        host = await come(gateway, issuer, era)
        assert handles_in(await listed(host)) == [task]
        hold.release(DONE)
        assert (await waited(host, task)).result["content"] == DONE["content"]
        assert await listed(host) == NOTHING


@eras
async def test_scopes_and_rules_for_lists_and_polls_of_tasks_apply(
    some: Callable[..., GatewayConfig], server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    server.script["report"] = server.script["echo"] = Hold()
    rules = [
        {"methods": ["tasks/list"], "require_scopes": ["tasks.list"]},
        {"methods": ["tasks/get"], "tool": "report", "effect": "deny"},
    ]
    async with serve(some(authorization={"rules": rules})) as gateway:
        host = await come(gateway, issuer, era, scope="tasks.list")
        await handed_off(host, 1)
        [seen] = await handed_off(host, 1, "echo")
        assert handles_in(await listed(host)) == [seen]
        refused = await (await come(gateway, issuer, era)).call(LIST)
        assert (refused.status, refused.error["data"]["reason"]) == (403, "insufficient_scope")
        assert "tasks.list" in refused.headers["WWW-Authenticate"]


@eras
async def test_a_list_counts_as_tasks_list_for_rates_and_as_no_call_of_a_tool(
    some: Callable[..., GatewayConfig], issuer: TokenIssuer, era: str
) -> None:
    rate = [{"name": "lists", "scope": "context", "methods": ["tasks/list"], "rate": "1/h", "burst": 2}]
    async with serve(some(limits={"rate": rate, "wait": "0s"})) as gateway:
        host = await come(gateway, issuer, era)
        assert [await listed(host) for _ in range(2)] == [NOTHING] * 2
        refused = (await host.call(LIST)).error
        assert (refused["code"], refused["data"]["reason"]) == (429, "rate")
        assert await gateway.counts("taskgate_tool_calls_total", "disposition") == {}


@eras
async def test_a_drain_serves_lists_of_calls(
    some: Callable[..., GatewayConfig], hold: Hold, issuer: TokenIssuer, era: str
) -> None:
    async with serve(some()) as gateway:
        host = await come(gateway, issuer, era)
        [handle] = await handed_off(host, 1)
        closing = asyncio.create_task(gateway.drain())
        async with bounded():
            while "error" not in ((await host.call("echo", YEAR)).message or {}):
                pass
        assert handles_in(await listed(host))[-1] == handle
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        async with bounded():
            await closing


@covers("T71")
async def test_the_audit_log_has_lists_without_what_a_model_wrote_in_them(
    some: Callable[..., GatewayConfig], hold: Hold, issuer: TokenIssuer, tmp_path: Path
) -> None:
    config = some(audit={**audited(tmp_path), "arguments": "full"})
    async with kept(tmp_path, config) as gateway:
        host = await come(gateway, issuer, "legacy")
        [handle] = await handed_off(host, 1)
        assert handles_in(text_of(await host.call(LIST, {"handle": handle}))) == [handle]
        hold.release(DONE)
    [line] = [line for line in lines(tmp_path) if line["event"].startswith("rpc.") and line["mcp"]["tool"] == LIST]
    assert line["args"] is None
    assert handle not in text(tmp_path)
