"""Whoever behaves as an attacker would is told of once; and why a task was not found, which no host is told."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from helpers.modern_host import GONE
from helpers.scripted_upstream import ScriptedServer
from helpers.token_issuer import TokenIssuer
from helpers.token_issuer import guarded as asking_for_tokens
from helpers.told import Told
from helpers.waiting import eventually
from helpers.whole_gateway import WholeGateway, running
from interaction.limiting import Opens, both_eras, come
from requirements import covers
from taskgate.admission.polls import BURST
from taskgate.telemetry.events import SuspicionRaised, TaskDenied

UNKNOWN = "U" * 32
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def guarded(opens_guarded: Opens) -> AsyncIterator[WholeGateway]:
    """A gateway that knows callers by their tokens, and puts nobody into the penalty box for a few look-ups."""
    async with opens_guarded() as gateway:
        yield gateway


@pytest.fixture
def token_of(guarded: WholeGateway, issuer: TokenIssuer) -> Callable[[str], str]:
    """A token of somebody."""
    return lambda subject: issuer.token(guarded.url(), subject=subject)


def suspected(told: Told) -> list[str]:
    return [suspicion.kind for suspicion in told.of(SuspicionRaised)]


async def denials(told: Told, count: int = 1) -> list[tuple[str, str, bool]]:
    """Method, reason, and whether it is told whose the task is."""
    await eventually(lambda: len(told.of(TaskDenied)) >= count)
    return [(denied.method, denied.reason, denied.owner is not None) for denied in told.of(TaskDenied)]


async def started(host: Any) -> str:
    """The id of a new task of a host of 2025-11-25."""
    return str((await host.start("echo", {}, ttl=60_000))["taskId"])


# --- why a task was not found --------------------------------------------------------------------------------------


@covers("O-AUD-2")
@both_eras
async def test_who_asks_for_what_is_somebody_elses_is_denied_and_suspected_once_a_minute(
    guarded: WholeGateway, token_of: Callable[[str], str], clock: ManualClock, told: Told, era: str
) -> None:
    task = await started(await guarded.greeted(token=token_of("alice")))
    bob = await come(guarded, era, token=token_of("bob"))
    for _ in range(2):
        assert (await bob.ask("tasks/get", {"taskId": task})).code == -32602
    assert await denials(told, 2) == [("tasks/get", "context_mismatch", True)] * 2
    assert suspected(told) == ["cross_context_access"]
    clock.advance(timedelta(seconds=59))
    await bob.ask("tasks/cancel", {"taskId": task})
    assert (await denials(told, 3))[-1] == ("tasks/cancel", "context_mismatch", True)
    assert suspected(told) == ["cross_context_access"]


@both_eras
async def test_of_what_expired_and_of_what_never_was_it_is_told_which(
    guarded: WholeGateway, token_of: Callable[[str], str], clock: ManualClock, told: Told, era: str
) -> None:
    alice = await guarded.greeted(token=token_of("alice"))
    task = await started(alice)
    clock.advance(MINUTE)
    host = await come(guarded, era, token=alice.token)
    for id in (task, UNKNOWN):
        assert (await host.ask("tasks/get", {"taskId": id})).code == -32602
    assert await denials(told, 2) == [("tasks/get", "expired", True), ("tasks/get", "not_found", False)]
    assert suspected(told) == []


@both_eras
@pytest.mark.parametrize("id", ["!", 7, None, "U" * 100_000], ids=["a sign", "a number", "null", "long"])
async def test_what_can_be_no_id_is_denied_at_once(gateway: WholeGateway, told: Told, era: str, id: Any) -> None:
    host = await come(gateway, era)
    await host.ask("tasks/get", {"taskId": id}, headers={"Mcp-Name": GONE} if era == "stateless" else None)
    (denied,) = told.of(TaskDenied)
    asked = id[:32] if isinstance(id, str) else ""
    assert denied == TaskDenied("reports", "tasks/get", "malformed_id", asked, None)


async def test_what_was_denied_right_before_the_end_is_told_of(gateway: WholeGateway, told: Told) -> None:
    await (await gateway.greeted()).ask("tasks/get", {"taskId": UNKNOWN})
    await gateway.service.close()
    assert await denials(told) == [("tasks/get", "not_found", False)]


# --- suspicions ----------------------------------------------------------------------------------------------------


@covers("O-AUD-2")
async def test_headers_that_say_something_else_than_the_body_are_suspicious(
    guarded: WholeGateway, token_of: Callable[[str], str], clock: ManualClock, told: Told
) -> None:
    host = guarded.modern(token=token_of("alice"))
    for header in ("Mcp-Method", "Mcp-Name"):
        assert (await host.call("echo", headers={header: "other"})).code == -32020
    assert suspected(told) == ["header_mismatch"]
    # Somebody else is told of apart.
    await guarded.modern(token=token_of("bob")).call("echo", headers={"Mcp-Name": "other"})
    assert suspected(told) == ["header_mismatch"] * 2


@pytest.mark.parametrize("value", [GONE, ["echo", "echo"], "=?base64?****?="], ids=["missing", "doubled", "malformed"])
async def test_headers_that_only_are_not_right_are_not_suspicious(
    gateway: WholeGateway, told: Told, value: Any
) -> None:
    assert (await gateway.modern().call("echo", headers={"Mcp-Name": value})).code == -32020
    assert suspected(told) == []


@covers("O-AUD-2")
@both_eras
async def test_who_polls_on_though_it_is_refused_is_told_of_once(
    server: ScriptedServer, issuer: TokenIssuer, told: Told, era: str
) -> None:
    config = asking_for_tokens({"reports": server.url}, issuer, tasks={"early_poll": {"reject_above": 2}})
    async with running(config) as gateway:
        token = issuer.token(gateway.url())
        task = await started(await gateway.greeted(token=token))
        host = await come(gateway, era, token=token)
        codes = [(await host.ask("tasks/get", {"taskId": task})).message or {} for _ in range(BURST + 5)]
    assert sum("error" in answer for answer in codes) >= 3
    assert suspected(told) == ["excessive_polling"]


@covers("O-AUD-2")
async def test_who_tries_tokens_is_told_of_once_for_its_address(
    opens_guarded: Opens, issuer: TokenIssuer, told: Told
) -> None:
    failures = {"name": "failures", "scope": "ip", "rate": "2/m", "burst": 2, "event": "auth_failure"}
    async with opens_guarded(failures) as gateway:
        stranger = gateway.host(token=issuer.token("https://elsewhere.example"))
        statuses = [(await stranger.ask("ping")).status for _ in range(5)]
    assert statuses == [401, 401, 429, 429, 429]
    assert suspected(told) == ["auth_bruteforce"]
