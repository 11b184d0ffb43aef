"""What a host asked for once lasts: it is asked for again when its server has lost the session, or left its era."""

import json
from typing import Any

import pytest

from helpers.server import Hold, ScriptedServer, error, resets, status
from helpers.waiting import bounded, eventually
from taskgate.domain.versions import Era
from taskgate.protocol.messages import Params
from taskgate.upstream.calls import UpstreamCall
from taskgate.upstream.context import MAX_URIS, Lasting
from taskgate.upstream.legacy.connection import SIGN_OF_LIFE
from unit.upstream.conftest import Caller

ALL = {"resources": {"subscribe": True}, "logging": {}, "tools": {}}


async def ask(caller: Caller, method: str, **params: Any) -> Any:
    """Relay a request of the host."""
    async with bounded():
        return await caller.session.call(UpstreamCall(method, Params(json.dumps(params))), caller.heard.of_calls)


async def subscribe(caller: Caller, *uris: str) -> None:
    for uri in uris:
        await ask(caller, "resources/subscribe", uri=uri)


def lose(server: ScriptedServer) -> None:
    """Have the server lose the session, and forget what it heard. The next call meets that."""
    server.forget_sessions()
    server.requests.clear()


def subscribed(server: ScriptedServer) -> list[str]:
    """The resources that the server was asked to tell of."""
    return [message["params"]["uri"] for message in server.heard("resources/subscribe")]


async def test_subscriptions_are_made_again_in_a_new_session(server: ScriptedServer, caller: Caller) -> None:
    await subscribe(caller, "a:1", "a:2", "a:3")
    await ask(caller, "resources/unsubscribe", uri="a:2")
    lose(server)
    await caller.call()
    await eventually(lambda: subscribed(server) == ["a:1", "a:3"])
    again = [each for each in server.verbs("POST") if each.message["method"] == "resources/subscribe"]
    assert {each.headers["mcp-session-id"] for each in again} == {"session-2"}


async def test_the_level_of_the_log_is_set_again_in_a_new_session(server: ScriptedServer, caller: Caller) -> None:
    for level in ("error", "debug"):
        await ask(caller, "logging/setLevel", level=level)
    lose(server)
    await caller.call()
    await eventually(lambda: server.heard("logging/setLevel"))
    assert [message["params"] for message in server.heard("logging/setLevel")] == [{"level": "debug"}]


async def test_what_a_server_refused_is_not_asked_for_again(server: ScriptedServer, caller: Caller) -> None:
    server.methods |= {"resources/subscribe": error(-32602, "no"), "logging/setLevel": error(-32602, "no")}
    await subscribe(caller, "a:1")
    await ask(caller, "logging/setLevel", level="info")
    lose(server)
    server.methods.clear()
    await caller.call()
    await caller.session.close()
    assert (subscribed(server), server.heard("logging/setLevel")) == ([], [])


async def test_neither_a_call_nor_an_end_waits_for_what_is_asked_for_again(
    server: ScriptedServer, caller: Caller
) -> None:
    await subscribe(caller, "a:1")
    lose(server)
    server.methods["resources/subscribe"] = Hold()
    async with bounded(SIGN_OF_LIFE.total_seconds()):
        assert (await caller.call()).error is None
        await eventually(lambda: subscribed(server))
        await caller.session.close()


async def test_what_the_host_gave_up_meanwhile_is_not_asked_for(server: ScriptedServer, caller: Caller) -> None:
    await subscribe(caller, "a:1", "a:2", "a:3")
    lose(server)
    server.methods["resources/subscribe"] = hold = Hold()
    await caller.call()
    async with bounded():
        await hold.begun.wait()
    await ask(caller, "resources/unsubscribe", uri="a:2")
    hold.release({})
    await eventually(lambda: len(subscribed(server)) == 2)
    assert subscribed(server) == ["a:1", "a:3"]


@pytest.mark.parametrize("reply", [error(-32602, "no"), status(500)], ids=["an error", "a status"])
async def test_a_resource_that_is_gone_keeps_no_other_from_being_asked_for(
    server: ScriptedServer, caller: Caller, reply: Any
) -> None:
    await subscribe(caller, "a:1", "a:2")
    lose(server)
    server.methods["resources/subscribe"] = reply
    await caller.call()
    await eventually(lambda: subscribed(server) == ["a:1", "a:2"])


