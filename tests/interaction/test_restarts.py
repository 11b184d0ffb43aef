"""What outlives the process: tasks and host sessions, over a stop and over a fall."""

import asyncio
import logging
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import Host
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer, result
from helpers.stored_tasks import stored_tasks
from helpers.waiting import bounded, eventually
from interaction.falls import LOST, falling, leave_one_sent, one_slot
from requirements import covers

DONE = {"content": [{"type": "text", "text": "done"}]}


@covers("L-RES-4")
async def test_a_finished_task_and_its_session_outlive_a_restart(server: ScriptedServer, tmp_path: Path) -> None:
    server.script["report"] = result(DONE)
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config) as gateway:
        host = await gateway.greeted()
        task = await host.start("report")
        before = await host.ask("tasks/result", {"taskId": task["taskId"]})
        last = await host.task(task["taskId"])
    async with serve(config) as gateway:
        host = gateway.again(host)
        assert await host.task(task["taskId"]) == last
        assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result == before.result
        assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert len(server.heard("initialize")) == 2


@covers("H-LEG-3")
async def test_a_session_that_was_deleted_or_never_kept_gets_404_after_a_restart(
    server: ScriptedServer, tmp_path: Path
) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config) as gateway:
        deleted = await gateway.greeted()
        await deleted.leave()
    async with serve(config) as gateway:
        assert (await gateway.again(deleted).ask("ping")).status == 404
    async with serve(configuration({"reports": server.url})) as gateway:
        forgotten = await gateway.greeted()
    async with serve(configuration({"reports": server.url})) as gateway:
        assert (await gateway.again(forgotten).ask("ping")).status == 404


@covers("S-SEC-9")
async def test_a_fallen_gateways_tasks_are_run_if_never_sent_and_failed_if_they_may_have_run(
    server: ScriptedServer, tmp_path: Path
) -> None:
    upstreams = {name: one_slot(server, name) for name in ("reports", "gone")}
    async with falling(server, tmp_path, upstreams=upstreams) as gateway:
        host, elsewhere = await gateway.greeted(), await gateway.greeted(mount="gone")
        sent, unsent = await leave_one_sent(server, tmp_path, host, host)
        await leave_one_sent(server, tmp_path, elsewhere, elsewhere)
    async with serve(configuration({"reports": server.url}, folder=tmp_path)) as gateway:
        host = await gateway.greeted()
        waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": unsent}))
        lost = await host.ask("tasks/result", {"taskId": sent})
        async with bounded():
            assert (await waiting).result["structuredContent"] == {"year": 2026}
        assert lost.error["data"] == LOST
        assert "may or may not have completed" in lost.error["message"]
        assert (await host.task(sent))["status"] == "failed"
        assert await gateway.count("taskgate_task_recoveries_total", outcome="retried") == 1
        assert await gateway.count("taskgate_task_recoveries_total", outcome="failed") == 3
        await eventually(lambda: len(server.live) == 1)
    assert len(server.heard("tools/call")) == 1
    # Once ended it stays ended: the next start finds nothing to take over.
    async with serve(configuration({"reports": server.url}, folder=tmp_path)) as gateway:
        assert (await (await gateway.greeted()).ask("tasks/result", {"taskId": sent})).error == lost.error
        assert await gateway.count("taskgate_task_recoveries_total") == 0


async def test_a_restart_runs_a_call_that_is_older_than_its_host_was_granted(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async with falling(server, tmp_path, upstreams={"reports": one_slot(server, "reports")}) as gateway:
        host = await gateway.greeted()
        _, unsent = await leave_one_sent(server, tmp_path, host, host)
    later = ManualClock(datetime.now(UTC) + timedelta(minutes=70))
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config, Environment(clock=later)) as gateway:
        host = await gateway.greeted()
        async with bounded():
            result = (await host.ask("tasks/result", {"taskId": unsent})).result
        assert result["structuredContent"] == {"year": 2026}
        # Half an hour from its end on.
        assert timedelta(minutes=99) < timedelta(milliseconds=(await host.task(unsent))["ttl"]) < timedelta(minutes=101)


async def test_a_stop_ends_running_tasks_as_shut_down_and_answers_who_waits(
    server: ScriptedServer, tmp_path: Path
) -> None:
    hold = server.script["report"] = Hold()
    config = configuration(
        {"reports": server.url}, folder=tmp_path, server={"drain": {"delay": "0s", "running_tasks": "fail"}}
    )
    async with serve(config) as gateway:
        host = await gateway.greeted()
        task = await host.start("report")
        waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]}))
        async with bounded():
            await hold.begun.wait()
            await gateway.drain()
            answer = await waiting
    assert answer.error["data"] == {"origin": "gateway", "reason": "shutdown", "dispatched": True}
    async with serve(config) as gateway:
        assert (await gateway.again(host).task(task["taskId"]))["status"] == "failed"


