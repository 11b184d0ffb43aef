"""How many sessions, streams and waits one caller may have open: counted exactly, and free again however one ends."""

import asyncio
import json
import sqlite3
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from helpers.failing_store import HoldingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, open_store, serve
from helpers.host.answers import Answer
from helpers.host.host import ACCEPT, Host
from helpers.host.raw import post, raw_host
from helpers.manual_clock import ManualClock
from helpers.package_objects import bytes_held
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually, until
from interaction.bare_requests import PING
from requirements import covers

GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}
ACTIVE = "http_server_active_requests"
TEN_KIB, THIRTEEN_KIB = 10 * 1024, 13 * 1024
"""Of a wait with its connection, on asyncio and on uvloop, whose transports are larger."""
MOST_LIVE = 10_000
"""How many sessions of hosts are in memory, where none is in use."""
Opens = Callable[..., AbstractAsyncContextManager[Gateway]]


@pytest.fixture
def opens(server: ScriptedServer, issuer: TokenIssuer, clock: ManualClock) -> Opens:
    """A gateway that lets each caller have so many sessions and so many streams."""

    @asynccontextmanager
    async def opened(
        *, sessions: int = 100, streams: int = 16, waits: int = 64, all_waits: int = 2048, asks: bool = False
    ) -> Any:
        concurrency = {"sessions_per_context": sessions, "waits_per_context": waits, "waits_global": all_waits}
        sections: dict[str, Any] = {
            "limits": {"rate": [], "concurrency": concurrency},
            "server": {
                "listen": "127.0.0.1:0",
                "drain": {"delay": "0s", "timeout": "2s"},
                "max_streams_per_context": streams,
            },
        }
        servers = {"reports": server.url, "search": server.url}
        config = guarded(servers, issuer, **sections) if asks else configuration(servers, **sections)
        async with serve(config, Environment(clock=clock)) as gateway:
            yield gateway

    return opened


async def listening(host: Host) -> int:
    """The status of one more GET stream, which is dropped at once."""
    head = {"Accept": "text/event-stream", **host.head()}
    async with bounded(), host.http.get(host.url, headers=head) as response:
        return response.status


async def gets_a_stream(host: Host) -> None:
    """Wait until the host may have one more GET stream."""
    await until(lambda: listening(host), lambda status: status == 200)


async def refusals(gateway: Gateway) -> dict[Any, float]:
    """How often caps refused, by what they count and over what."""
    return await gateway.counts("taskgate_concurrency_rejections_total", "policy", "scope")


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_one_session_too_many_is_refused_in_words_if_all_are_in_use(opens: Opens, server: ScriptedServer) -> None:
    async with opens(sessions=2) as gateway:
        first, second = await gateway.greeted(), await gateway.greeted(mount="search")
        met = len(server.heard("initialize"))
        async with first.listen(), second.listen():
            answer = await gateway.host().ask("initialize", GREETING)
            assert (answer.status, answer.headers["Retry-After"]) == (200, "2")
            assert "Mcp-Session-Id" not in answer.headers
            assert answer.error == {
                "code": 429,
                "message": "Too many sessions in use of this caller (2 of 2): end one, or wait until one is idle"
                "; try again in 2 s",
                "data": {
                    "origin": "gateway",
                    "reason": "concurrency",
                    "limit": 2,
                    "scope": "context",
                    "retryAfterMs": 2000,
                },
            }
            assert len(server.heard("initialize")) == met
            assert (await second.ask("ping")).result == {}
            assert await first.leave() == 200
            await gateway.greeted()
        assert await refusals(gateway) == {("sessions", "context"): 1}
        assert await gateway.count("taskgate_sessions_evicted_total") == 0


