"""Filters and orders of lists: what is declared, each criterion over a socket, and cursors that keep to their list."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, error, result
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from requirements import covers

IMMEDIATE = "io.modelcontextprotocol/model-immediate-response"


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


async def listed(host: Host, **params: Any) -> list[dict[str, Any]]:
    """A page that is the whole list."""
    found = (await host.ask("tasks/list", params)).result
    assert found.keys() == {"tasks"}
    tasks: list[dict[str, Any]] = found["tasks"]
    return tasks


async def ids(host: Host, **criteria: Any) -> list[str]:
    """What a filter lets through, said in `filter` and beside it."""
    nested = [task["taskId"] for task in await listed(host, filter=criteria)]
    assert [task["taskId"] for task in await listed(host, **criteria)] == nested
    return nested


class Tasks:
    """A task of every status that hosts see, `failed` twice; made one after another and ended in another order."""

    def __init__(self, server: ScriptedServer, host: Host) -> None:
        self.server, self.host, self.made = server, host, dict[str, str]()

    async def make(self) -> "Tasks":
        holds = [await self._held(name) for name in ("working", "cancelled", "completed")]
        for name, reply in (("failed", error(-1, "no")), ("tool error", result({"content": [], "isError": True}))):
            self.server.script["report"] = reply
            await self._start(name)
            await self._ended(name)
        holds[2].release({"content": []})
        await self._ended("completed")
        await self.host.ask("tasks/cancel", {"taskId": self.made["cancelled"]})
        return self

    def __getitem__(self, names: str) -> list[str]:
        return [self.made[name] for name in names.split(", ")]

    async def _held(self, name: str) -> Hold:
        self.server.script["report"] = hold = Hold()
        await self._start(name)
        async with bounded():
            await hold.begun.wait()
        return hold

    async def _start(self, name: str) -> None:
        self.made[name] = (await self.host.start("report"))["taskId"]

    async def _ended(self, name: str) -> None:
        await self.host.ask("tasks/result", {"taskId": self.made[name]})


@pytest.fixture
async def tasks(gateway: Gateway, server: ScriptedServer, issuer: TokenIssuer) -> Tasks:
    return await Tasks(server, await come(gateway, issuer)).make()


@covers("F-FILTER-1", "L-CAP-1")
async def test_what_lists_can_be_filtered_by_is_declared_with_them(gateway: Gateway, issuer: TokenIssuer) -> None:
    host = gateway.host(token=issuer.token(gateway.url()))
    both = {"before": True, "after": True}
    assert (await host.initialize())["capabilities"]["tasks"]["list"]["filter"] == {
        "methods": ["tools/call"],
        "taskIds": True,
        "status": True,
        "createdAt": both,
        "lastUpdatedAt": both,
        "order": {"by": ["createdAt", "lastUpdatedAt"], "direction": ["asc", "desc"]},
    }


@covers("F-FILTER-7")
async def test_where_there_is_no_list_a_filter_makes_none(server: ScriptedServer, issuer: TokenIssuer) -> None:
    params = {"filter": {"status": "no list"}}
    async with serve(configuration({"reports": server.url})) as gateway:
        host = gateway.host()
        assert "filter" not in str((await host.initialize())["capabilities"])
        assert (await host.ask("tasks/list", params)).error == {"code": -32601, "message": "Method not found"}
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        old = gateway.host(token=issuer.token(gateway.url()))
        assert "tasks" not in (await old.initialize("2025-06-18"))["capabilities"]
        assert (await old.ask("tasks/list", params)).code == -32601


@covers("F-FILTER-2", "L-STAT-3")
async def test_a_status_lets_through_what_is_shown_with_it(tasks: Tasks) -> None:
    host = tasks.host
    for name in ("working", "cancelled", "completed"):
        assert await ids(host, status=[name]) == tasks[name]
    assert await ids(host, status=["failed"]) == tasks["tool error, failed"]
    assert await ids(host, status=["cancelled", "failed", "working"]) == tasks["cancelled, tool error, failed, working"]
    assert await ids(host, status=["input_required"]) == await ids(host, status=[]) == []
    for task in await listed(host, filter={"status": ["failed"]}):
        assert (task["status"], await host.task(task["taskId"])) == ("failed", task)


@covers("F-FILTER-3", "F-FILTER-6")
async def test_a_list_is_in_the_order_that_is_asked_for(tasks: Tasks) -> None:
    host = tasks.host
    made = tasks["working, cancelled, completed, failed, tool error"]
    changed = tasks["working, failed, tool error, completed, cancelled"]
    assert [task["taskId"] for task in await listed(host)] == await ids(host) == changed[::-1]
    for by, up in (("createdAt", made), ("lastUpdatedAt", changed)):
        assert await ids(host, orderBy=by, order="asc") == up
        assert await ids(host, orderBy=by, order="desc") == await ids(host, orderBy=by) == up[::-1]
    assert await ids(host, order="asc") == changed


@covers("F-FILTER-2")
async def test_bounds_of_time_leave_out_what_is_shown_with_the_same_time(tasks: Tasks) -> None:
    host = tasks.host
    everything = await listed(host)
    for name, shown in (("created", "createdAt"), ("lastUpdated", "lastUpdatedAt")):
        for bound in (task[shown] for task in everything):
            moment = datetime.fromisoformat(bound)
            before = {task["taskId"] for task in everything if datetime.fromisoformat(task[shown]) < moment}
            past = {task["taskId"] for task in everything if datetime.fromisoformat(task[shown]) > moment}
            assert set(await ids(host, **{f"{name}Before": bound})) == before
            assert set(await ids(host, **{f"{name}After": bound})) == past
            assert await ids(host, **{f"{name}After": bound, f"{name}Before": bound}) == []


@covers("F-FILTER-2", "F-FILTER-5")
async def test_ids_find_the_callers_own_and_nothing_of_anybody_else(
    tasks: Tasks, gateway: Gateway, issuer: TokenIssuer
) -> None:
    host = tasks.host
    bob, books = await come(gateway, issuer, subject="bob"), await come(gateway, issuer, mount="books")
    foreign = [(await other.start("echo"))["taskId"] for other in (bob, books)]
    wanted = tasks["working, failed"]
    assert await ids(host, taskIds=[*wanted, *foreign, "unknown", "x" * 5000]) == wanted[::-1]
    assert await ids(host, taskIds=foreign) == await ids(host, taskIds=[]) == []
    for other, own in zip((bob, books), foreign, strict=True):
        assert await ids(other, taskIds=[*wanted, *foreign]) == [own]
        assert await ids(other) == [own]


@covers("F-FILTER-2", "F-FILTER-4")
async def test_all_criteria_must_be_met_and_those_that_are_not_known_count_for_nothing(tasks: Tasks) -> None:
    host = tasks.host
    wanted = {"taskIds": tasks["completed, failed, working"], "status": ["failed", "working"], "order": "asc"}
    assert await ids(host, **wanted) == tasks["working, failed"]
    assert await ids(host, **wanted, methods=["tools/call"], tool="other", ttl=7) == tasks["working, failed"]
    assert await ids(host, **wanted, methods=["sampling/createMessage"]) == []
    assert await ids(host, **wanted, createdAfter="2999-01-01T00:00:00Z") == []
    flat = [task["taskId"] for task in await listed(host, filter={"status": ["failed"]}, status=["working"])]
    assert flat == tasks["tool error, failed"]


WRONG: dict[str, Any] = {
    "filter": ["working"],
    "methods": "tools/call",
    "taskIds": {"0": "a"},
    "status": ["running"],
    "createdAfter": "yesterday",
    "createdBefore": "2026-01-31T12:00:00",
    "lastUpdatedAfter": 1_769_860_800,
    "lastUpdatedBefore": True,
    "orderBy": "status",
    "order": "down",
}


@covers("F-FILTER-4")
async def test_a_criterion_of_a_wrong_shape_is_refused_and_named(gateway: Gateway, issuer: TokenIssuer) -> None:
    host = await come(gateway, issuer)
    for name, value in WRONG.items():
        for params in ({name: value}, {"filter": {name: value}}) if name != "filter" else ({name: value},):
            answer = await host.ask("tasks/list", params)
            assert (answer.status, answer.code) == (200, -32602)
            assert answer.error["message"].startswith(f"{name} must ")


@covers("L-LIST-1", "L-LIST-4", "T-22")
async def test_a_cursor_goes_on_in_its_own_list_and_in_no_other(gateway: Gateway, issuer: TokenIssuer) -> None:
    host = await come(gateway, issuer)
    made = []
    for _ in range(101):
        made.append((await host.start("echo"))["taskId"])
        await host.ask("tasks/result", {"taskId": made[-1]})
    criteria = {"status": ["completed", "failed"], "orderBy": "createdAt", "order": "asc"}
    first = (await host.ask("tasks/list", {"filter": criteria})).result
    assert [task["taskId"] for task in first["tasks"]] == made[:100]
    cursor = first["nextCursor"]
    same = {"orderBy": "createdAt", "order": "asc", "filter": {"status": ["failed", "completed", "failed"]}}
    assert [task["taskId"] for task in await listed(host, cursor=cursor, **same)] == [made[100]]
    for other in (
        {},
        {**criteria, "order": "desc"},
        {**criteria, "status": ["completed"]},
        {**criteria, "taskIds": made},
    ):
        answer = await host.ask("tasks/list", {"filter": other, "cursor": cursor})
        assert (answer.status, answer.error) == (200, {"code": -32602, "message": "Invalid cursor"})
    plain = (await host.ask("tasks/list")).result["nextCursor"]
    assert (await host.ask("tasks/list", {"filter": criteria, "cursor": plain})).code == -32602


RULES: dict[str, tuple[dict[str, Any], str | None]] = {
    "own words": ({"immediate_response": "{tool} runs."}, "report runs."),
    "none": ({"immediate_response": None}, None),
    "empty words": ({"immediate_response": ""}, None),
}


@covers("L-CREATE-4")
@pytest.mark.parametrize(("rule", "told"), RULES.values(), ids=RULES)
async def test_a_model_is_told_what_the_rule_of_its_tool_says(
    server: ScriptedServer, rule: dict[str, Any], told: str | None
) -> None:
    rules = [{"tool": "report", "mode": "auto", **rule}, {"tool": "*", "mode": "auto"}]
    async with serve(configuration({"reports": server.url}, tasks={"upgrade": rules})) as gateway:
        host = await gateway.greeted()
        meta = (await host.call("report", task={})).result["_meta"]
        assert meta.get(IMMEDIATE, None) == told
        assert (IMMEDIATE in meta) is (told is not None)
        usual = (await host.call("echo", task={})).result["_meta"][IMMEDIATE]
        assert usual.startswith("The call of echo was accepted and runs as a task.")
