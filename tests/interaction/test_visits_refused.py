"""Why requests were refused, as their accounts have it: of whatever era, and at whatever step."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.mcp_host import ACCEPT
from helpers.scripted_upstream import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.whole_gateway import WholeGateway, running
from interaction.limiting import CALLS, Opens, both_eras, come
from interaction.visiting import Visits
from requirements import covers
from taskgate.telemetry.events import ToolCalled

HEAD = {"Content_Type": "application/json", "Accept": ACCEPT}


async def unknown_method(host: Any) -> None:
    await host.ask("no/such", {})


async def too_often(host: Any) -> None:
    await host.call("echo")
    await host.call("echo")
    await host.call("echo")


async def an_unknown_task(host: Any) -> None:
    await host.ask("tasks/get", {"taskId": "U" * 32})


async def what_can_be_no_task(host: Any) -> None:
    await host.ask("tasks/get", {"taskId": "!"})


async def no_json(host: Any) -> None:
    sent = {name.replace("_", "-"): value for name, value in HEAD.items()}
    async with host.http.post(host.url, data=b"{", headers=sent) as response:
        assert response.status == 400


@covers("T52")
@both_eras
@pytest.mark.parametrize(
    ("does", "refusal", "code"),
    [
        (unknown_method, "unknown_method", "-32601"),
        (too_often, "rate", "429"),
        (an_unknown_task, "task_not_found", "-32602"),
        (what_can_be_no_task, "task_not_found", "-32602"),
        (no_json, "bad_json", "-32700"),
    ],
)
async def test_what_is_refused_is_accounted_for_with_why(
    request_contexts: Visits, opens: Opens, era: str, does: Callable[[Any], Awaitable[None]], refusal: str, code: str
) -> None:
    async with opens(CALLS) as gateway:
        await does(await come(gateway, era))
        request_context = request_contexts.last()
    assert (request_context.refusal, request_context.error, request_context.result_bytes) == (refusal, code, None)


async def test_who_is_not_known_is_refused_without_a_caller_and_who_is_is_told_of(
    request_contexts: Visits, server: ScriptedServer, issuer: TokenIssuer
) -> None:
    async with running(guarded({"reports": server.url}, issuer)) as gateway:
        await gateway.host().ask("ping")
        stranger = request_contexts.last()
        await gateway.modern(token=issuer.token(gateway.url(), subject="bob")).call("echo")
        bob = request_contexts.last()
    assert (stranger.caller, stranger.refusal, stranger.status) == (None, "unauthenticated", 401)
    assert bob.caller is not None
    assert bob.caller.identity is not None
    assert (bob.caller.identity.subject, bob.refusal) == ("bob", None)


async def test_a_session_that_is_unknown_is_refused_with_what_the_head_says_of_it(
    heard: WholeGateway, request_contexts: Visits
) -> None:
    host = await heard.greeted("2025-06-18")
    host.session = "U" * 32
    assert (await host.ask("ping")).status == 404
    request_context = request_contexts.last()
    assert (request_context.refusal, request_context.revision, request_context.client) == (
        "session_not_found",
        "2025-06-18",
        None,
    )


async def test_while_the_gateway_drains_requests_are_refused_as_that(
    heard: WholeGateway, request_contexts: Visits
) -> None:
    assert heard.service._runtime is not None
    heard.service._runtime.gateway.drain(timedelta(seconds=1))
    await heard.modern().call("echo")
    assert (request_contexts.last().refusal, request_contexts.last().error) == ("draining", "503")


@both_eras
async def test_a_call_that_a_limit_refuses_is_a_rejected_call_of_a_tool(
    request_contexts: Visits, opens: Opens, era: str
) -> None:
    async with opens(CALLS) as gateway:
        await too_often(await come(gateway, era))
    calls = [event for event, _ in request_contexts.all if isinstance(event, ToolCalled)]
    assert [call.disposition for call in calls][-1] == "rejected"
    assert len(calls) == 3