async def test_at_the_limit_a_new_session_takes_the_place_of_the_one_that_is_idle_for_longest(
    opens: Opens, server: ScriptedServer, clock: ManualClock
) -> None:
    async with opens(sessions=3) as gateway:
        hosts = []
        for _ in range(3):
            hosts.append(await gateway.greeted())
            clock.advance(timedelta(seconds=1))
        # The first was opened before the others, and used after them.
        assert (await hosts[0].call("echo")).status == 200
        await gateway.greeted(mount="search")
        assert [(await each.ask("ping")).status for each in hosts] == [200, 404, 200]
        await eventually(lambda: len(server.live) == 3)
        assert await refusals(gateway) == {}
        assert await gateway.count("taskgate_sessions_evicted_total") == 1


async def test_many_hosts_that_end_no_session_are_all_served(opens: Opens, server: ScriptedServer) -> None:
    async with opens(sessions=4) as gateway:
        for number in range(20):
            answer = await (await gateway.greeted()).call("echo", {"n": number})
            assert answer.result["structuredContent"] == {"n": number}
        await eventually(lambda: len(server.live) == 4)


@pytest.mark.parametrize("use", ["an open stream", "a request in flight", "an unfinished task"])
async def test_a_session_in_use_stays_though_it_was_used_long_ago(
    opens: Opens, server: ScriptedServer, clock: ManualClock, use: str
) -> None:
    server.script["report"] = hold = Hold()
    async with opens(sessions=2) as gateway, AsyncExitStack() as ends:
        busy = await gateway.greeted()
        if use == "an open stream":
            await ends.enter_async_context(busy.listen())
        elif use == "a request in flight":
            call = asyncio.create_task(busy.call("report"))
            async with bounded():
                await hold.begun.wait()
        else:
            await busy.start("report")
        clock.advance(timedelta(minutes=9))
        idle = await gateway.greeted()
        newest = await gateway.greeted()
        assert [(await each.ask("ping")).status for each in (busy, idle, newest)] == [200, 404, 200]
        hold.release({"content": []})
        if use == "a request in flight":
            assert (await call).result == {"content": []}


async def test_no_request_begins_on_a_session_while_the_store_removes_it(
    server: ScriptedServer, clock: ManualClock
) -> None:
    store = HoldingStore(await open_store("memory", None))
    config = configuration({"reports": server.url}, limits={"concurrency": {"sessions_per_context": 1}})
    around = Environment(store=store, clock=clock)  # type: ignore[arg-type]
    async with serve(config, around) as gateway:
        old = await gateway.greeted()
        with store.holding("drop") as dropping:
            opening = asyncio.create_task(gateway.greeted())
            async with bounded():
                await dropping.wait()
            assert (await old.call("echo")).status == 404
        async with bounded():
            assert (await (await opening).call("echo")).status == 200
        assert server.heard("tools/call") == server.heard("tools/call")[-1:]


async def test_sessions_of_others_do_not_count(opens: Opens, issuer: TokenIssuer) -> None:
    async with opens(sessions=1, asks=True) as gateway:
        ann, bob = (issuer.token(gateway.url(), subject=name) for name in ("ann", "bob"))
        others = await gateway.greeted(token=bob)
        await gateway.greeted(token=ann)
        await gateway.greeted(token=ann)
        assert (await others.ask("ping")).status == 200


async def test_a_session_that_could_not_be_opened_takes_no_place(opens: Opens, server: ScriptedServer) -> None:
    async with opens(sessions=1) as gateway:
        await server.stop()
        for _ in range(3):
            answer = await gateway.host().ask("initialize", GREETING)
            assert answer.code == -32603


async def test_sessions_that_cannot_be_opened_end_one_idle_session_at_most(
    opens: Opens, server: ScriptedServer
) -> None:
    async with opens(sessions=3) as gateway:
        hosts = [await gateway.greeted() for _ in range(3)]
        await server.stop()
        for _ in range(5):
            assert (await gateway.host(mount="search").ask("initialize", GREETING)).code == -32603
        assert [(await each.ask("ping")).status for each in hosts] == [404, 200, 200]


