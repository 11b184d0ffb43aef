"""What was asked with a token ends with it, and not before: its leeway is part of its time."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.host.wire import asked, got, head_of
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.resumption import heard, last_id
from requirements import covers

JSON: Final = "application/json"
STATUS: Final = "notifications/tasks/status"


@pytest.fixture(params=[0, 300], ids=["no leeway", "leeway"])
def leeway(request: pytest.FixtureRequest) -> int:
    """Seconds that are granted after the end that a token names."""
    seconds: int = request.param
    return seconds


@pytest.fixture
async def gateway(server: ScriptedServer, issuer: TokenIssuer, leeway: int) -> AsyncIterator[Gateway]:
    auth = {"issuers": {"corp": {**issuer.section, "leeway": f"{leeway}s"}}}
    async with serve(guarded({"reports": server.url}, auth=auth)) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: Gateway, issuer: TokenIssuer) -> Host:
    """A host with an open session, whose token is good for long."""
    return await gateway.greeted(token=issuer.token(gateway.url()))


@covers("A-AUTH-13", "T9")
async def test_a_wait_for_a_result_ends_with_its_token_and_brings_none(
    server: ScriptedServer, gateway: Gateway, host: Host, issuer: TokenIssuer, leeway: int
) -> None:
    server.script["report"] = hold = Hold()
    task = await host.start("report")
    async with bounded():
        await hold.begun.wait()
        host.token = issuer.token(gateway.url(), exp=time.time() + 1 - leeway)
        answer = await host.ask("tasks/result", {"taskId": task["taskId"]}, headers={"Accept": JSON})
    text = "The token is not accepted: the token expired"
    assert (answer.status, answer.error) == (401, {"code": -32600, "message": text})
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    assert await gateway.count("taskgate_http_rejections_total") == 1
    assert (await host.ask("ping")).status == 401
    hold.release({"content": []})
    await gateway.counted("taskgate_tasks_finished_total")
    host.token = issuer.token(gateway.url())
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == []


@covers("A-AUTH-13", "T9")
@pytest.mark.parametrize("ends", ["meanwhile", "later"], ids=["ended meanwhile", "ends later"])
async def test_a_stream_that_waits_for_a_result_pauses_with_its_token_and_goes_on_with_another(
    server: ScriptedServer, gateway: Gateway, host: Host, issuer: TokenIssuer, leeway: int, ends: str
) -> None:
    """A host that is told an error ends its task; one whose stream ends comes back, and is told to get a token."""
    server.script["report"] = hold = Hold()
    task = await host.start("report")
    async with bounded():
        await hold.begun.wait()
        host.token = issuer.token(gateway.url(), exp=time.time() + 1 - leeway)
        async with asked(host, "tasks/result", {"taskId": task["taskId"]}) as wire:
            await wire.to_end()
        assert heard(wire) == []
        assert wire.seen[-1].retry == "1000"
        head = {"Accept": "text/event-stream", **head_of(host, Last_Event_ID=last_id(wire))}
        async with host.http.get(host.url, headers=head) as refused:
            assert refused.status == 401
            assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]
        if ends == "meanwhile":
            hold.release({"content": []})
        # The next token ends as well.
        host.token = issuer.token(gateway.url(), exp=time.time() + 2 - leeway)
        async with got(host, last_id(wire)) as again:
            await again.to_end()
        if ends == "later":
            assert heard(again) == []
            hold.release({"content": []})
            host.token = issuer.token(gateway.url())
            async with got(host, last_id(wire)) as again:
                await again.to_end()
    assert heard(again)[0]["content"] == []


@covers("A-AUTH-13", "T9")
async def test_a_stream_that_cannot_be_taken_up_again_ends_with_its_token_and_without_an_answer(
    server: ScriptedServer, gateway: Gateway, host: Host, issuer: TokenIssuer, leeway: int
) -> None:
    """A session of an older revision waits where its call repeats one that is a task."""
    server.script["report"] = hold = Hold()
    call = {"name": "report", "arguments": {}, "_meta": {"io.taskgate/idempotency-key": "k-1"}}
    assert "task" in (await host.ask("tools/call", {**call, "task": {}})).result
    older = await gateway.greeted("2025-06-18", token=host.token)
    async with bounded():
        await hold.begun.wait()
        older.token = issuer.token(gateway.url(), exp=time.time() + 1 - leeway)
        answer = await older.ask("tools/call", call)
    assert (answer.status, answer.streamed, answer.message) == (200, True, None)
    assert await gateway.count("taskgate_http_rejections_total") == 0


@covers("A-AUTH-13")
async def test_a_get_stream_ends_with_its_token_and_the_session_goes_on(
    gateway: Gateway, host: Host, issuer: TokenIssuer, leeway: int
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
    server: ScriptedServer, gateway: Gateway, host: Host, issuer: TokenIssuer
) -> None:
    server.script["report"] = hold = Hold()
    task = await host.start("report")
    host.token = issuer.token(gateway.url(), exp=time.time() - 10)
    waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]}))
    await gateway.counted("taskgate_streams", side="downstream", kind="response")
    hold.release({"content": []})
    async with bounded():
        assert (await waiting).result["content"] == []


@covers("A-AUTH-13")
@pytest.mark.parametrize("leeway", [300], indirect=True)
async def test_within_its_leeway_a_token_may_hold_a_stream(
    server: ScriptedServer, gateway: Gateway, host: Host, issuer: TokenIssuer
) -> None:
    host.token = issuer.token(gateway.url(), exp=time.time() - 10)
    async with host.listen() as stream:
        task = await host.start("echo")
        assert (await stream.until(STATUS))["params"]["taskId"] == task["taskId"]
        assert not stream.ended
