"""A released host subscribes through taskgate to events of a released server, where the configuration allows it.

The server posts each event straight to the webhook of the host. Host and server know one spelling of the declaration,
`capabilities.events`. In 2026-07-28 the server adds the spelling of the specification.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from example import environments
from example.processes import UVICORN_LISTENS, running

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from helpers.waiting import bounded
from interop.by_hand import REVISIONS, ByHand, by_hand
from interop.hosts import assert_log_is_discreet
from interop.peers import HOME, output_of, require_peers
from peers import install
from requirements import covers

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]

EVENTS = "io.modelcontextprotocol/events"
SERVER = "mcp-webhook-events-0.2.0"
METHODS = ("events/list", "events/subscribe", "events/unsubscribe", "events/poll", "events/stream")
SUBSCRIPTION = re.compile(r"sub_[0-9a-f]{32}")

in_either_era = pytest.mark.parametrize("host", REVISIONS)
before_either_era = pytest.mark.parametrize("server", REVISIONS)


@dataclass(frozen=True, slots=True)
class Stage:
    """The URL of the server, and the origin of a gateway that has it at several mounts."""

    directly: str
    gateway: str

    def allowed(self, server: str) -> str:
        """A mount where events cross. The configuration sets the era of the server, or leaves it `auto`."""
        return f"{self.gateway}/allowed-{server}/mcp"

    def denied(self, server: str) -> str:
        """A mount whose configuration says nothing of extensions."""
        return f"{self.gateway}/denied-{server}/mcp"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """Server and gateway. No log, audit log or store of the gateway holds the secret or the URL of a webhook."""
    require_peers(SERVER)
    folder = tmp_path_factory.mktemp("events")
    log = folder / "audit.jsonl"
    async with events_server(folder) as directly:
        upstreams: dict[str, dict[str, Any]] = {
            f"allowed-{era}": {"protocol_version": revision, "extensions": {EVENTS: "allow"}}
            for era, revision in {**REVISIONS, "auto": "auto"}.items()
        }
        upstreams |= {f"denied-{era}": {"protocol_version": revision} for era, revision in REVISIONS.items()}
        for name, more in upstreams.items():
            more |= {"path": f"/{name}/mcp", "url": directly}
        file = write_configuration(
            folder,
            "",
            auth={"mode": "none"},
            upstreams=upstreams,
            logging={"level": "debug"},
            audit={"arguments": "full", "sinks": [{"name": "a", "type": "file", "path": str(log)}]},
        )
        async with gateway_process(["--config", file], log=folder / "gateway.log") as gateway:
            yield Stage(directly, f"http://{gateway.listen}")
    assert_log_is_discreet(folder / "gateway.log", directly)
    kept = [*folder.glob("gateway.log"), *folder.glob("audit.jsonl*"), *folder.glob("taskgate.db*")]
    assert len(kept) >= 3
    for place in kept:
        assert [word for word in (b"whsec_", b"/hook?") if word in place.read_bytes()] == [], place


@asynccontextmanager
async def events_server(folder: Path) -> AsyncIterator[str]:
    """The server for the length of the block; its URL."""
    command = (environments.python_of(SERVER), HOME / "events_server.py", folder / "subscriptions.db")
    async with running(command, log=folder / "server.log") as child:
        async with bounded():
            listening = await child.said(UVICORN_LISTENS)
        yield f"{listening[1].decode()}/mcp"


async def told_by_host(url: str, era: str) -> dict[str, Any]:
    """The report of the host that does all its steps in that era."""
    options = ["--initialize"] if era == "legacy" else []
    status, output, errors = await output_of([install.node(), HOME / "host_events.mjs", url, *options])
    assert status == 0, errors
    told: dict[str, Any] = json.loads(output)
    return told


def lasting(answer: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer that is the same in every run."""
    if "error" in answer:
        return {"method": answer["method"], "error": answer["error"]}
    result = {name: value for name, value in answer["result"].items() if name != "_meta"}
    if answer["method"] == "events/subscribe":
        assert SUBSCRIPTION.fullmatch(result.pop("id"))
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", result.pop("refreshBefore"))
    return {"method": answer["method"], "status": answer["status"], "result": result}


