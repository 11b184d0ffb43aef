"""Which requests take from which budgets: by method, server and tool, all or nothing, each element and notification."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from helpers.host.host import both_eras
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer
from interaction.rate_limits import CALLS, TASK, Opens, is_refused, passes


@both_eras
async def test_only_tools_that_the_glob_names_take_from_it(opens: Opens, era: str) -> None:
    async with opens({**CALLS, "tool": "re*", "burst": 1}) as gateway:
        host = await gateway.greeted(era=era)
        assert await passes(host, "report", "report", "echo", "echo") == [True, False, True, True]


@both_eras
async def test_only_requests_at_its_server_take_from_a_policy_for_one(opens: Opens, era: str) -> None:
    async with opens({**CALLS, "upstream": "search", "burst": 1}) as gateway:
        assert await passes(await gateway.greeted(era=era), *["echo"] * 3) == [True] * 3
        assert await passes(await gateway.greeted(era=era, mount="search"), "echo", "echo") == [True, False]


USUAL = (
    {**CALLS, "burst": 1},
    {"name": "polls", "scope": "context", "rate": "1/m", "burst": 1, "methods": ["tasks/*"]},
    {"name": "rest", "scope": "context", "rate": "1/m", "burst": 1, "methods": ["*"]},
)


async def test_calls_polls_and_the_rest_are_budgets_of_their_own(opens: Opens, clock: ManualClock) -> None:
    async with opens(*USUAL) as gateway:
        host = gateway.modern()

        async def refuses(method: str, params: dict[str, Any]) -> str | None:
            error = ((await host.ask(method, params)).message or {}).get("error", {})
            policy: str | None = error.get("data", {}).get("policy") if error.get("code") == 429 else None
            return policy

        asked = [
            ("tools/call", {"name": "echo", "arguments": {}}),
            ("tasks/get", {"taskId": TASK}),
            ("tools/list", {}),
        ]
        assert [await refuses(*each) for each in asked] == [None, None, None]
        assert [await refuses(*each) for each in asked] == ["calls", "polls", "rest"]
        # Another method of the rest, and of the polls: one budget each.
        assert await refuses("server/discover", {}) == "rest"
        assert await refuses("tasks/cancel", {"taskId": TASK}) == "polls"
        clock.advance(timedelta(minutes=1))
        assert [await refuses(*each) for each in asked] == [None, None, None]


@both_eras
async def test_a_cost_takes_as_many(opens: Opens, era: str) -> None:
    async with opens({**CALLS, "burst": 5}, {**CALLS, "name": "dear", "tool": "report", "burst": 5, "cost": 3}) as at:
        host = await at.greeted(era=era)
        assert await passes(host, "report", "report", "echo") == [True, False, True]


@both_eras
async def test_a_request_takes_from_all_its_policies_or_from_none(opens: Opens, era: str) -> None:
    """What one policy refuses leaves the others as they were."""
    wide = {**CALLS, "name": "wide", "burst": 3}
    narrow = {**CALLS, "name": "narrow", "burst": 1, "tool": "report"}
    async with opens(wide, narrow) as gateway:
        host = await gateway.greeted(era=era)
        decisions = ("taskgate_rate_limit_decisions_total", "policy", "decision")
        assert await passes(host, "report") == [True]
        assert await gateway.counts(*decisions) == {("wide", "allowed"): 1, ("narrow", "allowed"): 1}
        assert await passes(host, "report") == [False]
        assert await gateway.counts(*decisions) == {
            ("wide", "allowed"): 2,
            ("narrow", "allowed"): 1,
            ("narrow", "rejected"): 1,
        }
        assert await passes(host, "report") == [False]
        assert await passes(host, "echo", "echo", "echo") == [True, True, False]


@both_eras
async def test_a_shadow_refuses_nobody_and_is_counted(opens: Opens, era: str) -> None:
    async with opens({**CALLS, "burst": 1, "mode": "shadow"}) as gateway:
        host = await gateway.greeted(era=era)
        assert await passes(host, "echo", "echo") == [True, True]
        decisions = await gateway.counts("taskgate_rate_limit_decisions_total", "policy", "decision")
        assert decisions == {("calls", "allowed"): 1, ("calls", "shadow"): 1}


async def test_without_rates_nobody_is_too_fast(opens: Opens) -> None:
    async with opens() as gateway:
        assert all(await passes(gateway.modern(), *["echo"] * 50))


async def test_many_at_once_get_no_more_than_there_is(opens: Opens, server: ScriptedServer) -> None:
    async with opens({**CALLS, "burst": 7}) as gateway:
        host = gateway.modern()
        answers = await asyncio.gather(*(host.call("echo") for _ in range(40)))
        assert sum(not is_refused(answer) for answer in answers) == 7
        assert len(server.heard("tools/call")) == 7


# --- what is no request ----------------------------------------------------------------------------------------------


async def test_a_notification_counts_under_its_method_and_is_refused_without_an_id(
    opens: Opens, server: ScriptedServer
) -> None:
    # `initialize` is the first.
    async with opens({**CALLS, "methods": ["*"], "burst": 2}) as gateway:
        host = await gateway.greeted()
        assert (await host.tell("notifications/roots/list_changed")).status == 202
        answer = await host.tell("notifications/roots/list_changed")
        assert (answer.status, answer.code, answer.headers["Retry-After"]) == (429, 429, "60")
        assert "id" not in (answer.message or {})
        assert (await host.call("echo")).code == 429
        assert await gateway.counts("taskgate_http_rejections_total", "reason") == {"rate": 1}
    assert len(server.heard("notifications/roots/list_changed")) <= 1


async def test_a_notification_of_the_modern_era_counts_too(opens: Opens) -> None:
    async with opens({**CALLS, "methods": ["*"], "burst": 1}) as gateway:
        host = gateway.modern()
        body = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress"}).encode()
        answers = [await host.post(body, {"MCP-Protocol-Version": "2026-07-28"}) for _ in range(2)]
        assert [answer.status for answer in answers] == [202, 429]


async def test_an_answer_to_what_was_never_asked_counts_too(opens: Opens) -> None:
    async with opens({"name": "all", "scope": "context", "rate": "1/m", "burst": 2}) as gateway:
        host = await gateway.greeted()
        assert (await host.ask("ping")).result == {}
        assert (await host.ask("ping")).code == 429
        assert (await host.respond("never-asked", {})).status == 429


async def test_what_a_host_began_it_may_always_end(opens: Opens, server: ScriptedServer) -> None:
    """Released hosts lose their connection to a status of 429 for the end of the handshake, or for a cancel."""
    async with opens({"name": "all", "scope": "context", "rate": "1/m", "burst": 1}) as gateway:
        host = gateway.host()
        await host.initialize("2025-11-25")
        assert (await host.ask("ping")).code == 429
        notes = ("notifications/initialized", "notifications/cancelled")
        assert [(await host.tell(note, {"requestId": 1})).status for note in notes] == [202, 202]
        modern = gateway.modern()
        bodies = [json.dumps({"jsonrpc": "2.0", "method": note, "params": {"requestId": 1}}).encode() for note in notes]
        answers = [await modern.post(body, {"MCP-Protocol-Version": "2026-07-28"}) for body in bodies]
        assert [answer.status for answer in answers] == [202, 202]


@pytest.mark.parametrize("what", ["no method", "initialize in a batch", "an unknown method", "invalid parameters"])
async def test_what_is_refused_before_its_rate_is_asked_counts_for_its_caller_in_a_batch_too(
    opens: Opens, what: str
) -> None:
    element: dict[str, dict[str, Any]] = {
        "no method": {},
        "initialize in a batch": {"method": "initialize"},
        "an unknown method": {"method": "no/such"},
        "invalid parameters": {"method": "tools/call", "params": {"name": 7}},
    }
    async with opens({**CALLS, "methods": ["*"], "burst": 3}) as gateway:
        host = await gateway.greeted("2025-03-26")
        body = json.dumps([{"jsonrpc": "2.0", "id": number, **element[what]} for number in range(4)]).encode()
        head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **host.head()}
        async with host.http.post(host.url, data=body, headers=head) as response:
            answers = json.loads(await response.text())
        refused = what != "no method"
        assert [answer["error"]["code"] == 429 for answer in answers] == [False, False, refused, refused]
        alone = json.dumps({"jsonrpc": "2.0", "id": 9, **element[what]}).encode()
        if what != "initialize in a batch":
            answer = await host.post(alone)
            assert answer.status == 429 or is_refused(answer)


async def test_each_element_of_a_batch_counts(opens: Opens, server: ScriptedServer) -> None:
    async with opens(CALLS) as gateway:
        host = await gateway.greeted("2025-03-26")
        batch = [
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "echo", "arguments": {}}}
            for number in range(4)
        ]
        head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **host.head()}
        async with host.http.post(host.url, data=json.dumps(batch).encode(), headers=head) as response:
            assert response.status == 200
            text = await response.text()
        answers = (
            json.loads(text)
            if text.startswith("[")
            else [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        )
        refused = {answer["id"]: answer["error"]["code"] for answer in answers if "error" in answer}
        assert (len(answers), refused) == (4, {2: 429, 3: 429})
        assert len(server.heard("tools/call")) == 2
