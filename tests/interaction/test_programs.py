"""A server that is a program, behind the whole gateway: both eras of hosts have of it what they have of any server."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from interaction.programs import program, who, with_program
from interaction.questions import ACCEPTED, ELICIT, capable
from requirements import covers

ENDED = "The server's program exited with status 3 before it answered"
FORMS = {"elicitation": {"form": {}}}


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """A gateway before the program, whose era it has to find out."""
    async with serve(with_program(protocol_version="auto", restart={"backoff": "1ms"})) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: Gateway) -> Host:
    return await gateway.greeted()


# --- what it is like to its hosts ----------------------------------------------------------------------------------


@covers("U-STDIO-1")
async def test_hosts_of_both_eras_call_its_tools(gateway: Gateway, host: Host) -> None:
    for each in (host, gateway.modern()):
        assert {tool["name"] for tool in (await each.ask("tools/list")).result["tools"]} > {"echo", "who"}
        assert (await each.call("echo", {"a": "ä\n"})).result["structuredContent"] == {"a": "ä\n"}
        assert (await each.call("nothing")).code == -32602


async def test_a_call_of_it_is_a_task_for_hosts_of_both_eras(gateway: Gateway, host: Host) -> None:
    task = await host.start("echo", {"a": 1})
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["structuredContent"] == {"a": 1}
    modern = gateway.modern(capabilities=FORMS)
    made = await modern.start("ask")
    (key,) = (await modern.until(made["taskId"], "input_required"))["inputRequests"]
    await modern.update(made["taskId"], {key: ACCEPTED})
    done = await modern.until(made["taskId"], "completed")
    assert done["result"]["structuredContent"] == {"answered": ACCEPTED}


@covers("U-STDIO-4")
async def test_what_it_asks_while_one_call_runs_is_asked_for_that_call(gateway: Gateway) -> None:
    host = await capable(gateway)
    task = (await host.start("ask"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        asked = await stream.until(ELICIT)
        await host.until(task, "input_required")
        await host.respond(asked["id"], ACCEPTED)
        assert (await stream.result())["structuredContent"] == {"answered": ACCEPTED}


async def test_progress_of_it_reaches_the_host_and_the_task(gateway: Gateway, host: Host) -> None:
    answer = await host.call("steps", _meta={"progressToken": "p"})
    told = [
        on_notification["params"]
        for on_notification in answer.notices
        if on_notification["method"] == "notifications/progress"
    ]
    assert [(each["progressToken"], each["progress"]) for each in told] == [("p", 1), ("p", 2), ("p", 3)]
    task = await host.start("steps")
    await host.ask("tasks/result", {"taskId": task["taskId"]})
    modern = gateway.modern(tasks=False)
    answer = await modern.call("steps", meta={"progressToken": "q"})
    assert [on_notification["params"]["progress"] for on_notification in answer.notices] == [1, 2, 3]
    assert answer.result["structuredContent"] == {"steps": 3}


@covers("U-STDIO-3")
async def test_a_call_that_is_cancelled_is_cancelled_there(gateway: Gateway, host: Host) -> None:
    task = (await host.start("hold"))["taskId"]
    await eventually_dispatched(host)
    assert (await host.ask("tasks/cancel", {"taskId": task})).result["status"] == "cancelled"
    async with bounded():
        while not (await who(host))["cancelled"]:
            await asyncio.sleep(0.005)
    assert (await host.call("release")).result["structuredContent"] == {"released": 0}


async def test_calls_of_one_session_run_side_by_side(host: Host) -> None:
    waiting = asyncio.create_task(host.call("hold"))
    async with bounded():
        # They come by connections of their own, in any order.
        while (await host.call("release")).result["structuredContent"] == {"released": 0}:
            pass
        assert (await waiting).result["structuredContent"] == {"held": True}


# --- whose process it is -------------------------------------------------------------------------------------------


@covers("U-STDIO-4", "T-28")
async def test_two_callers_have_two_processes_and_one_caller_has_one(tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    async with serve(guarded({}, issuer, upstreams={"reports": program()})) as gateway:
        tokens = {name: issuer.token(gateway.url(), subject=name) for name in ("alice", "bob")}
        alice, bob = [await gateway.greeted(token=token) for token in tokens.values()]
        again, modern = await gateway.greeted(token=tokens["alice"]), gateway.modern(token=tokens["alice"])
        pids = [(await who(each))["pid"] for each in (alice, again, modern, bob)]
        assert pids[0] == pids[1]
        assert pids[3] not in pids[:3]


@covers("T-28")
async def test_another_set_of_capabilities_has_another_process(gateway: Gateway, host: Host) -> None:
    asked = await capable(gateway)
    one, other = await who(host), await who(asked)
    assert one["pid"] != other["pid"]
    assert (one["declared"], "elicitation" in other["declared"]) == ({}, True)


async def test_everybody_shares_its_processes_where_that_is_said(tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    config = guarded({}, issuer, upstreams={"reports": program(sessions="shared", processes=1)})
    async with serve(config) as gateway:
        hosts = [await gateway.greeted(token=issuer.token(gateway.url(), subject=name)) for name in ("alice", "bob")]
        assert len({(await who(host))["pid"] for host in hosts}) == 1


@covers("A-AUTH-15")
async def test_it_is_run_with_what_the_configuration_says_and_no_secret_of_the_gateways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKGATE_TEST_SECRET", "not-for-programs")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    config = with_program("--words", "a b", env={"KEY": "v-for-programs", "EMPTY": ""}, cwd=str(tmp_path))
    async with serve(config) as gateway:
        said = await who(await gateway.greeted())
    assert (said["arguments"], said["cwd"]) == (["--words", "a b"], str(tmp_path))
    environment = said["environment"]
    assert (environment.pop("KEY"), environment.pop("EMPTY")) == ("v-for-programs", "")
    usual = {
        name
        for name in ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TZ", "TMPDIR")
        if name in os.environ
    }
    assert set(environment) == usual | {name for name in os.environ if name.startswith("LC_")}


# --- when it fails -------------------------------------------------------------------------------------------------


@covers("U-STDIO-2")
async def test_a_process_that_ends_in_the_middle_of_a_call_fails_it_and_the_next_call_works(host: Host) -> None:
    before = await who(host)
    failed = (await host.call("crash")).error
    assert (failed["code"], failed["message"]) == (-32603, ENDED)
    assert failed["data"] == {"origin": "upstream", "reason": "closed", "dispatched": True}
    assert (await who(host))["pid"] != before["pid"]


@covers("U-STDIO-2")
async def test_a_task_whose_process_ends_has_failed_and_says_how(gateway: Gateway, host: Host) -> None:
    task = (await host.start("crash"))["taskId"]
    found = await host.until(task, "failed")
    assert found["statusMessage"] == ENDED
    assert (await host.ask("tasks/result", {"taskId": task})).error["data"]["dispatched"] is True
    modern = gateway.modern()
    made = await modern.call("crash")
    assert (made.code, made.error["message"]) == (-32603, ENDED)
    assert (await modern.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}


@covers("A-AUTH-15")
@pytest.mark.parametrize("secret", ["v-treasure", "v\"-\\'for-\ttreasüre", "v'-for/\ntreasüre"])
async def test_what_it_says_on_standard_error_is_logged_without_its_secrets(
    caplog: pytest.LogCaptureFixture, secret: str
) -> None:
    async with serve(with_program(env={"SECRET": secret})) as gateway:
        host = await gateway.greeted()
        await host.call("crash")
        await eventually(lambda: any("I end" in text for text in logged(caplog)))
    said = [record.__dict__["text"] for record in caplog.records if "text" in record.__dict__]
    assert not any(part in text for text in said for part in ("v-", "-for", "treas"))


async def test_a_program_that_is_not_there_fails_its_calls_and_says_so() -> None:
    async with serve(with_program(command=["/no/such/program"])) as gateway:
        host = gateway.host()
        refused = await host.ask("initialize", GREETING)
        assert refused.error["data"]["dispatched"] is False
        assert "/no/such/program" not in refused.text
        assert (await gateway.upstream())["up"] is False
        assert 'taskgate_upstream_state{state="down",upstream="reports"} 1' in await gateway.metrics()


@pytest.mark.parametrize("protocol_version", ["auto", "2025-11-25"])
@pytest.mark.parametrize("command", [["cat"], ["sleep", "60"], ["true"]], ids=["echoes", "is silent", "ends"])
async def test_a_program_that_opens_no_session_is_not_up_though_it_runs(
    command: list[str], protocol_version: str
) -> None:
    timeouts, restart = {"first_byte": "300ms"}, {"backoff": "1ms", "max_backoff": "1ms"}
    config = with_program(command=command, protocol_version=protocol_version, timeouts=timeouts, restart=restart)
    async with serve(config) as gateway:
        for _ in range(2):
            assert "error" in (await gateway.host().ask("initialize", GREETING)).text
        assert (await gateway.upstream())["up"] is False
        assert await gateway.count("taskgate_upstream_state", upstream="reports", state="down") == 1


async def test_whether_it_was_met_is_told_to_operators(gateway: Gateway) -> None:
    assert (await gateway.upstream())["up"] is None
    await gateway.greeted()
    assert (await gateway.upstream())["up"] is True
    assert await gateway.count("taskgate_upstream_state", upstream="reports", state="up") == 1


async def test_a_program_that_fails_is_left_alone_where_that_is_wanted() -> None:
    breaker = {"failures": 1, "open_for": "1h"}
    async with serve(with_program(circuit_breaker=breaker)) as gateway:
        host = await gateway.greeted()
        assert (await host.call("crash")).error["data"]["reason"] == "closed"
        left = (await host.call("echo")).error
        assert (left["data"]["reason"], left["data"]["dispatched"]) == ("unreachable", False)


async def test_its_processes_are_gone_with_the_gateway() -> None:
    async with serve(with_program()) as gateway:
        pid = (await who(await gateway.greeted()))["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]


async def eventually_dispatched(host: Any) -> None:
    """Wait until the program holds a call: it has said something that it was asked after that."""
    await who(host)
