"""How much a server of the legacy era logs, for requests that say each what they want to hear."""

import asyncio
from typing import Any

import pytest

from helpers.server import Hold, ScriptedServer, error, resets, status
from helpers.upstream_calls import task_call
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.calls import UpstreamCall
from taskgate.upstream.legacy import connection as talking
from unit.upstream.conftest import Caller, call_params


@pytest.fixture
async def logging(server: ScriptedServer) -> ScriptedServer:
    """The server, which has a log."""
    server.capabilities["logging"] = {}
    return server


async def call(caller: Caller, level: str | None) -> Any:
    """A call that wants so much of a log."""
    params = call_params("echo")
    async with bounded():
        return await caller.session.call(UpstreamCall("tools/call", params, log_level=level), caller.heard.of_calls)


def levels(server: ScriptedServer) -> list[str]:
    """What the server was asked to log, in order."""
    return [message["params"]["level"] for message in server.heard("logging/setLevel")]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ([None, None], []),
        (["info"], ["info"]),
        (["info", "info", None, "error", "info"], ["info"]),
        (["emergency", "error", "debug", "info"], ["emergency", "error", "debug"]),
    ],
)
async def test_a_server_is_told_the_lowest_level_that_anybody_wanted(
    logging: ScriptedServer, caller: Caller, wanted: list[str | None], told: list[str]
) -> None:
    for level in wanted:
        assert (await call(caller, level)).error is None
    assert levels(logging) == told


async def test_the_level_is_told_before_the_request(logging: ScriptedServer, caller: Caller) -> None:
    await call(caller, "info")
    methods = [each.message["method"] for each in logging.verbs("POST")]
    assert methods[2:] == ["logging/setLevel", "tools/call"]


async def test_a_task_has_its_level_too(logging: ScriptedServer, caller: Caller) -> None:
    await caller.session.call(
        task_call("echo", call_params("echo"), talking.SIGN_OF_LIFE, log_level="debug"),
        caller.heard.of_calls,
    )
    assert levels(logging) == ["debug"]


async def test_a_server_without_a_log_is_told_nothing(server: ScriptedServer, caller: Caller) -> None:
    await call(caller, "debug")
    assert levels(server) == []


async def test_requests_at_once_tell_a_level_once(logging: ScriptedServer, caller: Caller) -> None:
    logging.methods["logging/setLevel"] = hold = Hold()
    calls = [asyncio.create_task(call(caller, level)) for level in ("info", "info", "warning")]
    async with bounded():
        await hold.begun.wait()
        assert logging.heard("tools/call") == []
        hold.release({})
        await asyncio.gather(*calls)
    assert levels(logging) == ["info"]


@pytest.mark.parametrize("reply", [error(-32601, "no"), status(500), resets()], ids=["an error", "a status", "nothing"])
async def test_a_server_that_does_not_set_its_level_is_asked_once_and_still_called(
    logging: ScriptedServer, caller: Caller, reply: Any
) -> None:
    logging.methods["logging/setLevel"] = reply
    for _ in range(2):
        assert (await call(caller, "info")).error is None
    assert levels(logging) == ["info"]


async def test_a_server_that_says_nothing_to_its_level_is_waited_for_a_moment(
    logging: ScriptedServer, caller: Caller
) -> None:
    loop = asyncio.get_running_loop()
    logging.methods["logging/setLevel"] = Hold()
    began = loop.time()
    assert (await call(caller, "info")).error is None
    assert loop.time() - began >= talking.SIGN_OF_LIFE.total_seconds()


async def test_a_call_is_not_sent_whose_time_was_over_before_the_level_was_set(
    logging: ScriptedServer, caller: Caller
) -> None:
    logging.methods["logging/setLevel"] = Hold()
    params, within = call_params("echo").head, talking.SIGN_OF_LIFE / 50
    with pytest.raises(UpstreamFailed) as failed:
        await caller.session.call(
            task_call("echo", params, within, log_level="info"),
            caller.heard.of_calls,
        )
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", False)
    assert logging.heard("tools/call") == []


async def test_a_new_session_at_the_server_is_told_anew(logging: ScriptedServer, caller: Caller) -> None:
    await call(caller, "info")
    logging.forget_sessions()
    await call(caller, "info")
    assert levels(logging) == ["info", "info"]
