"""Tasks that a host of the modern era cannot have: whatever the reason, it is told the same to the byte."""

import json
from collections.abc import AsyncIterator

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from interaction.refusals import TASK, refused
from requirements import covers

METHODS = {"tasks/get": {}, "tasks/cancel": {}, "tasks/update": {"inputResponses": {}}}
ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}


@pytest.fixture
async def gateway(server: ScriptedServer, issuer: TokenIssuer) -> AsyncIterator[Gateway]:
    """A gateway that asks for tokens and makes a task of every call, with two mounts before one server."""
    config = guarded({"reports": server.url, "orders": server.url}, issuer, tasks=ALWAYS)
    async with serve(config) as gateway:
        yield gateway


def somebody(gateway: Gateway, issuer: TokenIssuer, mount: str = "reports", **claims: str) -> Host:
    return gateway.modern(mount, issuer.token(gateway.url(mount), **claims))


@covers("M-GET-4", "M-UPD-5", "M-CANCEL-2", "I-ISO-2", "I-ISO-3", "I-ISO-6")
@pytest.mark.parametrize("method", METHODS)
async def test_an_unknown_a_foreign_and_another_mounts_task_are_not_found_in_the_same_bytes(
    gateway: Gateway, issuer: TokenIssuer, method: str
) -> None:
    task = (await somebody(gateway, issuer).start("echo"))["taskId"]
    strangers = {
        "unknown": (somebody(gateway, issuer), TASK),
        "cut": (somebody(gateway, issuer), task[:-1]),
        "too long": (somebody(gateway, issuer), task + "A"),
        "nonsense": (somebody(gateway, issuer), "x y"),
        "of somebody else": (somebody(gateway, issuer, subject="bob"), task),
        "through another client": (somebody(gateway, issuer, client_id="other"), task),
        "at another mount": (somebody(gateway, issuer, "orders"), task),
    }
    told = set()
    for host, id in strangers.values():
        answer = await host.ask(method, {"taskId": id, **METHODS[method]}, id="mine")
        refused(answer, 200, -32602)
        told.add((answer.text, json.dumps({name: answer.headers[name] for name in answer.headers if name != "Date"})))
    assert len(told) == 1
    await somebody(gateway, issuer).until(task, "completed")


@covers("M-GET-4")
@pytest.mark.parametrize("id", ["", "x" * 200, None, 7, [TASK], {"taskId": TASK}], ids=repr)
async def test_what_can_be_no_id_is_refused(gateway: Gateway, issuer: TokenIssuer, id: object) -> None:
    answer = await somebody(gateway, issuer).ask("tasks/get", {"taskId": id})
    refused(answer, 200, -32602)


@covers("M-NOTIF-2", "I-ISO-2", "T20")
async def test_nobody_listens_to_a_task_that_is_not_theirs(gateway: Gateway, issuer: TokenIssuer) -> None:
    mine = (await somebody(gateway, issuer, subject="bob").start("echo"))["taskId"]
    task = (await somebody(gateway, issuer).start("echo"))["taskId"]
    host = somebody(gateway, issuer, subject="bob")
    async with host.listen(taskIds=[task, TASK, "x", mine]) as stream:
        granted = stream.heard[0]["params"]["notifications"]
        await stream.until("notifications/tasks")
    assert granted == {"taskIds": [mine]}
    assert {told["params"]["taskId"] for told in stream.of("notifications/tasks")} == {mine}
