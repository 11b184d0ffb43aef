"""Lists of tasks: only where callers can be told apart, each the caller's own, whole over all its pages."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from requirements import covers

RELATED = "io.modelcontextprotocol/related-task"
DONE: dict[str, Any] = {"content": []}


@pytest.fixture(params=["memory", "sqlite"])
async def gateway(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Any, request: pytest.FixtureRequest
) -> AsyncIterator[Gateway]:
    """A gateway that asks for tokens and lets a caller have many tasks."""
    folder = tmp_path if request.param == "sqlite" else None
    limits = {"concurrency": {"tasks_per_context": 500}}
    config = guarded({"reports": server.url, "books": server.url}, issuer, folder=folder, limits=limits)
    async with serve(config, data_directory=tmp_path / "data") as gateway:
        yield gateway


async def come(gateway: Gateway, issuer: TokenIssuer, mount: str = "reports", **claims: Any) -> Host:
    return await gateway.greeted(mount=mount, token=issuer.token(gateway.url(mount), **claims))


async def page(host: Host, cursor: str | None = None) -> tuple[list[str], str | None]:
    """The ids of a page, and the cursor of the next one."""
    listed = (await host.ask("tasks/list", None if cursor is None else {"cursor": cursor})).result
    assert listed.keys() <= {"tasks", "nextCursor"}
    return [task["taskId"] for task in listed["tasks"]], listed.get("nextCursor")


async def ended(host: Host, *tasks: str) -> None:
    for task in tasks:
        await host.ask("tasks/result", {"taskId": task})


async def started(host: Host, count: int, tool: str = "echo") -> list[str]:
    """Tasks that were made and have ended one after another, the first first."""
    tasks = []
    for _ in range(count):
        tasks.append((await host.start(tool))["taskId"])
        await ended(host, tasks[-1])
    return tasks


@covers("L-CAP-1", "L-CAP-2")
@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18"])
async def test_lists_are_declared_to_callers_who_can_be_told_apart_and_have_tasks(
    gateway: Gateway, issuer: TokenIssuer, revision: str
) -> None:
    host = gateway.host(token=issuer.token(gateway.url()))
    capabilities = (await host.initialize(revision))["capabilities"]
    if revision == "2025-11-25":
        lists = capabilities["tasks"].pop("list")
        assert capabilities["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        assert lists.keys() == {"filter"}
        assert (await host.ask("tasks/list")).result == {"tasks": []}
    else:
        assert "tasks" not in capabilities
        assert (await host.ask("tasks/list")).code == -32601


@covers("L-CAP-2", "I-ISO-4")
async def test_without_authentication_they_are_neither_declared_nor_answered(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url})) as gateway:
        host = gateway.host()
        assert "list" not in (await host.initialize())["capabilities"]["tasks"]
        answer = await host.ask("tasks/list")
        assert (answer.status, answer.error) == (200, {"code": -32601, "message": "Method not found"})


@covers("L-LIST-2", "I-ISO-6", "T14")
async def test_a_list_is_of_one_caller_at_one_mount_whatever_its_session(gateway: Gateway, issuer: TokenIssuer) -> None:
    alice, again = await come(gateway, issuer), await come(gateway, issuer, jti="2")
    others = [
        await come(gateway, issuer, subject="bob"),
        await come(gateway, issuer, client_id="phone"),
        await come(gateway, issuer, mount="books"),
    ]
    (task,) = await started(alice, 1)
    assert await page(alice) == await page(again) == ([task], None)
    assert [await page(other) for other in others] == [([], None)] * 3


@covers("L-LIST-5", "L-GET-1")
async def test_a_list_tells_of_each_task_what_a_look_at_it_tells_and_relates_to_none(
    gateway: Gateway, server: ScriptedServer, issuer: TokenIssuer
) -> None:
    server.script["report"] = hold = Hold()
    host = await come(gateway, issuer)
    running_one = (await host.start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    await started(host, 2)
    answer = await host.ask("tasks/list")
    assert RELATED not in answer.text
    assert answer.result["tasks"] == [await host.task(task["taskId"]) for task in answer.result["tasks"]]
    assert [task["status"] for task in answer.result["tasks"]] == ["completed", "completed", "working"]
    cancelled = await host.ask("tasks/cancel", {"taskId": running_one})
    assert RELATED not in cancelled.text


@covers("L-LIST-1")
async def test_the_newest_news_come_first(gateway: Gateway, server: ScriptedServer, issuer: TokenIssuer) -> None:
    server.script["report"] = hold = Hold()
    host = await come(gateway, issuer)
    slow = (await host.start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    quick = await started(host, 2)
    assert await page(host) == ([*reversed(quick), slow], None)
    hold.release(DONE)
    await ended(host, slow)
    assert await page(host) == ([slow, *reversed(quick)], None)


@covers("L-LIST-1", "L-LIST-3")
async def test_every_task_is_on_exactly_one_page_while_others_are_made_and_end(
    gateway: Gateway, server: ScriptedServer, issuer: TokenIssuer
) -> None:
    server.script["report"] = hold = Hold()
    host = await come(gateway, issuer)
    first = await started(host, 2)
    slow = (await host.start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    tasks = [*first, slow, *await started(host, 208)]
    one, cursor = await page(host)
    assert one == tasks[:-101:-1]
    new = await started(host, 3)
    two, after = await page(host, cursor)
    assert two == tasks[-101:-201:-1]
    # What has news moves to the front, and is found there; what has none stays where it was.
    hold.release(DONE)
    await ended(host, slow)
    three, last = await page(host, after)
    assert (three, last) == ([task for task in tasks[-201::-1] if task != slow], None)
    assert (await page(host))[0] == [slow, *reversed(new), *one[:96]]
    assert await page(host, cursor) == (two, after)


@covers("L-LIST-1")
@pytest.mark.parametrize("count", [100, 101])
async def test_the_last_page_has_no_cursor(gateway: Gateway, issuer: TokenIssuer, count: int) -> None:
    host = await come(gateway, issuer)
    tasks = await started(host, count)
    found, cursor = await page(host)
    assert (len(found), cursor is None) == (100, count == 100)
    if cursor is not None:
        assert await page(host, cursor) == ([tasks[0]], None)


@covers("L-LIST-4")
async def test_a_cursor_that_is_not_the_callers_for_this_mount_is_refused(
    gateway: Gateway, issuer: TokenIssuer
) -> None:
    alice = await come(gateway, issuer)
    tasks = await started(alice, 101)
    _, cursor = await page(alice)
    assert cursor is not None
    bob, books = await come(gateway, issuer, subject="bob"), await come(gateway, issuer, mount="books")
    turned = cursor[:20] + ("A" if cursor[20] != "A" else "B") + cursor[21:]
    for host, text in (
        (bob, cursor),
        (books, cursor),
        *((alice, each) for each in ("", "nonsense", "é", cursor + "=", cursor[:-1], turned, cursor * 9, tasks[0])),
    ):
        answer = await host.ask("tasks/list", {"cursor": text})
        assert (answer.status, answer.error) == (200, {"code": -32602, "message": "Invalid cursor"})
    # A cursor that is null counts as absent.
    wrongs: list[Any] = [7, {}, [cursor]]
    for wrong in wrongs:
        answer = await alice.ask("tasks/list", {"cursor": wrong})
        assert (answer.status, answer.code) == (200, -32602)
    assert (await page(alice, cursor))[0] == [tasks[0]]
