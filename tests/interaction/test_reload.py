"""Another configuration for a gateway that runs: rules and who is let in change; what cannot be had changes nothing."""

from pathlib import Path
from typing import Any

from helpers.certificates import Authority
from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, Reloaded, serve
from helpers.gateway.replicas import key_file
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from interaction.bare_requests import ask, seen
from interaction.reloads import DONE, SUCCESS, echoed, refused

# --- rules ---------------------------------------------------------------------------------------------------------


async def test_rates_apply_from_the_next_request_on(server: ScriptedServer, gateway: Gateway) -> None:
    hosts = (await gateway.greeted(), gateway.modern())
    rate = [{"name": "calls", "scope": "context", "methods": ["tools/call"], "rate": "1/h", "burst": 1}]
    assert await gateway.reload(configuration({"reports": server.url}, limits={"rate": rate})) == SUCCESS
    assert await echoed(hosts[0]) == "the first"
    for host in hosts:
        assert refused(await host.call("echo")) == (429, "rate")
    assert await gateway.reload(configuration({"reports": server.url})) == SUCCESS
    for host in hosts:
        assert await echoed(host) == "the first"


async def test_caps_apply_to_the_next_task_and_those_that_run_go_on(
    server: ScriptedServer, host: Host, gateway: Gateway
) -> None:
    hold = server.script["report"] = Hold()
    first, second = await host.start("report"), await host.start("report")
    await eventually(lambda: len(hold.turns) == 2)
    limits = {"concurrency": {"tasks_per_context": 1}}
    assert await gateway.reload(configuration({"reports": server.url}, limits=limits)) == SUCCESS
    assert refused(await host.call("report", task={})) == (429, "concurrency")
    hold.release(DONE)
    for task in (first, second):
        assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == []


async def test_what_becomes_a_task_is_decided_by_the_newest_rules_and_hosts_are_told_so(
    server: ScriptedServer, gateway: Gateway
) -> None:
    hosts = (await gateway.greeted(), gateway.modern())
    always = {"upgrade": [{"tool": "report", "mode": "always"}, {"tool": "*", "mode": "sync"}]}
    assert await gateway.reload(configuration({"reports": server.url}, tasks=always)) == SUCCESS
    tools = {tool["name"]: tool for tool in (await hosts[0].ask("tools/list")).result["tools"]}
    assert tools["report"]["execution"]["taskSupport"] == "optional"
    assert tools["echo"].get("execution", {}).get("taskSupport", "forbidden") == "forbidden"
    assert (await hosts[0].call("echo", task={})).code == -32601
    assert (await hosts[1].start("report"))["status"] in ("working", "completed")


async def test_a_task_that_runs_keeps_the_rules_that_it_began_with(
    server: ScriptedServer, host: Host, gateway: Gateway
) -> None:
    hold = server.script["report"] = Hold()
    task = await host.start("report", ttl=3_600_000)
    await hold.begun.wait()
    shorter = {"ttl": {"min": "1s", "default": "1m", "max": "2m"}, "upgrade": [{"tool": "*", "mode": "sync"}]}
    assert await gateway.reload(configuration({"reports": server.url}, tasks=shorter)) == SUCCESS
    assert (await host.task(task["taskId"]))["ttl"] == task["ttl"] == 3_600_000
    hold.release(DONE)
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == []


async def test_access_rules_apply_from_the_next_request_on(
    server: ScriptedServer, host: Host, gateway: Gateway
) -> None:
    rules = {"rules": [{"tool": "echo", "effect": "deny"}]}
    assert await gateway.reload(configuration({"reports": server.url}, authorization=rules)) == SUCCESS
    assert (await host.call("echo")).code == 403
    assert "echo" not in [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]]
    assert (await host.call("report")).result["content"] == []


async def test_what_one_caller_may_have_open_changes(server: ScriptedServer, gateway: Gateway) -> None:
    limits = {"concurrency": {"sessions_per_context": 1}}
    host = await gateway.greeted()
    assert await gateway.reload(configuration({"reports": server.url}, limits=limits)) == SUCCESS
    said = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}
    # A session that is in use keeps its place.
    async with host.listen():
        assert refused(await gateway.host().ask("initialize", said)) == (429, "concurrency")


