"""What is counted before it is known who asks, and what counts when it has happened."""

import json
from datetime import timedelta

from helpers.host.host import Host, both_eras
from helpers.host.raw import post, raw_host
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer
from interaction.rate_limits import TASK, Opens, passes
from requirements import covers

# --- before it is known who asks -------------------------------------------------------------------------------------


IP = {"name": "ip", "scope": "ip", "rate": "1/m", "burst": 3, "before_auth": True}
FAILURES = {"name": "auth_failures", "scope": "ip", "rate": "1/m", "burst": 2, "event": "auth_failure"}


async def test_an_address_that_asks_too_often_gets_a_429_that_belongs_to_no_request(
    opens_guarded: Opens, issuer: TokenIssuer, server: ScriptedServer
) -> None:
    async with opens_guarded(IP) as gateway:
        host = gateway.modern(token=issuer.token(gateway.url()))
        for _ in range(3):
            assert (await host.discover())["supportedVersions"]
        answer = await host.ask("server/discover")
        assert (answer.status, answer.code, answer.headers["Retry-After"]) == (429, 429, "60")
        # Whoever it is, and whatever it asks.
        assert await gateway.host().leave() == 429
        assert await gateway.counts("taskgate_http_rejections_total", "reason") == {"rate": 2}


async def test_nothing_is_read_of_the_body_of_who_asks_too_often(opens: Opens) -> None:
    async with opens({**IP, "burst": 1}) as gateway:
        await gateway.host().ask("ping")
        address = gateway.address
        async with raw_host(address) as raw:
            head = post("{", path="/reports/mcp", host=f"{address[0]}:{address[1]}", Content_Length="1000000")
            answer = await raw.ask(head)
            assert (answer.status, answer.headers["retry-after"]) == (429, "60")
            assert json.loads(answer.body)["id"] is None
            assert await raw.at_end()


async def test_tokens_that_are_not_accepted_close_the_door_to_their_address_for_good_ones_too(
    opens_guarded: Opens, issuer: TokenIssuer, clock: ManualClock
) -> None:
    async with opens_guarded(FAILURES) as gateway:
        good, bad = gateway.modern(token=issuer.token(gateway.url())), gateway.modern(token="nonsense")
        assert [(await bad.ask("server/discover")).status for _ in range(3)] == [401, 401, 429]
        answer = await good.ask("server/discover")
        assert (answer.status, answer.headers["Retry-After"]) == (429, "60")
        clock.advance(timedelta(minutes=1))
        assert (await good.ask("server/discover")).status == 200
        assert [(await bad.ask("server/discover")).status for _ in range(2)] == [401, 429]


async def test_a_token_that_was_found_good_before_passes_though_others_of_its_address_are_refused(
    opens_guarded: Opens, issuer: TokenIssuer, clock: ManualClock
) -> None:
    """Behind a proxy that is not trusted all hosts have one address: one with bad tokens must not lock out the rest."""
    async with opens_guarded(FAILURES, {**IP, "burst": 30}) as gateway:
        good, bad = gateway.modern(token=issuer.token(gateway.url())), gateway.modern(token="nonsense")
        assert (await good.ask("server/discover")).status == 200
        assert [(await bad.ask("server/discover")).status for _ in range(25)] == [401, 401] + [429] * 23
        assert (await good.ask("server/discover")).status == 200
        # Beyond what is remembered of it, its signature is looked at again.
        clock.advance(timedelta(seconds=61))
        assert (await bad.ask("server/discover")).status == 401
        assert (await bad.ask("server/discover")).status == 429
        assert (await good.ask("server/discover")).status == 200


async def test_who_comes_without_a_token_is_told_where_to_get_one_however_often(opens_guarded: Opens) -> None:
    async with opens_guarded(FAILURES) as gateway:
        assert [(await gateway.modern().ask("server/discover")).status for _ in range(9)] == [401] * 9


# --- tasks that are not there ----------------------------------------------------------------------------------------


@covers("R-RES-4")
@both_eras
async def test_who_asks_for_tasks_that_are_not_its_own_may_ask_for_none_for_a_while(
    opens_guarded: Opens, issuer: TokenIssuer, clock: ManualClock, era: str
) -> None:
    failures = {"name": "lookups", "scope": "context", "rate": "1/m", "burst": 2, "event": "lookup_failure"}
    async with opens_guarded(failures) as gateway:
        host = await gateway.greeted(era=era, token=issuer.token(gateway.url()))
        other = await gateway.greeted(era=era, token=issuer.token(gateway.url(), subject="bob"))

        async def looks(host: Host) -> int:
            return (await host.ask("tasks/get", {"taskId": TASK})).code

        assert [await looks(host) for _ in range(3)] == [-32602, -32602, 429]
        assert await passes(host, "echo") == [True]
        assert await looks(other) == -32602
        clock.advance(timedelta(minutes=1))
        assert [await looks(host) for _ in range(2)] == [-32602, 429]


async def test_who_listens_for_tasks_that_are_not_its_own_has_looked_for_them(opens: Opens) -> None:
    failures = {"name": "lookups", "scope": "context", "rate": "1/m", "burst": 2, "event": "lookup_failure"}
    async with opens(failures) as gateway:
        host = gateway.modern()
        async with host.listen(taskIds=[TASK, "B" * 32]):
            pass
        wishes = {"notifications": {"taskIds": [TASK]}}
        assert (await host.ask("subscriptions/listen", wishes)).code == 429
        # Who names no task looks for none.
        async with host.listen(toolsListChanged=True):
            pass
