"""What the audit log says of a gateway that is used: one line for each request, and what becomes of tasks."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway
from helpers.host.host import ACCEPT
from helpers.server import ScriptedServer, result
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.audit_logs import JUDGE, REQUESTS, audited, kept, lines, of, said, text, told_of
from requirements import covers

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"a": 1}}}
ANSWERED = "http_server_request_duration_seconds_count"
WITH_TASKS = {"name": "calls", "scope": "context", "rate": "1/m", "burst": 2, "methods": ["tools/call"]}


async def posted(gateway: Gateway, url: str, body: bytes, **fields: str) -> None:
    """A POST as no host of these tests would send it."""
    head = {"Content-Type": "application/json", "Accept": ACCEPT, **fields}
    async with bounded(), gateway.http.post(url, data=body, headers=head) as response:
        await response.read()


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_every_request_has_one_line_of_its_own(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path, era: str
) -> None:
    config = guarded({"reports": server.url}, issuer, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        token = issuer.token(gateway.url())
        host: Any = gateway.modern(token=token) if era == "2026-07-28" else await gateway.greeted(era, token=token)
        await host.ask("tools/list")
        await host.call("echo", {"a": 1})
        await host.ask("tasks/get", {"taskId": "A" * 32})
        await posted(gateway, gateway.url(), b"{}")
        await posted(gateway, gateway.url() + "/elsewhere", b"{}")
        answered = await gateway.counts(ANSWERED, "http_response_status_code")
    written = lines(tmp_path)
    requests = of(written, *REQUESTS)
    assert Counter(str(line["http"]["status"]) for line in requests) == answered
    assert len({line["http"]["request_id"] for line in requests}) == len(requests)
    assert [said(line) for line in requests][-5:] == [
        ("rpc.request", "success", None),
        ("rpc.call", "success", None),
        ("rpc.rejected", "denied", "task_not_found"),
        ("rpc.rejected", "denied", "unauthenticated"),
        ("rpc.rejected", "denied", "unknown_path"),
    ]
    [call] = of(written, "rpc.call")
    assert (call["actor"]["sub"], call["actor"]["client_id"], call["actor"]["method"]) == ("alice", "desk", "jwt")
    assert (call["mcp"]["tool"], call["mcp"]["upstream"], call["mcp"]["protocol"]) == ("echo", "reports", era)
    assert call["args"]["keys"] == ["a"]
    assert call["data"]["seconds"] > 0
    assert call["data"]["result"]["bytes"] > 0


@covers("O-AUD-1", "O-AUD-3")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_the_life_of_a_task_is_told_under_one_reference(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path, era: str
) -> None:
    rules = {"upgrade": [{"tool": "*", "mode": "always"}]}
    config = guarded({"reports": server.url}, issuer, tasks=rules, audit=audited(tmp_path, results="hash"))
    async with kept(tmp_path, config) as gateway:
        token = issuer.token(gateway.url())
        if era == "2026-07-28":
            modern = gateway.modern(token=token)
            id = (await modern.start("report", {"secret": "words"}))["taskId"]
            await modern.until(id, "completed")
        else:
            legacy = await gateway.greeted(era, token=token)
            id = (await legacy.start("report", {"secret": "words"}))["taskId"]
            await legacy.ask("tasks/result", {"taskId": id})
        await told_of(tmp_path, "task.result_retrieved")
    written = lines(tmp_path)
    [call] = of(written, "rpc.call")
    ref = call["task"]["ref"]
    life = [line for line in written if line["task"] is not None and line["event"].startswith("task.")]
    assert {line["task"]["ref"] for line in life} == {ref}
    assert Counter(line["event"] for line in life) == {
        "task.created": 1, "task.dispatched": 1, "task.transition": 1, "task.completed": 1, "task.result_retrieved": 1,
    }  # fmt: skip
    assert {line["actor"]["ctx"] for line in life} == {call["actor"]["ctx"]} == {life[0]["task"]["owner_ctx"]}
    [made], [ended] = of(written, "task.created"), of(written, "task.completed")
    assert made["http"]["request_id"] == call["http"]["request_id"] == ended["http"]["request_id"]
    assert made["args"] == call["args"]
    assert ended["data"]["result"]["hmac"].startswith("r_")
    everything = text(tmp_path)
    assert not [each for each in (id, token, "words") if each in everything]


@covers("O-AUD-1", "O-AUD-5", "T50")
async def test_a_cancel_is_told_and_so_is_what_came_too_late(server: ScriptedServer, tmp_path: Path) -> None:
    config = configuration({"reports": server.url}, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await gateway.greeted()
        task = await host.start("report")
        await host.ask("tasks/result", {"taskId": task["taskId"]})
        await host.ask("tasks/cancel", {"taskId": task["taskId"]})
        await host.tell("notifications/cancelled", {"requestId": 99, "reason": "the user left"})
    written = lines(tmp_path)
    assert [said(line) for line in of(written, "task.cancel_requested")] == [
        ("task.cancel_requested", "failure", "already_terminal")
    ]
    [told_why] = [line for line in written if line["data"].get("stated_reason")]
    assert told_why["mcp"]["method"] == "notifications/cancelled"
    assert told_why["data"]["stated_reason"] == "the user left"


@covers("O-AUD-2")
async def test_a_task_of_somebody_else_is_told_with_both_who_asked_and_whose_it_is(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    config = guarded({"reports": server.url}, issuer, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        alice, bob = [
            await gateway.greeted(token=issuer.token(gateway.url(), subject=name)) for name in ("alice", "bob")
        ]
        task = await alice.start("report")
        await bob.ask("tasks/get", {"taskId": task["taskId"]})
        await bob.ask("tasks/get", {"taskId": "B" * 32})
        await bob.ask("tasks/get", {"taskId": "short"})
    written = lines(tmp_path)
    denied = of(written, "task.access_denied")
    assert sorted(str(line["reason"]) for line in denied) == ["context_mismatch", "malformed_id", "not_found"]
    [foreign] = [line for line in denied if line["reason"] == "context_mismatch"]
    [made] = of(written, "task.created")
    assert foreign["actor"]["sub"] == "bob"
    assert foreign["task"]["owner_ctx"] == made["actor"]["ctx"] != foreign["actor"]["ctx"]
    assert foreign["task"]["ref"] == made["task"]["ref"]
    [suspicion] = of(written, "security.cross_context_access")
    assert suspicion["actor"]["sub"] == "bob"


async def test_tokens_are_told_once_when_accepted_and_each_time_when_not(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    config = guarded({"reports": server.url}, issuer, audit=audited(tmp_path, identity="pseudonymous"))
    async with kept(tmp_path, config) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        await host.ask("tools/list")
        for _ in range(2):
            await gateway.host(token=issuer.token("https://elsewhere.example/")).ask("tools/list")
    written = lines(tmp_path)
    [accepted] = of(written, "auth.accepted")
    assert (accepted["data"]["issuer"], accepted["actor"]["sub"]) == ("corp", None)
    assert [said(line) for line in of(written, "auth.rejected")] == [("auth.rejected", "denied", "audience")] * 2
    assert "alice" not in text(tmp_path)


async def test_limits_are_told_where_they_refuse_and_where_they_would(server: ScriptedServer, tmp_path: Path) -> None:
    shadow = {**WITH_TASKS, "name": "shadowed", "mode": "shadow", "burst": 1}
    config = configuration({"reports": server.url}, limits={"rate": [WITH_TASKS, shadow]}, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await gateway.greeted()
        for _ in range(3):
            await host.call("echo")
    written = lines(tmp_path)
    [refused] = of(written, "limit.rate_rejected")
    assert refused["limit"] == {"kind": "rate", "policy": "calls", "scope": "context"}
    assert {line["limit"]["policy"] for line in of(written, "limit.shadow_rejected")} == {"shadowed"}
    assert [said(line) for line in of(written, *REQUESTS)][-1] == ("rpc.rejected", "denied", "rate")


async def test_a_request_of_several_messages_has_a_line_for_each_and_one_of_its_own(
    server: ScriptedServer, tmp_path: Path
) -> None:
    config = configuration({"reports": server.url}, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await gateway.greeted("2025-03-26")
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        body = json.dumps([CALL, listing, {"jsonrpc": "1.0", "id": 3, "method": "ping"}]).encode()
        await posted(gateway, gateway.url(), body, **{"Mcp-Session-Id": str(host.session)})
    batch = of(lines(tmp_path), *REQUESTS)[-4:]
    assert len({line["http"]["request_id"] for line in batch}) == 1
    assert Counter(said(line) for line in batch[:3]) == {
        ("rpc.call", "success", None): 1,
        ("rpc.request", "success", None): 1,
        ("rpc.rejected", "denied", "bad_message"): 1,
    }
    assert (said(batch[3]), batch[3]["data"]["messages"]) == (("rpc.request", "success", None), 3)
    assert [line["http"]["status"] for line in batch] == [None, None, None, 200]


async def test_a_tool_that_fails_and_a_server_that_does_are_told_apart(server: ScriptedServer, tmp_path: Path) -> None:
    server.script["broken"] = result({"content": [], "isError": True})
    config = configuration({"reports": server.url}, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await gateway.greeted()
        await host.call("broken")
        await server.stop()
        await host.call("echo")
    calls = [said(line) for line in of(lines(tmp_path), "rpc.call")]
    assert calls == [("rpc.call", "failure", "tool_error"), ("rpc.call", "failure", "-32603")]


async def test_the_gateway_tells_of_itself_and_of_its_operators(server: ScriptedServer, tmp_path: Path) -> None:
    config = configuration({"reports": server.url}, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        async with bounded():
            await gateway.reload(configuration({"reports": server.url}, audit=audited(tmp_path, results="none")))
        await gateway.drain()
    written = lines(tmp_path)
    ours = [line for line in written if line["event"].startswith(("gateway.", "config."))]
    assert [line["event"] for line in ours] == [
        "gateway.started",
        "config.loaded",
        "gateway.stopping",
        "gateway.stopped",
    ]
    assert len({line["data"]["fingerprint"] for line in ours[:2]}) == 2


@pytest.mark.parametrize("format", ["ocsf", "ecs"])
async def test_other_words_have_ours_in_them(server: ScriptedServer, tmp_path: Path, format: str) -> None:
    config = configuration({"reports": server.url}, audit=audited(tmp_path, format=format))
    async with kept(tmp_path, config) as gateway:
        await (await gateway.greeted()).call("echo", {"a": 1})
    written = [json.loads(each) for each in text(tmp_path).splitlines()]
    ours = [line["unmapped" if format == "ocsf" else "taskgate"] for line in written]
    assert [fault.message for line in ours if (fault := JUDGE.fault(line)) is not None] == []
    assert len(of(ours, "rpc.call")) == 1