async def test_more_turns_at_a_server_are_given_to_those_who_wait(server: ScriptedServer, gateway: Gateway) -> None:
    hold = server.script["report"] = Hold()
    narrow, wide = (
        configuration({}, upstreams={"reports": {"path": "/reports/mcp", "url": server.url, "concurrency": turns}})
        for turns in (1, 2)
    )
    assert await gateway.reload(narrow) == SUCCESS
    host = await gateway.greeted()
    for _ in range(3):
        await host.start("report")
    await hold.begun.wait()
    await gateway.upstream_is(in_use=1, queued=2)
    assert await gateway.reload(wide) == SUCCESS
    await eventually(lambda: len(hold.turns) == 2)
    assert len(server.heard("initialize")) == 1, "the server is the same, so its sessions are"
    hold.release(DONE)


# --- who is let in -------------------------------------------------------------------------------------------------


async def test_an_issuer_is_replaced_and_documents_name_the_new_one(server: ScriptedServer, tmp_path: Path) -> None:
    first = TokenIssuer(tmp_path)
    second = TokenIssuer(tmp_path, issuer="https://other.example.com/", number=1)
    async with serve(guarded({"reports": server.url}, first)) as gateway:
        host = await gateway.greeted(token=first.token(gateway.url()))
        assert await gateway.reload(guarded({"reports": server.url}, second)) == SUCCESS
        assert (await host.ask("ping")).status == 401
        assert (await (await gateway.greeted(token=second.token(gateway.url()))).ask("ping")).result == {}
        _, _, document = await seen(gateway, "/.well-known/oauth-protected-resource/reports/mcp")
        assert second.issuer in document
        assert first.issuer not in document
        assert await gateway.ready() == 200


async def test_tasks_outlive_another_gatehouse_and_so_do_penalties(server: ScriptedServer, issuer: TokenIssuer) -> None:
    failures = {"threshold": 1, "window": "1m", "penalty": "5m"}

    def config(**auth: Any) -> GatewayConfig:
        return guarded({"reports": server.url}, issuer, auth={"lookup_failures": failures, **auth})

    async with serve(config()) as gateway:
        host, seeker = [
            await gateway.greeted(token=issuer.token(gateway.url(), subject=who)) for who in ("alice", "bob")
        ]
        task = await host.start("echo")
        for letter in "BC":
            await seeker.ask("tasks/get", {"taskId": letter * 32})
        assert refused(await seeker.ask("tasks/get", {"taskId": "A" * 32})) == (429, "penalty")
        assert await gateway.reload(config(token_cache={"size": 5})) == SUCCESS
        assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == []
        assert refused(await seeker.ask("tasks/get", {"taskId": "A" * 32})) == (429, "penalty")


async def test_whether_callers_are_told_apart_needs_a_restart(
    server: ScriptedServer, gateway: Gateway, issuer: TokenIssuer
) -> None:
    rules = {"rules": [{"tool": "echo", "effect": "deny"}]}
    config = guarded({"reports": server.url}, issuer, authorization=rules)
    found = await gateway.reload(config)
    assert (found.result, found.needs_restart[0]) == ("needs_restart", "auth.mode")
    assert (await ask(gateway, "POST"))[0] != 401
    assert (await (await gateway.greeted()).call("echo")).code == 403, "the rest of the file has taken effect"


# --- what is not taken over ----------------------------------------------------------------------------------------


async def test_keys_that_need_a_restart_are_named_and_the_others_take_effect(
    server: ScriptedServer, gateway: Gateway
) -> None:
    config = configuration(
        {"reports": server.url}, server={"max_body": "1KiB"}, limits={"concurrency": {"tasks_per_context": 1}}
    )
    assert await gateway.reload(config) == Reloaded(result="needs_restart", needs_restart=("server.max_body",))
    host = await gateway.greeted()
    server.script["report"] = hold = Hold()
    await host.start("report", {"text": "x" * 2048})
    assert refused(await host.call("report", task={})) == (429, "concurrency")
    hold.release(DONE)


async def test_a_file_that_cannot_be_used_leaves_everything_as_it_was(
    server: ScriptedServer, other: ScriptedServer, gateway: Gateway, tmp_path: Path
) -> None:
    upstreams = {
        "books": {"path": "/books/mcp", "url": other.url},
        "reports": {"path": "/reports/mcp", "url": "https://127.0.0.1:9/mcp", "tls": {"ca_file": str(tmp_path)}},
    }
    config = configuration({}, upstreams=upstreams, authorization={"default": "deny"})
    assert await gateway.reload(config) == Reloaded(
        result="invalid", problems=("upstreams.reports.tls.ca_file: cannot be read: Is a directory",)
    )
    assert await echoed(await gateway.greeted()) == "the first"
    assert (await gateway.with_paths(books="/books/mcp").host("books").ask("ping")).status == 404