async def test_a_drain_lets_running_calls_end_and_refuses_what_still_comes(server: ScriptedServer) -> None:
    hold, plain = Hold(), Hold()
    server.script |= {"report": hold, "echo": plain}
    async with serve(configuration({"reports": server.url}, server={"drain": {"timeout": "20s"}})) as gateway:
        host = await gateway.greeted()
        task = await host.start("report")
        waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]}))
        calling = asyncio.create_task(host.call("echo"))
        async with bounded(), host.listen() as stream:
            await hold.begun.wait()
            await plain.begun.wait()
            draining = asyncio.create_task(gateway.drain())
            while await gateway.ready() != 503:
                pass
            hold.release(DONE)
            plain.release(DONE)
            assert (await waiting).result["content"] == DONE["content"]
            assert (await calling).result["content"] == DONE["content"]
            await stream.end()
            await draining


async def test_a_drain_waits_for_a_task_whose_creation_was_under_way(server: ScriptedServer, tmp_path: Path) -> None:
    listing, call = Hold(), Hold()
    server.methods["tools/list"], server.script["report"] = listing, call
    config = configuration({"reports": server.url}, folder=tmp_path, server={"drain": {"timeout": "20s"}})
    async with serve(config) as gateway:
        host = await gateway.greeted()
        creating = asyncio.create_task(host.call("report", task={}))
        async with bounded():
            await listing.begun.wait()
            draining = asyncio.create_task(gateway.drain())
            while await gateway.ready() != 503:
                pass
            listing.release({"tools": server.tools})
            task = (await creating).result["task"]
            await call.begun.wait()
            assert not draining.done()
            call.release(DONE)
            await draining
        assert stored_tasks(tmp_path)[task["taskId"]].status == "completed"


DRAIN = {"drain": {"delay": "0s", "timeout": "20s"}}
POLLED = {"poll_interval": {"base": "1s", "adaptive": False, "jitter": 0}}


@asynccontextmanager
async def draining(
    server: ScriptedServer, *, ends: bool = True, timeout: str = "20s"
) -> AsyncIterator[tuple[Gateway, Host, str, Hold, "asyncio.Task[None]"]]:
    """A gateway that drains while a task's call runs, its host, the task, and what holds the call.

    The call ends and the drain is over with the block, unless that does either itself.
    """
    hold = server.script["report"] = Hold()
    drain = {"drain": {"delay": "0s", "timeout": timeout}}
    async with serve(configuration({"reports": server.url}, server=drain, tasks=POLLED)) as gateway:
        host = await gateway.greeted()
        task = (await host.start("report"))["taskId"]
        async with bounded():
            await hold.begun.wait()
            over = asyncio.create_task(gateway.drain())
            while await gateway.ready() != 503:
                pass
            yield gateway, host, task, hold, over
            if ends:
                hold.release(DONE)
            await over


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "report", "arguments": {}}),
        ("tools/call", {"name": "report", "arguments": {}, "task": {}}),
        (
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}},
        ),
        ("resources/subscribe", {"uri": "file:///books"}),
    ],
    ids=["call", "call as a task", "initialize", "subscription"],
)
async def test_what_begins_something_is_refused_while_the_gateway_drains(
    server: ScriptedServer, method: str, params: dict[str, Any]
) -> None:
    async with draining(server) as (_, host, _, _, _):
        answer = await host.ask(method, params)
    assert (answer.status, answer.code) == (200, 503)
    assert answer.error["data"]["reason"] == "draining"
    assert "Retry-After" in answer.headers
    assert len(server.heard("tools/call")) == 1


@pytest.mark.parametrize("connection", ["kept", "new"])
async def test_what_asks_about_what_exists_is_served_while_the_gateway_drains(
    server: ScriptedServer, connection: str
) -> None:
    """A released host whose poll is refused tells its user that the task has failed."""
    async with draining(server) as (gateway, host, task, _, _), aiohttp.ClientSession() as fresh:
        if connection == "new":
            host.http = fresh
        assert (await host.task(task))["status"] == "working"
        assert (await host.ask("ping")).result == {}
        assert (await host.ask("tools/list")).result["tools"]
        assert (await gateway.modern().discover())["supportedVersions"]
        async with host.listen() as stream:
            cancelled = await host.ask("tasks/cancel", {"taskId": task})
            assert cancelled.result["status"] == "cancelled"
            await stream.until("notifications/tasks/status")
        assert await host.leave() == 200


