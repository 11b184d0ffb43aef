"""Whoever behaves as an attacker would is told of once; and why a task was not found, which no host is told."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import GONE, both_eras
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer
from helpers.token_issuer import guarded as asking_for_tokens
from interaction.audit_logs import audited, lines, of, told_of
from interaction.rate_limits import Opens
from requirements import covers

UNKNOWN = "U" * 32
MINUTE = timedelta(minutes=1)
BURST = 20
"""How often a task may be asked for at once, whatever its interval."""


@pytest.fixture
async def guarded(opens_guarded: Opens, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that knows callers by their tokens, and puts nobody into the penalty box for a few look-ups."""
    tasks = {"ttl": {"default": "1m", "max": "1m"}}
    async with opens_guarded(audit=audited(tmp_path), tasks=tasks) as gateway:
        yield gateway


@pytest.fixture
async def gateway(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that knows one caller."""
    async with serve(configuration({"reports": server.url}, audit=audited(tmp_path))) as gateway:
        yield gateway


@pytest.fixture
def token_of(guarded: Gateway, issuer: TokenIssuer) -> Callable[[str], str]:
    """A token of somebody."""
    return lambda subject: issuer.token(guarded.url(), subject=subject)


async def suspected(gateway: Gateway) -> dict[str, float]:
    """What operators were told of those who behave as attackers would."""
    return await gateway.counts("taskgate_security_events_total", "type")


async def denials(folder: Path, count: int = 1) -> list[tuple[str, str, bool]]:
    """Method, reason, and whether it is told whose the task is."""
    await told_of(folder, "task.access_denied", count)
    denied = of(lines(folder), "task.access_denied")
    return [(line["mcp"]["method"], line["reason"], line["task"]["owner_ctx"] is not None) for line in denied]


async def started(host: Any) -> str:
    """The id of a new task of a host of 2025-11-25."""
    return str((await host.start("echo", {}, ttl=60_000))["taskId"])


# --- why a task was not found --------------------------------------------------------------------------------------


@covers("O-AUD-2")
@both_eras
async def test_who_asks_for_what_is_somebody_elses_is_denied_and_suspected_once_a_minute(
    guarded: Gateway, token_of: Callable[[str], str], clock: ManualClock, tmp_path: Path, era: str
) -> None:
    task = await started(await guarded.greeted(token=token_of("alice")))
    bob = await guarded.greeted(era=era, token=token_of("bob"))
    for _ in range(2):
        assert (await bob.ask("tasks/get", {"taskId": task})).code == -32602
    assert await denials(tmp_path, 2) == [("tasks/get", "context_mismatch", True)] * 2
    assert await suspected(guarded) == {"cross_context_access": 1}
    clock.advance(timedelta(seconds=59))
    await bob.ask("tasks/cancel", {"taskId": task})
    assert (await denials(tmp_path, 3))[-1] == ("tasks/cancel", "context_mismatch", True)
    assert await suspected(guarded) == {"cross_context_access": 1}


@both_eras
async def test_of_what_expired_and_of_what_never_was_it_is_told_which(
    guarded: Gateway, token_of: Callable[[str], str], clock: ManualClock, tmp_path: Path, era: str
) -> None:
    alice = await guarded.greeted(token=token_of("alice"))
    task = await started(alice)
    clock.advance(MINUTE)
    host = await guarded.greeted(era=era, token=alice.token)
    for id in (task, UNKNOWN):
        assert (await host.ask("tasks/get", {"taskId": id})).code == -32602
    assert await denials(tmp_path, 2) == [("tasks/get", "expired", True), ("tasks/get", "not_found", False)]
    assert await suspected(guarded) == {}


@both_eras
@pytest.mark.parametrize("id", ["!", 7, None, "U" * 100_000], ids=["a sign", "a number", "null", "long"])
async def test_what_can_be_no_id_is_denied_at_once(gateway: Gateway, tmp_path: Path, era: str, id: Any) -> None:
    host = await gateway.greeted(era=era)
    await host.ask("tasks/get", {"taskId": id}, headers={"Mcp-Name": GONE} if era == "modern" else None)
    assert await denials(tmp_path) == [("tasks/get", "malformed_id", False)]
    labels = ("upstream", "mcp_method_name", "reason")
    denied = {("reports", "tasks/get", "malformed_id"): 1}
    assert await gateway.counts("taskgate_task_access_denials_total", *labels) == denied


async def test_what_was_denied_right_before_the_end_is_told_of(gateway: Gateway, tmp_path: Path) -> None:
    await (await gateway.greeted()).ask("tasks/get", {"taskId": UNKNOWN})
    await gateway.close()
    assert await denials(tmp_path) == [("tasks/get", "not_found", False)]


# --- suspicions ----------------------------------------------------------------------------------------------------


@covers("O-AUD-2")
async def test_headers_that_say_something_else_than_the_body_are_suspicious(
    guarded: Gateway, token_of: Callable[[str], str]
) -> None:
    host = guarded.modern(token=token_of("alice"))
    for header in ("Mcp-Method", "Mcp-Name"):
        assert (await host.call("echo", headers={header: "other"})).code == -32020
    assert await suspected(guarded) == {"header_mismatch": 1}
    # Somebody else is told of apart.
    await guarded.modern(token=token_of("bob")).call("echo", headers={"Mcp-Name": "other"})
    assert await suspected(guarded) == {"header_mismatch": 2}


@pytest.mark.parametrize("value", [GONE, ["echo", "echo"], "=?base64?****?="], ids=["missing", "doubled", "malformed"])
async def test_headers_that_only_are_not_right_are_not_suspicious(gateway: Gateway, value: Any) -> None:
    assert (await gateway.modern().call("echo", headers={"Mcp-Name": value})).code == -32020
    assert await suspected(gateway) == {}


@covers("O-AUD-2")
@both_eras
async def test_who_polls_on_though_it_is_refused_is_told_of_once(
    server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    config = asking_for_tokens({"reports": server.url}, issuer, tasks={"early_poll": {"reject_above": 2}})
    async with serve(config) as gateway:
        token = issuer.token(gateway.url())
        task = await started(await gateway.greeted(token=token))
        host = await gateway.greeted(era=era, token=token)
        codes = [(await host.ask("tasks/get", {"taskId": task})).message or {} for _ in range(BURST + 5)]
        assert await suspected(gateway) == {"excessive_polling": 1}
    assert sum("error" in answer for answer in codes) >= 3


@covers("O-AUD-2")
async def test_who_tries_tokens_is_told_of_once_for_its_address(opens_guarded: Opens, issuer: TokenIssuer) -> None:
    failures = {"name": "failures", "scope": "ip", "rate": "2/m", "burst": 2, "event": "auth_failure"}
    async with opens_guarded(failures) as gateway:
        stranger = gateway.host(token=issuer.token("https://elsewhere.example"))
        statuses = [(await stranger.ask("ping")).status for _ in range(5)]
        assert await suspected(gateway) == {"auth_bruteforce": 1}
    assert statuses == [401, 401, 429, 429, 429]
