"""Operators see callers by their names, unless `admin.identity` is pseudonymous."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import GatewayConfig
from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import until
from interaction.operators import act, look, stream, tokens
from interaction.rate_limits import CALLS

TASKS, CALLERS, SESSIONS, REFUSALS = (f"/api/v1/{name}" for name in ("tasks", "callers", "sessions", "refusals"))
NAMES = ("issuer", "subject", "client", "tenant")
BOB = ("corp", "bob", "claude-code", "acme")
ALICE = ("corp", "alice", "desk", "other")
NOBODY = (None, None, None, None)
OF_EACH = {"bob": BOB, "alice": ALICE}


@dataclass
class People:
    """A gateway whose callers are people, and its configuration with a value of `admin.identity`."""

    gateway: Gateway
    issuer: TokenIssuer
    config: Callable[[str], GatewayConfig]

    def token(self, person: str) -> str:
        _, subject, client, tenant = OF_EACH[person]
        return self.issuer.token(self.gateway.url("reports"), subject=subject, org=tenant, client_id=client)

    async def start(self, person: str, tool: str = "report") -> None:
        """Have a person start a task in a session of its own."""
        await (await self.gateway.greeted(token=self.token(person))).start(tool)

    async def shown(self, query: str = "", path: str = TASKS) -> set[tuple[str | None, ...]]:
        """The names of the callers that a list shows."""
        items = (await look(self.gateway, path + query))["items"]
        return {tuple(item[name] for name in NAMES) for item in items}


@pytest.fixture(params=["memory", "sqlite"])
async def people(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[People]:
    server.script["report"] = Hold()
    folder = tmp_path if request.param == "sqlite" else None
    admin = tokens(tmp_path)

    def config(identity: str) -> GatewayConfig:
        return guarded(
            {"reports": server.url},
            issuer,
            auth={"issuers": {"corp": {**issuer.section, "claims": {"tenant": "org"}}}},
            limits={"rate": [{**CALLS, "burst": 3}]},
            admin={**admin, "identity": identity},
            folder=folder,
        )

    async with serve(config("full"), data_directory=tmp_path / "data") as gateway:
        yield People(gateway, issuer, config)


async def test_tasks_have_the_names_of_their_callers(people: People) -> None:
    await people.start("bob")
    await people.start("alice")
    assert await people.shown() == {BOB, ALICE}
    [item] = (await look(people.gateway, f"{TASKS}?caller=bob"))["items"]
    task = await look(people.gateway, f"{TASKS}/{item['reference']}")
    assert tuple(task[name] for name in NAMES) == BOB
    assert task["caller"] == item["caller"]
    assert item["caller"].startswith("c_")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?caller=bob", {BOB}),
        ("?caller=claude-code", set()),
        ("?client=claude-code", {BOB}),
        ("?client=bob", set()),
        ("?issuer=corp", {BOB, ALICE}),
        ("?issuer=other", set()),
        ("?caller=alice", {ALICE}),
        ("?caller=acme", set()),
        ("?caller=bo", set()),
        ("?tenant=acme", {BOB}),
        ("?tenant=other", {ALICE}),
        ("?tenant=bob", set()),
        ("?tenant=acme&caller=alice", set()),
        ("?tenant=acme&caller=bob&tool=report&status=working", {BOB}),
    ],
)
async def test_filters_take_names(people: People, query: str, expected: set[Any]) -> None:
    await people.start("bob")
    await people.start("alice")
    assert await people.shown(query) == expected
    status = "&status=working,input_required"
    assert await people.shown(query if "status" in query else query + status) == expected


async def test_a_filter_takes_the_reference_as_before(people: People) -> None:
    await people.start("bob")
    await people.start("alice")
    [item] = (await look(people.gateway, f"{TASKS}?caller=bob"))["items"]
    for path in (TASKS, CALLERS, SESSIONS):
        assert await people.shown(f"?caller={item['caller']}", path) == {BOB}, path


async def test_the_tasks_of_a_tenant_are_cancelled_by_its_name(people: People) -> None:
    await people.start("bob")
    await people.start("alice")
    _, counted = await act(people.gateway, f"{TASKS}/cancel", {"tenant": "acme", "dry_run": True})
    chosen = {"tenant": "acme", "confirm": counted["matched"], "selection": counted["selection"]}
    status, done = await act(people.gateway, f"{TASKS}/cancel", chosen)
    assert (status, done["cancelled"]) == (200, 1)
    await until(lambda: people.shown("?status=cancelled"), lambda found: found == {BOB})


async def test_callers_and_sessions_and_refusals_have_names(people: People) -> None:
    for person in OF_EACH:
        await people.start(person)
    bob = people.gateway.modern("reports", people.token("bob"))
    for _ in range(5):
        await bob.ask("tools/call", {"name": "echo"})
    assert await people.shown("", CALLERS) == {BOB, ALICE}
    assert await people.shown("?caller=alice", CALLERS) == {ALICE}
    assert await people.shown("", SESSIONS) == {BOB, ALICE}
    assert await people.shown("?caller=bob", SESSIONS) == {BOB}
    assert BOB in await people.shown("", REFUSALS)


async def test_events_have_names(people: People) -> None:
    async with stream(people.gateway, "?kinds=task") as events:
        await people.start("bob")
        _, _, data = await events.next("task")
    assert tuple(data[name] for name in NAMES) == BOB


async def test_with_pseudonyms_references_alone_are_shown_and_stored(people: People) -> None:
    await people.start("bob")
    await people.gateway.reload(people.config("pseudonymous"))
    await people.start("alice")
    found = (await look(people.gateway, TASKS))["items"]
    assert {(item["issuer"], item["subject"], item["client"]) for item in found} == {(None, None, None)}
    assert len({item["tenant"] for item in found} - {None, "acme", "other"}) == 2
    assert await people.shown("?caller=bob") == set()
    assert await people.shown("?tenant=acme") == set()
    assert len(await people.shown(f"?tenant={found[0]['tenant']}")) == 1
    for path in (CALLERS, SESSIONS):
        assert await people.shown("", path) == {NOBODY}, path
    await people.gateway.reload(people.config("full"))
    # Nothing was stored that could be shown again.
    assert {names[:3] for names in await people.shown()} == {BOB[:3], NOBODY[:3]}


async def test_what_was_kept_with_names_is_shown_without_them_after_a_reload(people: People) -> None:
    bob = people.gateway.modern("reports", people.token("bob"))
    async with stream(people.gateway, "?kinds=task") as events:
        await people.start("bob")
        _, place, data = await events.next("task")
        assert data["subject"] == "bob"
        for _ in range(5):
            await bob.ask("tools/call", {"name": "echo"})
        assert BOB in await people.shown("", REFUSALS)
        await people.gateway.reload(people.config("pseudonymous"))
        assert await people.shown("", REFUSALS) == {NOBODY}
        await events.next("reset")
    await people.gateway.reload(people.config("full"))
    async with stream(people.gateway, "?kinds=task", Last_Event_ID=place) as again:
        await again.next("reset")


async def test_without_a_choice_operators_see_what_the_audit_log_has(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    audit = {"identity": "pseudonymous", "sinks": [{"name": "out", "type": "stdout"}]}
    config = guarded({"reports": server.url}, issuer, admin=tokens(tmp_path), audit=audit)
    server.script["report"] = Hold()
    async with serve(config) as gateway:
        await (await gateway.greeted(token=issuer.token(gateway.url("reports")))).start("report")
        [item] = (await look(gateway, TASKS))["items"]
        assert (item["issuer"], item["subject"], item["client"]) == (None, None, None)