async def test_the_listener_stays_for_the_poll_that_fetches_what_ended_in_the_drain(server: ScriptedServer) -> None:
    async with draining(server, ends=False) as (gateway, host, task, hold, over):
        hold.release(DONE)
        while (await host.task(task))["status"] == "working":
            pass
        async with aiohttp.ClientSession() as fresh:
            host.http = fresh
            assert (await host.ask("tasks/result", {"taskId": task})).result["content"] == DONE["content"]
        began = monotonic()
        await over
        assert monotonic() - began < 1
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*gateway.address)


async def test_the_listener_stays_for_two_poll_intervals_where_nobody_fetches_it(server: ScriptedServer) -> None:
    async with draining(server, ends=False) as (_, _, _, hold, over):
        hold.release(DONE)
        clock = asyncio.get_running_loop().time
        began = clock()
        await over
        assert 1.8 < clock() - began < 4


async def test_a_host_that_polls_for_ever_does_not_hold_the_drain_beyond_its_timeout(server: ScriptedServer) -> None:
    async with draining(server, ends=False, timeout="1s") as (_, host, task, _, over):
        while not over.done():
            with suppress(aiohttp.ClientError):
                await host.ask("tasks/get", {"taskId": task})
            await asyncio.sleep(0.02)


async def test_a_plain_call_keeps_the_listener_open_for_the_answers_that_it_needs(server: ScriptedServer) -> None:
    plain = server.script["echo"] = Hold()
    async with serve(configuration({"reports": server.url}, server=DRAIN)) as gateway:
        host = await gateway.greeted()
        calling = asyncio.create_task(host.call("echo"))
        async with bounded():
            await plain.begun.wait()
            over = asyncio.create_task(gateway.drain())
            while await gateway.ready() != 503:
                pass
            async with aiohttp.ClientSession() as fresh:
                again = gateway.again(host)
                again.http = fresh
                assert (await again.ask("ping")).result == {}
            plain.release(DONE)
            assert (await calling).result["content"] == DONE["content"]
            await over


async def test_a_plain_call_that_outlives_the_drain_is_answered(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with serve(configuration({"reports": server.url}, server={"drain": {"timeout": "200ms"}})) as gateway:
        host = await gateway.greeted()
        calling = asyncio.create_task(host.call("report"))
        async with bounded():
            await hold.begun.wait()
            await gateway.drain()
            answer = await calling
    assert (answer.status, answer.code) == (200, -32603)
    assert answer.error["data"] == {"origin": "gateway", "reason": "shutdown", "dispatched": True}


def lines_of(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    """The fields of the log lines with that message."""
    known = {*vars(logging.makeLogRecord({})), "message", "asctime"}
    found = [vars(record) for record in caplog.records if record.getMessage() == message]
    return [{name: value for name, value in fields.items() if name not in known} for fields in found]


async def test_the_log_tells_what_a_drain_waits_for_and_what_became_of_it(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with draining(server):
        pass
    began = {"tasks": 1, "requests": 1, "delay": timedelta(), "timeout": timedelta(seconds=20)}
    assert lines_of(caplog, "draining") == [began]
    assert lines_of(caplog, "drained") == [{"ended": 1, "failed": 0, "left": 0}]


async def test_the_log_tells_how_many_tasks_a_drain_failed(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with draining(server, ends=False, timeout="1s"):
        pass
    assert lines_of(caplog, "drained") == [{"ended": 0, "failed": 1, "left": 0}]


async def test_a_task_whose_record_is_damaged_is_named_in_the_log_by_its_reference(
    server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.script["report"] = result(DONE)
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config) as gateway:
        host = await gateway.greeted()
        task = await host.start("report")
        await host.ask("tasks/result", {"taskId": task["taskId"]})
    with closing(sqlite3.connect(tmp_path / "taskgate.db")) as connection:
        connection.execute("UPDATE tasks SET head = CAST('[]' AS BLOB)")
        connection.commit()
    async with serve(config) as gateway:
        host = gateway.again(host)
        for _ in range(3):
            assert (await host.ask("tasks/get", {"taskId": task["taskId"]})).code == 503
    [line] = lines_of(caplog, "A stored task cannot be read: requests for it get code 503")
    assert re.fullmatch("t_[A-Za-z0-9_-]{22}", line["task"])