async def test_a_server_that_went_away_again_is_asked_for_nothing_more(server: ScriptedServer, caller: Caller) -> None:
    await subscribe(caller, "a:1", "a:2")
    lose(server)
    server.methods["resources/subscribe"] = resets()
    await caller.call()
    await eventually(lambda: subscribed(server))
    await caller.session.close()
    assert subscribed(server) == ["a:1"]


async def test_a_host_that_asked_for_nothing_has_nothing_asked_for(server: ScriptedServer, caller: Caller) -> None:
    await caller.call()
    lose(server)
    await caller.call()
    await caller.session.close()
    methods = [each.message["method"] for each in server.verbs("POST")]
    assert methods == ["tools/call", "ping", "initialize", "notifications/initialized", "tools/call"]


# --- when the era changed -----------------------------------------------------------------------------------------


async def test_what_lasts_in_the_modern_era_lasts_in_the_other(new_caller_of) -> None:
    async with ScriptedServer("both") as server:
        server.capabilities = ALL
        caller = new_caller_of(server.url, revision=None)
        await subscribe(caller, "a:1", "a:2")
        await ask(caller, "logging/setLevel", level="error")
        assert caller.session.era is Era.MODERN
        server.versions = []
        await caller.call()
        assert caller.session.era is Era.LEGACY
        await eventually(lambda: subscribed(server) == ["a:1", "a:2"])
        assert [message["params"] for message in server.heard("logging/setLevel")] == [{"level": "error"}]


async def test_what_lasts_in_the_legacy_era_lasts_in_the_other(new_caller_of) -> None:
    async with ScriptedServer("both") as server:
        server.capabilities = ALL
        server.methods["server/discover"] = error(-32601, "no")
        caller = new_caller_of(server.url, revision=None)
        await subscribe(caller, "a:1")
        await ask(caller, "logging/setLevel", level="error")
        assert caller.session.era is Era.LEGACY
        server.methods.clear()
        server.era = "modern"
        await caller.call()
        await caller.call()
        assert caller.session.era is Era.MODERN
        await eventually(lambda: server.listens.filters == [{"resourceSubscriptions": ["a:1"]}])
        told = server.heard("tools/call")[-1]["params"]["_meta"]["io.modelcontextprotocol/logLevel"]
        assert told == "error"
        await ask(caller, "resources/unsubscribe", uri="a:1")
        await eventually(lambda: server.listens.filters == [])


# --- what is kept -------------------------------------------------------------------------------------------------


def kept(*said: tuple[str, str | None]) -> Lasting:
    found = Lasting()
    for method, params in said:
        found.note(method, None if params is None else Params(params))
    return found


@pytest.mark.parametrize(
    "params",
    [None, "{}", "[]", '{"uri":3}', '{"uri":"\\ud800"}', '{"uri":"a:1","uri":"a:2"}', '{"uri":"' + "a" * 4_097 + '"}'],
    ids=["nothing", "no uri", "no object", "no text", "half a letter", "two", "too long"],
)
def test_what_names_no_resource_is_not_kept(params: str | None) -> None:
    assert kept(("resources/subscribe", params), ("resources/unsubscribe", params)).uris == {}


@pytest.mark.parametrize("params", ["{}", '{"level":"loud"}', '{"level":["info"]}'])
def test_what_is_no_level_is_not_kept(params: str) -> None:
    assert kept(("logging/setLevel", '{"level":"info"}'), ("logging/setLevel", params)).level == "info"


def test_a_long_uri_is_kept_whole() -> None:
    uri = "a:" + "x" * 4_000
    assert list(kept(("resources/subscribe", f'{{"uri":"{uri}"}}')).uris) == [uri]


def test_other_requests_are_not_kept() -> None:
    found = kept(("resources/read", '{"uri":"a:1"}'), ("tools/call", '{"level":"info"}'))
    assert (found.uris, found.level) == ({}, None)


def test_no_more_is_kept_than_there_is_room_for() -> None:
    found = kept(*(("resources/subscribe", f'{{"uri":"a:{turn}"}}') for turn in range(MAX_URIS + 1)))
    assert list(found.uris) == [f"a:{turn}" for turn in range(MAX_URIS)]