async def test_a_session_that_a_restart_left_counts_once_it_is_used_and_is_never_refused(
    server: ScriptedServer, tmp_path: Path
) -> None:
    limits = {"rate": [], "concurrency": {"sessions_per_context": 1}}
    config = configuration({"reports": server.url}, folder=tmp_path, limits=limits)
    async with serve(config) as gateway:
        before = await gateway.greeted()
    async with serve(config) as gateway:
        after = gateway.host()
        after.session, after.revision = before.session, before.revision
        other = await gateway.greeted()
        async with other.listen():
            assert (await after.ask("ping")).result == {}
            async with after.listen():
                with pytest.raises(AssertionError, match="Too many sessions"):
                    await gateway.greeted()
            assert await after.leave() == 200
        assert await other.leave() == 200
        await gateway.greeted()


async def test_many_that_open_at_once_have_no_more_than_there_are(opens: Opens, server: ScriptedServer) -> None:
    async with opens(sessions=5) as gateway:
        answers = await asyncio.gather(*(gateway.host().ask("initialize", GREETING) for _ in range(30)))
        opened = [answer for answer in answers if "Mcp-Session-Id" in answer.headers]
        assert len(opened) >= 5
        assert {answer.code for answer in answers if answer not in opened} <= {429}
        await eventually(lambda: len(server.live) == 5)
        assert await gateway.count("taskgate_sessions_evicted_total") == len(opened) - 5


@covers("T45")
@pytest.mark.timeout(480)
async def test_of_sessions_without_end_idle_ones_are_put_away_and_found_again(
    server: ScriptedServer, tmp_path: Path
) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config) as gateway:
        before = [await gateway.greeted() for _ in range(2)]
    ids = [f"{number:032d}" for number in range(MOST_LIVE + 10)]
    with closing(sqlite3.connect(tmp_path / "taskgate.db")) as file, file:
        copy = "INSERT INTO sessions (id, owner, expires, peer) SELECT ?, owner, expires, peer FROM sessions LIMIT 1"
        file.executemany(copy, [(id,) for id in ids])
    server.requests.clear()
    async with serve(config) as gateway:
        first, second = (gateway.again(host) for host in before)
        for host in (first, second):
            await host.call("echo")
        calls = [request for request in server.verbs("POST") if request.message["method"] == "tools/call"]
        theirs = [request.headers["mcp-session-id"] for request in calls]
        async with second.listen() as stream:
            await used(gateway, ids[:-20])
            assert server.verbs("DELETE") == []
            await used(gateway, ids[-20:])
            await eventually(lambda: server.verbs("DELETE"))
            # One that is in use stays, though it is older than most.
            assert {request.headers["mcp-session-id"] for request in server.verbs("DELETE")} == {theirs[0]}
            assert not stream.ended
        for host in (first, second):
            assert (await host.call("echo", {"n": 1})).result["structuredContent"] == {"n": 1}
        assert len(server.heard("initialize")) == 3


async def used(gateway: Gateway, sessions: Sequence[str]) -> None:
    """Ask for something in each of those sessions."""
    async with raw_host(gateway.address) as host:
        for session in sessions:
            fields = {"Content-Type": "application/json", "Accept": ACCEPT, "Mcp-Session-Id": session}
            head = {name.replace("-", "_"): value for name, value in fields.items()}
            answer = await host.ask(post(PING.decode(), path=gateway.paths["reports"], host=gateway.origin[7:], **head))
            assert answer.status == 200, answer.body


# --- streams ---------------------------------------------------------------------------------------------------------


async def test_one_get_stream_too_many_is_a_429_that_belongs_to_no_request(opens: Opens) -> None:
    async with opens(streams=2) as gateway:
        host, other = await gateway.greeted(), await gateway.greeted(mount="search")
        async with host.listen(), other.listen():
            head = {"Accept": "text/event-stream", **host.head()}
            async with host.http.get(host.url, headers=head) as response:
                message = json.loads(await response.text())
                assert (response.status, message["id"], message["error"]["code"]) == (429, None, 429)
                assert response.headers["Retry-After"] == "2"
            # What is asked meanwhile is answered.
            assert (await host.ask("ping")).result == {}
        assert await refusals(gateway) == {("streams", "context"): 1}
        assert await gateway.counts("taskgate_http_rejections_total", "reason") == {"concurrency": 1}
        await gets_a_stream(host)