async def test_a_key_file_that_cannot_be_used_leaves_everything_as_it_was(
    server: ScriptedServer, other: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        config = guarded({"reports": other.url}, issuer, auth={"context": {"key_file": str(tmp_path / "none")}})
        found = await gateway.reload(config)
        assert found.result == "invalid"
        assert found.problems[0].startswith("auth.context.key_file: ")
        assert await echoed(host) == "the first"
        assert await echoed(await gateway.greeted(token=issuer.token(gateway.url()))) == "the first"


async def test_the_same_again_changes_nothing(server: ScriptedServer, gateway: Gateway) -> None:
    host = await gateway.greeted()
    sessions, before = server.live.copy(), await gateway.count("taskgate_config_hash")
    assert await gateway.reload(configuration({"reports": server.url})) == Reloaded(result="unchanged")
    assert await echoed(host) == "the first"
    assert (server.live, len(server.heard("initialize"))) == (sessions, 1), "the server is the same, so its session is"
    assert await gateway.count("taskgate_config_hash") == before
    assert await gateway.counts("taskgate_config_reloads_total", "result") == {"unchanged": 1}


async def test_a_key_file_without_authentication_changes_something_only_if_it_has_another_key(
    server: ScriptedServer, tmp_path: Path
) -> None:
    file = key_file(tmp_path)
    config = configuration({"reports": server.url}, auth={"context": {"key_file": str(file)}})
    async with serve(config) as gateway:
        assert await gateway.reload(config) == Reloaded(result="unchanged")
        another = key_file(tmp_path, "another")
        file.write_bytes(another.read_bytes())
        found = [await gateway.reload(config) for _ in range(2)]
        assert found == [SUCCESS, Reloaded(result="unchanged")]


async def test_a_certificate_that_was_replaced_is_shown_though_the_file_says_the_same(tmp_path: Path) -> None:
    ca_file = Authority(tmp_path).file
    upstreams = {"reports": {"path": "/r", "url": "https://127.0.0.1:9/mcp", "tls": {"ca_file": str(ca_file)}}}
    config = configuration({}, upstreams=upstreams)
    async with serve(config) as gateway:
        assert await gateway.reload(config) == Reloaded(result="unchanged")
        ca_file.write_text(ca_file.read_text() + "\n")
        assert await gateway.reload(config) == SUCCESS


async def test_a_gateway_that_ends_takes_nothing_over(server: ScriptedServer, gateway: Gateway) -> None:
    await gateway.drain()
    assert (await gateway.reload(configuration({"reports": server.url}))).result == "not_now"


async def test_each_reload_is_counted_and_the_page_tells_what_is_served_now(
    server: ScriptedServer, gateway: Gateway, tmp_path: Path
) -> None:
    before = await gateway.count("taskgate_config_hash")
    assert await gateway.count("taskgate_config_last_reload_successful") == 1
    bad = {"reports": {"path": "/r", "url": "https://127.0.0.1:9/mcp", "tls": {"ca_file": str(tmp_path)}}}
    await gateway.reload(configuration({}, upstreams=bad))
    assert await gateway.count("taskgate_config_last_reload_successful") == 0
    assert await gateway.count("taskgate_config_hash") == before
    await gateway.reload(configuration({"reports": server.url}, limits={"expose_quota": True}))
    assert await gateway.count("taskgate_config_last_reload_successful") == 1
    assert await gateway.count("taskgate_config_hash") != before
    for name, times in (("success", 1), ("invalid", 1), ("unchanged", 0)):
        assert await gateway.count("taskgate_config_reloads_total", result=name) == times


async def test_names_of_the_operators_listener_change_with_a_reload(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url})) as gateway:
        assert (await gateway.operators("/livez", Host="taskgate:9464"))[0] == 421
        named = await gateway.reload(configuration({"reports": server.url}, admin={"allowed_hosts": ["taskgate"]}))
        assert named.result == "success"
        assert (await gateway.operators("/livez", Host="taskgate:9464"))[0] == 200
        await gateway.reload(configuration({"reports": server.url}))
        assert (await gateway.operators("/livez", Host="taskgate:9464"))[0] == 421
