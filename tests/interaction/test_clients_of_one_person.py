"""One person with many clients: rates, caps, sessions, streams and turns at a server are those of the person."""

import asyncio
from typing import Any

from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host, both_eras
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually, until
from requirements import covers

CLIENTS = 34


async def client(gateway: Gateway, issuer: TokenIssuer, era: str, subject: str, number: int = 0) -> Host:
    """A host of one client of a person, which registered itself."""
    token = issuer.token(gateway.url(), subject=subject, client_id=f"client-{number}")
    return await gateway.greeted(era=era, token=token)


def refusal(answer: Any) -> tuple[int, str, int | None]:
    """The code, and over what which limit counts."""
    data = answer.error["data"]
    return answer.code, data.get("scope"), data.get("limit")


@covers("T46")
@both_eras
async def test_calls_of_all_clients_of_a_person_leave_turns_to_another_person(
    server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    server.script["report"] = Hold()
    upstream = {"path": "/reports/mcp", "url": server.url, "concurrency": 8}
    config = guarded({"reports": server.url}, issuer, upstreams={"reports": upstream}, limits={"rate": []})
    async with serve(config) as gateway, bounded():
        many = [await client(gateway, issuer, era, "mallory", number) for number in range(CLIENTS)]
        calls = [asyncio.create_task(host.call("report", {"number": at})) for at, host in enumerate(many)]
        await gateway.shows("taskgate_queue_depth", CLIENTS - 7, upstream="reports")
        alice = await client(gateway, issuer, era, "alice")
        answer = await alice.call("echo", {"text": "here"})
        assert "error" not in (answer.message or {})
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


@covers("T46")
@both_eras
async def test_a_rate_counts_the_calls_of_all_clients_of_a_person(
    server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    rate = {"name": "calls", "scope": "subject", "methods": ["tools/call"], "rate": "1/h", "burst": 2}
    config = guarded({"reports": server.url}, issuer, limits={"rate": [rate]})
    async with serve(config) as gateway, bounded():
        hosts = [await client(gateway, issuer, era, "mallory", number) for number in range(3)]
        assert [("error" in ((await host.call("echo")).message or {})) for host in hosts] == [False, False, True]
        alice = await client(gateway, issuer, era, "alice")
        assert "error" not in ((await alice.call("echo")).message or {})
        assert await gateway.count("taskgate_rate_limit_decisions_total", scope="subject", decision="rejected") == 1


@covers("T40", "T46")
@both_eras
async def test_unfinished_tasks_of_all_clients_of_a_person_are_capped(
    server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    server.script["report"] = Hold()
    tasks = {"upgrade": [{"tool": "*", "mode": "always"}]}
    concurrency = {"tasks_per_context": 2, "tasks_per_subject": 3}
    config = guarded({"reports": server.url}, issuer, tasks=tasks, limits={"rate": [], "concurrency": concurrency})

    async def ask(host: Host) -> Any:
        return await host.call_as_task("report")

    async with serve(config) as gateway, bounded():
        hosts = [await client(gateway, issuer, era, "mallory", number) for number in range(3)]
        assert ["error" in ((await ask(host)).message or {}) for host in (hosts[0], hosts[0], hosts[1])] == [False] * 3
        assert refusal(await ask(hosts[0])) == (429, "context", 2)
        assert refusal(await ask(hosts[2])) == (429, "subject", 3)
        alice = await client(gateway, issuer, era, "alice")
        assert "error" not in ((await ask(alice)).message or {})
        refused = await gateway.counts("taskgate_concurrency_rejections_total", "policy", "scope")
        assert refused == {("tasks", "context"): 1, ("tasks", "subject"): 1}


@covers("T46")
async def test_sessions_of_all_clients_of_a_person_are_capped_and_the_idlest_ends(
    server: ScriptedServer, issuer: TokenIssuer
) -> None:
    concurrency = {"sessions_per_context": 2, "sessions_per_subject": 3}
    config = guarded({"reports": server.url}, issuer, limits={"rate": [], "concurrency": concurrency})
    async with serve(config) as gateway, bounded():
        alice = await client(gateway, issuer, "legacy", "alice")
        hosts = [await client(gateway, issuer, "legacy", "mallory", number) for number in range(4)]
        assert (await hosts[0].ask("ping")).status == 404
        for host in (*hosts[1:], alice):
            assert (await host.ask("ping")).status == 200
        assert await gateway.count("taskgate_sessions_evicted_total") == 1


@covers("T46")
async def test_streams_of_all_clients_of_a_person_are_capped(server: ScriptedServer, issuer: TokenIssuer) -> None:
    config = guarded(
        {"reports": server.url},
        issuer,
        limits={"rate": []},
        server={"listen": "127.0.0.1:0", "max_streams_per_context": 1, "max_streams_per_subject": 1},
    )
    async with serve(config) as gateway, bounded():
        first, second, alice = [
            await client(gateway, issuer, "legacy", subject, number)
            for subject, number in (("mallory", 0), ("mallory", 1), ("alice", 0))
        ]

        async def listening(host: Host) -> int:
            head = {"Accept": "text/event-stream", **host.head()}
            async with host.http.get(host.url, headers=head) as response:
                return response.status

        async with first.listen():
            assert await listening(second) == 429
            assert await listening(alice) == 200
        await until(lambda: listening(second), lambda status: status == 200)


@covers("T46")
@both_eras
async def test_large_messages_of_all_clients_of_a_person_are_capped(
    server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    server.script["report"] = hold = Hold()
    concurrency = {"bytes_in_flight_per_context": "250KiB", "bytes_in_flight_per_subject": "450KiB"}
    config = guarded({"reports": server.url}, issuer, limits={"rate": [], "concurrency": concurrency})
    large = {"text": "x" * 100 * 1024}
    async with serve(config) as gateway, bounded():
        hosts = [await client(gateway, issuer, era, "mallory", number) for number in range(8)]
        calls = [asyncio.create_task(host.call("report", large)) for host in hosts[:4]]
        await eventually(lambda: len(server.heard("tools/call")) == 4)
        for host in (hosts[0], *hosts[4:]):
            assert refusal(await host.call("echo", large)) == (429, "subject", 450 * 1024)
        alice = await client(gateway, issuer, era, "alice")
        assert "error" not in ((await alice.call("echo", large)).message or {})
        refused = await gateway.counts("taskgate_concurrency_rejections_total", "policy", "scope")
        assert refused == {("bytes", "subject"): 5}
        hold.release({"content": []})
        for call in calls:
            assert "error" not in ((await call).message or {})
        assert "error" not in ((await hosts[7].call("echo", large)).message or {})