async def test_one_stream_too_many_of_the_modern_era_is_an_error(opens: Opens) -> None:
    async with opens(streams=2) as gateway:
        host = gateway.modern()
        async with host.listen(toolsListChanged=True), host.listen(toolsListChanged=True):
            answer = await host.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            assert (answer.status, answer.code, answer.headers["Retry-After"]) == (200, 429, "2")
            assert answer.error["data"]["limit"] == 2
            assert not answer.streamed
        await gets_a_stream(await gateway.greeted())
        async with host.listen(toolsListChanged=True):
            pass


async def test_streams_of_both_eras_count_together(opens: Opens) -> None:
    async with opens(streams=1) as gateway:
        host = await gateway.greeted()
        async with host.listen():
            wishes = {"notifications": {"toolsListChanged": True}}
            assert (await gateway.modern().ask("subscriptions/listen", wishes)).code == 429
        await gets_a_stream(host)
        await gateway.shows("taskgate_streams", 0, side="downstream")
        async with gateway.modern().listen(toolsListChanged=True):
            assert await listening(host) == 429


async def test_streams_of_others_do_not_count(opens: Opens, issuer: TokenIssuer) -> None:
    async with opens(streams=1, asks=True) as gateway:
        hosts = [await gateway.greeted(token=issuer.token(gateway.url(), subject=name)) for name in ("ann", "bob")]
        async with hosts[0].listen(), hosts[1].listen():
            assert [await listening(host) for host in hosts] == [429, 429]


@pytest.mark.parametrize("end", ["the host leaves", "the session ends", "another stream takes its place"])
async def test_a_stream_leaves_its_place_however_it_ends(opens: Opens, end: str) -> None:
    async with opens(streams=9) as gateway:
        host = await gateway.greeted()
        async with AsyncExitStack() as streams:
            heard = [await streams.enter_async_context(host.listen()) for _ in range(8)]
            if end == "the session ends":
                assert await host.leave() == 200
                for each in heard:
                    await each.end()
            elif end == "another stream takes its place":
                # A session has eight: the ninth ends the first.
                await streams.enter_async_context(host.listen())
                await heard[0].end()
                assert await listening(host) == 200
        # All nine may be had again.
        hosts = [await gateway.greeted() for _ in range(9)]
        async with AsyncExitStack() as streams:
            for each in hosts:
                await gets_a_stream(each)
                await streams.enter_async_context(each.listen())
            assert await listening(await gateway.greeted()) == 429


async def test_a_stream_that_was_refused_for_something_else_takes_no_place(opens: Opens) -> None:
    async with opens(streams=1) as gateway:
        host = await gateway.greeted()
        modern = gateway.modern()
        for _ in range(3):
            head = {"Accept": "text/event-stream", **host.head(), "Last-Event-ID": "nonsense"}
            async with host.http.get(host.url, headers=head) as response:
                assert response.status == 400
            assert (await modern.ask("subscriptions/listen", {"notifications": {"taskIds": 7}})).code == -32602
        assert await listening(host) == 200


async def test_a_host_that_breaks_off_leaves_its_place(opens: Opens) -> None:
    async with opens(streams=1) as gateway:
        host = await gateway.greeted()
        for _ in range(3):
            async with aiohttp.ClientSession() as http:
                head = {"Accept": "text/event-stream", **host.head()}
                response = await http.get(host.url, headers=head)
                assert response.status == 200
                response.close()
            await gets_a_stream(host)
            await gateway.shows("taskgate_streams", 0, side="downstream")


# --- waits for results -----------------------------------------------------------------------------------------------


async def waiting(host: Host, task: str, count: int, gateway: Gateway, **headers: str) -> "list[asyncio.Task[Answer]]":
    """So many more requests for the result of a task, all of which wait."""
    before = await gateway.count(ACTIVE, http_route="mcp")
    asked = [asyncio.create_task(host.ask("tasks/result", {"taskId": task}, headers=headers)) for _ in range(count)]
    await gateway.shows(ACTIVE, before + count, http_route="mcp")
    return asked


