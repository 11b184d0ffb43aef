"""What hosts of the modern era hand back with their answers: it opens one round of one call of theirs, and once."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer, TalkingTool
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, DONE
from interaction.refusals import refused
from requirements import covers

ASKABLE = {"elicitation": {}}
ARGUMENTS = {"quarter": "Q2"}


async def asked(host: Host, tool: TalkingTool, id: str = "q-1") -> tuple[str, str]:
    """A call that its server asks about: the one key, and the state."""
    await tool.ask(id)
    result = (await host.call("report", ARGUMENTS)).result
    assert result["resultType"] == "input_required"
    (key,) = result["inputRequests"]
    return key, result["requestState"]


async def answered(host: Host, key: str, state: str, tool: str = "report", **more: Any) -> Answer:
    """The call again with its answer, as a host should send it but for what is given."""
    params = {"inputResponses": {key: ACCEPTED}, "requestState": state}
    return await host.call(tool, more.pop("arguments", ARGUMENTS), **params, **more)


@pytest.fixture
def talking(server: ScriptedServer) -> TalkingTool:
    """The tool `report`, which begins to talk before it is called."""
    server.script["report"] = talking = TalkingTool()
    talking.begun.set()
    return talking


@pytest.fixture
def asker(gateway: Gateway) -> Host:
    """A host that can be asked, without the tasks extension."""
    return gateway.modern(capabilities=ASKABLE, tasks=False)


async def still_answerable(host: Host, tool: TalkingTool, key: str, state: str) -> bool:
    """Whether the call that waits is answered after all, and once."""
    await tool.finish(DONE)
    answer = await answered(host, key, state)
    return answer.result["content"] == DONE["content"] and len(tool.called.server.heard("tools/call")) == 1


@covers("M-MRTR-4", "I-ISO-5")
@pytest.mark.parametrize("state", ["", "x", "eyJ", "A" * 100, "é", "h1.k.Z", "A" * 200_000, "=?base64?eA==?="], ids=len)
async def test_a_state_that_nobody_gave_is_refused(server: ScriptedServer, asker: Host, state: str) -> None:
    refused(await answered(asker, "a", state), 200, -32602)
    assert server.heard("tools/call") == []


@covers("M-MRTR-4")
async def test_a_state_that_was_touched_is_refused(asker: Host, talking: TalkingTool) -> None:
    key, state = await asked(asker, talking)
    middle = len(state) // 2
    other = "B" if state[middle] == "A" else "A"
    for touched in (state[:-1], state + "A", state[:middle] + other + state[middle + 1 :], state[::-1], state + "="):
        refused(await answered(asker, key, touched), 200, -32602)
    assert await still_answerable(asker, talking, key, state)


@covers("M-MRTR-4")
async def test_a_state_is_good_for_the_request_that_it_was_given_for_alone(
    server: ScriptedServer, asker: Host, talking: TalkingTool
) -> None:
    key, state = await asked(asker, talking)
    refused(await answered(asker, key, state, arguments={"quarter": "Q3"}), 200, -32602)
    refused(await answered(asker, key, state, arguments={}), 200, -32602)
    refused(await answered(asker, key, state, "echo"), 200, -32602)
    params = {"name": "report", "arguments": ARGUMENTS, "requestState": state, "inputResponses": {key: ACCEPTED}}
    refused(await asker.ask("prompts/get", params), 200, -32602)
    assert await still_answerable(asker, talking, key, state)


@covers("M-MRTR-4", "M-MRTR-3")
async def test_a_state_opens_its_round_once(asker: Host, talking: TalkingTool, server: ScriptedServer) -> None:
    key, state = await asked(asker, talking)
    await talking.finish(DONE)
    assert (await answered(asker, key, state)).result["content"] == DONE["content"]
    refused(await answered(asker, key, state), 200, -32602)
    assert len(server.heard("tools/call")) == 1


@covers("M-MRTR-4")
async def test_the_state_of_an_earlier_round_is_refused(asker: Host, talking: TalkingTool) -> None:
    key, state = await asked(asker, talking)
    await talking.ask("q-2")
    second = (await answered(asker, key, state)).result
    refused(await answered(asker, key, state), 200, -32602)
    (other,) = second["inputRequests"]
    assert await still_answerable(asker, talking, other, second["requestState"])


@covers("M-MRTR-4", "M-MRTR-7", "R-RES-7")
async def test_a_state_is_good_as_long_as_a_question_may_wait(server: ScriptedServer, talking: TalkingTool) -> None:
    clock = ManualClock()
    config = configuration({"reports": server.url}, tasks={"input_required": {"max_wait": "5m"}})
    async with serve(config, Environment(clock=clock)) as gateway:
        host = gateway.modern(capabilities=ASKABLE, tasks=False)
        key, state = await asked(host, talking)
        clock.advance(timedelta(minutes=5, seconds=1))
        refused(await answered(host, key, state), 200, -32602)
        assert (await talking.told("q-1"))["result"]["action"] == "cancel"
        await eventually(lambda: len(server.cancelled) == 1)


@pytest.fixture
async def guarded_gateway(server: ScriptedServer, issuer: TokenIssuer) -> AsyncIterator[Gateway]:
    """A gateway that asks for tokens, with two mounts before one server."""
    async with serve(guarded({"reports": server.url, "orders": server.url}, issuer)) as gateway:
        yield gateway


@covers("M-MRTR-4", "I-ISO-2", "I-ISO-5", "S-SEC-2")
async def test_a_state_is_good_for_its_caller_alone(
    guarded_gateway: Gateway, issuer: TokenIssuer, talking: TalkingTool
) -> None:
    here = guarded_gateway.url()
    alice, bob, desk = (
        guarded_gateway.modern(token=issuer.token(here, **claims), capabilities=ASKABLE, tasks=False)
        for claims in ({}, {"subject": "bob"}, {"client_id": "other"})
    )
    key, state = await asked(alice, talking)
    for other in (bob, desk):
        refused(await answered(other, key, state), 200, -32602)
    again = guarded_gateway.modern(token=issuer.token(here), capabilities=ASKABLE, tasks=False)
    assert await still_answerable(again, talking, key, state)


@covers("M-MRTR-4", "I-ISO-6")
async def test_a_state_is_good_at_its_mount_alone(
    guarded_gateway: Gateway, issuer: TokenIssuer, talking: TalkingTool
) -> None:
    hosts = {
        mount: guarded_gateway.modern(
            mount, issuer.token(guarded_gateway.url(mount)), capabilities=ASKABLE, tasks=False
        )
        for mount in ("reports", "orders")
    }
    key, state = await asked(hosts["reports"], talking)
    refused(await answered(hosts["orders"], key, state), 200, -32602)
    assert await still_answerable(hosts["reports"], talking, key, state)
