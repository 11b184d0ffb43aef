"""Words of the legacy era that servers of this one lack: served by the session in their place."""

import asyncio
import json

import pytest

from helpers.server import ScriptedServer, result
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.context import MAX_URIS
from unit.upstream.houses import Guest

LEVEL = "io.modelcontextprotocol/logLevel"


async def test_a_ping_is_answered_without_the_server(server: ScriptedServer, guest: Guest) -> None:
    assert json.loads((await guest.ask("ping")).text)["result"] == {}
    assert server.requests == []


async def test_a_level_that_is_set_goes_with_every_later_request(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = {"tools": {}, "logging": {}}
    assert json.loads((await guest.ask("logging/setLevel", '{"level":"error"}')).text)["result"] == {}
    await guest.call()
    await guest.run()
    await guest.call(log_level="debug")
    found = [each["params"]["_meta"].get(LEVEL) for each in server.heard("tools/call")]
    assert found == ["error", "error", "debug"]
    assert server.heard("logging/setLevel") == []


@pytest.mark.parametrize("params", [None, "{}", '{"level":"loud"}', '{"level":3}', '{"level":["info"]}', "[]"])
async def test_what_is_no_level_is_refused(server: ScriptedServer, guest: Guest, params: str | None) -> None:
    server.capabilities = {"logging": {}}
    assert (await guest.ask("logging/setLevel", params)).error.value["code"] == -32602


@pytest.mark.parametrize(
    ("capabilities", "method"),
    [
        ({}, "logging/setLevel"),
        ({"logging": True}, "logging/setLevel"),
        ({"resources": {}}, "resources/subscribe"),
        ({"resources": {"subscribe": "yes"}}, "resources/subscribe"),
        ({}, "resources/unsubscribe"),
    ],
)
async def test_what_the_server_does_not_declare_is_not_there(
    server: ScriptedServer, guest: Guest, capabilities: dict, method: str
) -> None:
    server.capabilities = capabilities
    response = await guest.ask(method, '{"level":"info","uri":"a:b"}')
    assert response.error.value["code"] == -32601
    assert {each.message["method"] for each in server.requests} <= {"server/discover"}


async def test_what_is_not_served_here_is_the_servers_to_answer(server: ScriptedServer, guest: Guest) -> None:
    server.methods["widgets/get"] = result({"widget": 1})
    assert json.loads((await guest.ask("widgets/get", '{"name":"a"}')).text)["result"]["widget"] == 1
    assert (await guest.ask("widgets/other")).error.value["code"] == -32601
    (asked,) = server.heard("widgets/get")
    assert asked["params"]["name"] == "a"


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
async def test_what_is_no_uri_is_refused(server: ScriptedServer, guest: Guest, method: str) -> None:
    server.capabilities = {"resources": {"subscribe": True}}
    assert (await guest.ask(method, '{"uri":1}')).error.value["code"] == -32602


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
async def test_a_uri_that_cannot_be_sent_is_refused(server: ScriptedServer, guest: Guest, method: str) -> None:
    server.capabilities = {"resources": {"subscribe": True}}
    assert (await guest.ask(method, '{"uri":"a:\\ud800"}')).error.value["code"] == -32602


async def test_local_words_need_a_session_that_is_open(guest: Guest) -> None:
    await guest.session.close()
    with pytest.raises(UpstreamFailed):
        await guest.ask("logging/setLevel", '{"level":"info"}')


async def test_a_subscription_is_served_by_a_listen(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = {"resources": {"subscribe": True}}
    assert json.loads((await guest.ask("resources/subscribe", '{"uri":"a:b"}')).text)["result"] == {}
    assert server.listens.filters == [{"resourceSubscriptions": ["a:b"]}]
    assert json.loads((await guest.ask("resources/unsubscribe", '{"uri":"a:b"}')).text)["result"] == {}
    async with bounded():
        await server.leaving("subscriptions/listen")


async def test_no_more_resources_are_listened_to_than_there_is_room_for(server: ScriptedServer, guest: Guest) -> None:
    guest.lasting.uris |= {f"b:{number}": 1 for number in range(MAX_URIS - 1)}
    server.capabilities = {"resources": {"subscribe": True}}
    answers = [await guest.ask("resources/subscribe", f'{{"uri":"{uri}"}}') for uri in ("a:1", "a:2", "a:1")]
    assert [each.error is None for each in answers] == [True, False, True]


async def test_subscriptions_that_come_together_all_stand(server: ScriptedServer, guest: Guest) -> None:
    server.capabilities = {"resources": {"subscribe": True}}
    asked = [guest.ask("resources/subscribe", f'{{"uri":"a:{turn}"}}') for turn in range(5)]
    async with bounded():
        assert [each.error for each in await asyncio.gather(*asked)] == [None] * 5
    assert sorted(server.listens.filters[-1]["resourceSubscriptions"]) == [f"a:{turn}" for turn in range(5)]