@covers("T41")
async def test_one_wait_for_a_result_too_many_is_refused_and_those_that_there_are_go_on(
    opens: Opens, server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    async with opens(waits=3) as gateway:
        host, other = await gateway.greeted(), await gateway.greeted(mount="search")
        task = (await host.start("report"))["taskId"]
        waits = await waiting(host, task, 3, gateway)
        answer = await host.ask("tasks/result", {"taskId": task})
        assert (answer.status, answer.headers["Retry-After"], answer.streamed) == (200, "2", False)
        assert answer.error == {
            "code": 429,
            "message": "Too many waits for task results of this caller (3 of 3): close one, or wait until one ends"
            "; try again in 2 s",
            "data": {
                "origin": "gateway",
                "reason": "concurrency",
                "limit": 3,
                "scope": "context",
                "retryAfterMs": 2000,
            },
        }
        assert (await host.task(task))["status"] == "working"
        hold.release({"content": []})
        async with bounded():
            assert [(await each).result["content"] for each in waits] == [[]] * 3
        # What has ended is not waited for.
        assert (await other.ask("ping")).result == {}
        assert (await host.ask("tasks/result", {"taskId": task})).result["content"] == []
        assert await refusals(gateway) == {("waits", "context"): 1}


@covers("T41")
async def test_waits_of_all_callers_count_together_and_those_of_others_do_not_count_as_ones_own(
    opens: Opens, server: ScriptedServer, issuer: TokenIssuer
) -> None:
    server.script["report"] = hold = Hold()
    async with opens(waits=2, all_waits=3, asks=True) as gateway:
        ann, bob = [await gateway.greeted(token=issuer.token(gateway.url(), subject=name)) for name in ("ann", "bob")]
        tasks = [(await host.start("report"))["taskId"] for host in (ann, bob)]
        waits = await waiting(ann, tasks[0], 2, gateway) + await waiting(bob, tasks[1], 1, gateway)
        refused = await bob.ask("tasks/result", {"taskId": tasks[1]})
        assert (refused.code, refused.error["data"]["scope"]) == (429, "global")
        hold.release({"content": []})
        async with bounded():
            await asyncio.gather(*waits)
        assert await refusals(gateway) == {("waits", "global"): 1}


@covers("T41")
async def test_a_wait_is_gone_within_a_second_of_its_host(opens: Opens, server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with opens(waits=2) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        before = await gateway.count(ACTIVE, http_route="mcp")
        for _ in range(3):
            # Of a stream that can be taken up again, the host may come back: these take JSON alone.
            waits = await waiting(host, task, 2, gateway, Accept="application/json")
            assert (await host.ask("tasks/result", {"taskId": task})).code == 429
            assert not any(each.done() for each in waits), "both places were free"
            for each in waits:
                each.cancel()
            async with bounded(1.0):
                await asyncio.wait(waits)
                await gateway.shows(ACTIVE, before, http_route="mcp")
        hold.release({"content": []})


@covers("T41")
async def test_a_wait_takes_few_kibibytes_with_its_connection_however_many_there_are(
    opens: Opens, server: ScriptedServer
) -> None:
    """Of what the gateway asks for itself: what the HTTP library has of a connection is not its own."""
    server.script["report"] = hold = Hold()
    async with opens(waits=4000, all_waits=4000) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        waits: list[asyncio.Task[Answer]] = []
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as host.http:

            async def bytes_of(count: int) -> int:
                waits.extend(await waiting(host, task, count, gateway, Accept="application/json"))
                return bytes_held()

            tracemalloc.start()
            try:
                few, more, most = await bytes_of(100), await bytes_of(100), await bytes_of(200)
            finally:
                tracemalloc.stop()
            most_of_one = THIRTEEN_KIB if isinstance(asyncio.get_running_loop(), uvloop.Loop) else TEN_KIB
            assert more - few < 100 * most_of_one
            assert most - more < 200 * most_of_one
            hold.release({"content": []})
            async with bounded():
                await asyncio.gather(*waits)
