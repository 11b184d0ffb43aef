"""What was asked with a token ends with it, and not before: its leeway is part of its time."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import pytest

from helpers.mcp_host import ACCEPT, McpHost
from helpers.scripted_upstream import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from helpers.whole_gateway import WholeGateway, running
from interaction.asking import DENIED
from interaction.conftest import Told
from requirements import covers
from taskgate.telemetry.audit import StreamOpened, TaskFinished

JSON: Final = "application/json"
STATUS: Final = "notifications/tasks/status"


@pytest.fixture(params=[0, 300], ids=["no leeway", "leeway"])
def leeway(request: pytest.FixtureRequest) -> int:
    """Seconds that are granted after the end that a token names."""
    seconds: int = request.param
    return seconds


@pytest.fixture
async def gateway(server: ScriptedServer, issuer: TokenIssuer, leeway: int) -> AsyncIterator[WholeGateway]:
    auth = {"issuers": {"corp": {**issuer.section, "leeway": f"{leeway}s"}}}
    async with running(guarded({"reports": server.url}, auth=auth)) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: WholeGateway, issuer: TokenIssuer) -> McpHost:
    """A host with an open session, whose token is good for long."""
    return await gateway.greeted(token=issuer.token(gateway.url()))


@covers("A-AUTH-13", "T9")
@pytest.mark.parametrize("accept", [ACCEPT, JSON], ids=["stream", "json"])
async def test_a_wait_for_a_result_ends_with_its_token_and_brings_none(
    server: ScriptedServer,
    gateway: WholeGateway,
    host: McpHost,
    issuer: TokenIssuer,
    told: Told,
    leeway: int,
    accept: str,
) -> None:
    server.script["report"] = hold = Hold()
    task = await host.start("report")
    async with bounded():
        await hold.begun.wait()
        host.token = issuer.token(gateway.url(), exp=time.time() + 1 - leeway)
        answer = await host.ask("tasks/result", {"taskId": task["taskId"]}, headers={"Accept": accept})
    assert answer.error == DENIED["error"]
    if accept == JSON:
        assert answer.status == 401
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    # Its status was sent long before where a stream has begun, so it was not refused before it was JSON-RPC.
    rejected = await gateway.count("taskgate_http_rejections_total")
    assert (answer.streamed, rejected) == ((False, 1) if accept == JSON else (True, 0))
    assert (await host.ask("ping")).status == 401
    hold.release({"content": []})
    await eventually(lambda: told.of(TaskFinished))
    host.token = issuer.token(gateway.url())
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == []


@covers("A-AUTH-13")
async def test_a_get_stream_ends_with_its_token_and_the_session_goes_on(
    gateway: WholeGateway, host: McpHost, issuer: TokenIssuer, leeway: int
) -> None:
    host.token = issuer.token(gateway.url(), exp=time.time() + 1.5 - leeway)
    async with host.listen() as stream:
        await stream.end()
    assert stream.heard == []
    host.token = issuer.token(gateway.url())
    assert (await host.ask("ping")).result == {}


# --- within the leeway ---------------------------------------------------------------------------------------------


@covers("A-AUTH-13")
@pytest.mark.parametrize("leeway", [300], indirect=True)
async def test_within_its_leeway_a_token_may_wait_for_a_result(
    server: ScriptedServer, gateway: WholeGateway, host: McpHost, issuer: TokenIssuer, told: Told
) -> None:
    server.script["report"] = hold = Hold()
    task = await host.start("report")
    host.token = issuer.token(gateway.url(), exp=time.time() - 10)
    waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]}))
    await eventually(lambda: StreamOpened("downstream", "response") in told.facts)
    hold.release({"content": []})
    async with bounded():
        assert (await waiting).result["content"] == []


@covers("A-AUTH-13")
@pytest.mark.parametrize("leeway", [300], indirect=True)
async def test_within_its_leeway_a_token_may_hold_a_stream(
    server: ScriptedServer, gateway: WholeGateway, host: McpHost, issuer: TokenIssuer
) -> None:
    host.token = issuer.token(gateway.url(), exp=time.time() - 10)
    async with host.listen() as stream:
        task = await host.start("echo")
        assert (await stream.until(STATUS))["params"]["taskId"] == task["taskId"]
        assert not stream.ended
