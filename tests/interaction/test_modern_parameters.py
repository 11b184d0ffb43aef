"""Requests of the modern era with wrong parameters: one clean answer each, and nothing done for them."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import GONE, Host, called
from helpers.modern_schema import LEVEL
from helpers.server import ScriptedServer
from interaction.refusals import TASK, expect_nothing_done, refused
from requirements import covers

BAD_PARAMS: dict[str, dict[str, Any]] = {
    "no name": {"name": GONE},
    "a name that is a number": {"name": 7},
    "a name that is null": {"name": None},
    "a name too long": {"name": "x" * 257},
    "arguments that are a list": {"arguments": []},
    "answers that are a list": {"inputResponses": []},
    "an answer that is a string": {"inputResponses": {"a": "yes"}},
    "a state that is a number": {"requestState": 7},
}


@covers("M-MRTR-5")
@pytest.mark.parametrize("params", BAD_PARAMS.values(), ids=BAD_PARAMS)
async def test_wrong_parameters_are_refused(gateway: Gateway, server: ScriptedServer, params: dict[str, Any]) -> None:
    asked = {name: value for name, value in called("echo", **params).items() if value is not GONE}
    name = params.get("name", "echo")
    headers = {"Mcp-Name": name if isinstance(name, str) else GONE}
    # A name that is none cannot be repeated in a header: it is the header that is found missing.
    status, code = (200, -32602) if isinstance(name, str) else (400, -32020)
    refused(await gateway.modern().ask("tools/call", asked, headers=headers), status, code)
    assert server.heard("tools/call") == []
    assert await gateway.count("taskgate_tasks_started_total") == 0


@covers("M-UPD-5")
@pytest.mark.parametrize("answers", [GONE, None, [], "x", {"a": None}, {"a": []}], ids=repr)
async def test_an_update_without_answers_is_refused(gateway: Gateway, server: ScriptedServer, answers: Any) -> None:
    params = {"taskId": TASK} | ({} if answers is GONE else {"inputResponses": answers})
    refused(await gateway.modern().ask("tasks/update", params), 200, -32602)
    await expect_nothing_done(gateway, server)


@pytest.mark.parametrize(
    "wanted",
    [
        GONE,
        None,
        [],
        {"toolsListChanged": 1},
        {"taskIds": TASK},
        {"taskIds": [1]},
        {"resourceSubscriptions": "x"},
        {"resourceSubscriptions": [None]},
    ],
    ids=repr,
)
@covers("M-SUB-1")
async def test_a_listen_that_does_not_say_what_it_wants_is_refused(
    gateway: Gateway, server: ScriptedServer, wanted: Any
) -> None:
    params = {} if wanted is GONE else {"notifications": wanted}
    refused(await gateway.modern().ask("subscriptions/listen", params), 200, -32602)
    assert await gateway.count("taskgate_tasks_started_total") == 0


async def test_nothing_of_a_bad_request_is_told_back(gateway: Gateway) -> None:
    planted = "tok3n-of-mine"
    host: Host = gateway.modern()
    answers = [
        await host.call("echo", headers={"Mcp-Name": planted}),
        await host.ask(planted),
        await host.ask("tasks/get", {"taskId": planted}),
        await host.call("echo", meta={LEVEL: planted}),
    ]
    assert [answer.status for answer in answers] == [400, 404, 200, 200]
    assert planted not in "".join(answer.text for answer in answers)
