"""Why requests were refused, as the audit log has it: of whatever era, and at whatever step."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment
from helpers.host.host import ACCEPT, both_eras
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, until
from interaction.audit_logs import REQUESTS, audited, kept, lines, of, said
from interaction.questions import DONE
from interaction.rate_limits import CALLS
from requirements import covers

HEAD = {"Content_Type": "application/json", "Accept": ACCEPT}


async def unknown_method(host: Any) -> None:
    await host.ask("no/such", {})


async def too_often(host: Any) -> None:
    await host.call("echo")
    await host.call("echo")
    await host.call("echo")


async def an_unknown_task(host: Any) -> None:
    await host.ask("tasks/get", {"taskId": "U" * 32})


async def what_can_be_no_task(host: Any) -> None:
    await host.ask("tasks/get", {"taskId": "!"})


async def no_json(host: Any) -> None:
    sent = {name.replace("_", "-"): value for name, value in HEAD.items()}
    async with host.http.post(host.url, data=b"{", headers=sent) as response:
        assert response.status == 400


@covers("T52")
@both_eras
@pytest.mark.parametrize(
    ("does", "refusal", "code"),
    [
        (unknown_method, "unknown_method", "-32601"),
        (too_often, "rate", "429"),
        (an_unknown_task, "task_not_found", "-32602"),
        (what_can_be_no_task, "task_not_found", "-32602"),
        (no_json, "bad_json", "-32700"),
    ],
)
async def test_what_is_refused_is_accounted_for_with_why(
    server: ScriptedServer,
    clock: ManualClock,
    tmp_path: Path,
    era: str,
    does: Callable[[Any], Awaitable[None]],
    refusal: str,
    code: str,
) -> None:
    config = configuration({"reports": server.url}, limits={"rate": [CALLS]}, audit=audited(tmp_path))
    async with kept(tmp_path, config, Environment(clock=clock)) as gateway:
        await does(await gateway.greeted(era=era))
        errors = await gateway.counts("mcp_server_operation_duration_seconds_count", "error_type")
    line = of(lines(tmp_path), *REQUESTS)[-1]
    assert (said(line), "result" in line["data"]) == (("rpc.rejected", "denied", refusal), False)
    assert errors.get(code, 0) == (refusal != "bad_json")


async def test_who_is_not_known_is_refused_without_an_actor_and_who_is_is_told_of(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    config = guarded({"reports": server.url}, issuer, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        await gateway.host().ask("ping")
        await gateway.modern(token=issuer.token(gateway.url(), subject="bob")).call("echo")
    # Lines of unknown callers are counted first, so another line may come before.
    stranger, bob = sorted(of(lines(tmp_path), *REQUESTS), key=lambda line: line["actor"] is not None)
    assert (stranger["actor"], said(stranger)) == (None, ("rpc.rejected", "denied", "unauthenticated"))
    assert stranger["http"]["status"] == 401
    assert (bob["actor"]["sub"], said(bob)) == ("bob", ("rpc.call", "success", None))


async def test_a_session_that_is_unknown_is_refused_with_what_the_head_says_of_it(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async with kept(tmp_path, configuration({"reports": server.url}, audit=audited(tmp_path))) as gateway:
        host = await gateway.greeted("2025-06-18")
        host.session = "U" * 32
        assert (await host.ask("ping")).status == 404
    line = of(lines(tmp_path), *REQUESTS)[-1]
    assert said(line) == ("rpc.rejected", "denied", "session_not_found")
    assert (line["mcp"]["protocol"], line["mcp"]["client"]) == ("2025-06-18", None)


async def test_while_the_gateway_drains_requests_are_refused_as_that(server: ScriptedServer, tmp_path: Path) -> None:
    server.script["report"] = hold = Hold()
    drain = {"drain": {"delay": "0s", "timeout": "20s"}}
    config = configuration({"reports": server.url}, server=drain, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway, bounded():
        calling = asyncio.create_task(gateway.modern().call("report"))
        await hold.begun.wait()
        draining = asyncio.create_task(gateway.drain())
        met = await until(lambda: gateway.modern().call("echo"), lambda answer: "error" in answer.message)
        assert met.code == 503
        hold.release(DONE)
        await calling
        await draining
    refused = of(lines(tmp_path), "rpc.rejected")
    assert [said(line) for line in refused] == [("rpc.rejected", "denied", "draining")]


@both_eras
async def test_a_call_that_a_limit_refuses_is_a_rejected_call_of_a_tool(
    server: ScriptedServer, clock: ManualClock, tmp_path: Path, era: str
) -> None:
    config = configuration({"reports": server.url}, limits={"rate": [CALLS]}, audit=audited(tmp_path))
    async with kept(tmp_path, config, Environment(clock=clock)) as gateway:
        await too_often(await gateway.greeted(era=era))
        calls = await gateway.counts("taskgate_tool_calls_total", "disposition")
    assert calls.pop("rejected") == 1
    assert sum(calls.values()) == 2