def assert_received(told: dict[str, Any]) -> None:
    """The host subscribed, its receiver answered the challenge and verified one event, and the subscription ended."""
    steps = told["steps"]
    subscription = steps["subscribe"]["id"]
    event = steps["event"]["event"]
    assert [each["name"] for each in steps["list"]["events"]] == ["ticket.changed"]
    assert steps["change"] == {"delivered": 1, "retrying": 0, "failed": 0}
    assert steps["event"]["subscription"] == subscription
    assert event["data"] == {"ticket": "T-1", "summary": "closed"}
    assert told["deliveries"] == [
        {"type": "verification", "eventId": None, "subscription": subscription, "status": 200},
        {"type": "event", "eventId": event["eventId"], "subscription": subscription, "status": 204},
    ]
    assert steps["forged"] == 401
    assert steps["refresh"]["id"] == subscription
    assert steps["unsubscribe"] is None
    assert steps["change after"] == {"delivered": 0, "retrying": 0, "failed": 0}
    assert steps["ill-formed"]["code"] == -32602
    assert (steps["unreachable"]["code"], steps["unreachable"]["data"]) == (-32015, {"reason": "connection_failed"})


async def assert_has_no_events(through: ByHand, host: str) -> None:
    """No spelling declares events, and each method of events is unknown."""
    assert "events" not in through.declared
    assert EVENTS not in through.declared.get("extensions", {})
    for method in METHODS:
        heard = await through.ask(method, name="ticket.changed", arguments={"ticket": "T-1"})
        assert (method, heard.error["code"]) == (method, -32601)
        assert heard.status == (404 if host == "modern" else 200)


@in_either_era
async def test_a_host_receives_a_signed_event_of_its_server(stage: Stage, host: str) -> None:
    told = await told_by_host(stage.directly, host)
    assert_received(told)
    assert told["declared"]["events"] == {}


@covers("X-UE-2", "X-UE-3")
@pytest.mark.parametrize(("host", "server"), [("legacy", "legacy"), ("modern", "modern"), ("modern", "auto")])
async def test_a_host_receives_a_signed_event_through_the_gateway_after_the_same_answers(
    stage: Stage, host: str, server: str
) -> None:
    directly = await told_by_host(stage.directly, host)
    through = await told_by_host(stage.allowed(server), host)
    assert_received(through)
    assert len(directly["answers"]) == 9
    assert [*map(lasting, through["answers"])] == [*map(lasting, directly["answers"])]


@in_either_era
async def test_events_that_cross_are_declared_as_their_server_declares_them(stage: Stage, host: str) -> None:
    async with by_hand(stage.directly, host) as directly, by_hand(stage.allowed(host), host) as through:
        assert directly.declared["events"] == through.declared["events"] == {}
        said = directly.declared.get("extensions", {}).get(EVENTS)
        assert said == ({} if host == "modern" else None)
        assert through.declared.get("extensions", {}).get(EVENTS) == said


@in_either_era
async def test_what_the_server_does_not_know_is_refused_in_its_own_words(stage: Stage, host: str) -> None:
    asked: dict[str, Any] = {
        "name": "ticket.unknown",
        "arguments": {"ticket": "T-2"},
        "delivery": {"mode": "webhook", "url": "https://receiver.example/hook?a=%2F&b"},
    }
    async with by_hand(stage.directly, host) as directly, by_hand(stage.allowed(host), host) as through:
        said = (await directly.ask("events/unsubscribe", **asked)).error
        assert said["code"] == -32602
        assert (await through.ask("events/unsubscribe", **asked)).error == said


@pytest.mark.parametrize(("host", "server"), [("legacy", "modern"), ("modern", "legacy")])
async def test_events_cross_within_one_era_alone(stage: Stage, host: str, server: str) -> None:
    async with by_hand(stage.allowed(server), host) as through:
        await assert_has_no_events(through, host)


@before_either_era
@in_either_era
async def test_events_are_neither_declared_nor_answered_by_default(stage: Stage, host: str, server: str) -> None:
    async with by_hand(stage.denied(server), host, **{EVENTS: {}}) as through:
        await assert_has_no_events(through, host)


@in_either_era
async def test_a_released_host_sees_no_events_by_default(stage: Stage, host: str) -> None:
    told = await told_by_host(stage.denied("modern"), host)
    assert told["steps"]["list"]["refused"] == "Server does not support events"
    assert (told["answers"], told["deliveries"]) == ([], [])
