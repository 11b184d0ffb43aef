"""Servers that are programs and misbehave, behind the whole gateway: what becomes of a call of each kind, exactly, for
hosts of both eras, and that the next call works.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.left_behind import can_be_found, left_behind, marked
from helpers.server import AWKWARD_PROGRAM
from helpers.waiting import eventually
from requirements import covers

WELL = {
    "echo": "well",
    "junk": "well",
    "strangers": "well",
    "pieces": "wäll",
    "large": "x" * 5 * 2**20,
    "noisy": "well",
    "in_an_array": "well",
    "among_junk": "well",
}
"""By tool: what it gives all the same."""

EXITED = "The server's program exited with status {} before it answered"
NO_MESSAGE = "The server broke the protocol: a message of it is not JSON-RPC"
FAILED = {
    "too_large": ("too_large", "The server's answer is too large"),
    "latin": ("malformed", NO_MESSAGE),
    "broken": ("malformed", NO_MESSAGE),
    "neither": ("malformed", NO_MESSAGE),
    "doubled": ("malformed", NO_MESSAGE),
    "neither_in_an_array": ("malformed", NO_MESSAGE),
    "cut_in_an_array": ("malformed", NO_MESSAGE),
    "two_ids": ("malformed", NO_MESSAGE),
    "ids_around": ("malformed", NO_MESSAGE),
    "unread": ("refused", "The server could not read a message, and did not say which"),
    "exits": ("closed", EXITED.format(3)),
    "exits_well": ("closed", EXITED.format(0)),
    "killed": ("closed", "The server's program was killed by SIGKILL before it answered"),
    "stops_short": ("closed", EXITED.format(0)),
    "closes_output": ("closed", "The server's program closed its output before it answered"),
    "closes_input": ("closed", "The server's program closed its input before it answered"),
    "leaves_a_child": ("closed", EXITED.format(3)),
}
"""By tool: why its call fails, and what is said of that."""


def awkward(folder: Path, *ways: str, **keys: Any) -> Any:
    """A gateway before the program, in that folder."""
    command = [sys.executable, "-IS", AWKWARD_PROGRAM, *ways]
    written = {"path": "/reports/mcp", "transport": "stdio", "command": command, "cwd": str(folder), **keys}
    written["env"] = {**written.get("env", {}), **marked(folder)}
    # One that ended soon is to be started again at once: how that is held back is tested elsewhere.
    restart = {"backoff": "1ms", "max_backoff": "1ms"}
    return serve(configuration({}, upstreams={"reports": {"restart": restart, **written}}))


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """Nothing of its programs outlives it."""
    async with awkward(tmp_path) as gateway:
        yield gateway
        await (await gateway.greeted()).call("echo")
        assert left_behind(tmp_path) or not can_be_found(), "this looks for them where they are not"
    assert left_behind(tmp_path) == []


@pytest.fixture
async def host(gateway: Gateway) -> Host:
    return await gateway.greeted()


def text_of(result: Any) -> str:
    text: str = result["content"][0]["text"]
    return text


# --- a call --------------------------------------------------------------------------------------------------------


@covers("U-STDIO-1")
@pytest.mark.parametrize("tool", WELL)
async def test_a_call_is_answered_in_spite_of_what_else_the_program_says(
    gateway: Gateway, host: Host, tool: str
) -> None:
    task = (await host.start(tool))["taskId"]
    assert text_of((await host.ask("tasks/result", {"taskId": task})).result) == WELL[tool]
    assert (await host.task(task))["status"] == "completed"
    modern = gateway.modern()
    assert text_of((await modern.call(tool)).result) == WELL[tool]
    assert text_of((await host.call("echo")).result) == "well"


@covers("U-STDIO-2")
async def test_a_program_that_ends_after_each_answer_is_started_for_each_call(
    gateway: Gateway, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    for times, each in enumerate((host, gateway.modern(), host, gateway.modern()), start=1):
        assert text_of((await each.call("answers_and_exits")).result) == "well"
        await eventually(lambda: caplog.messages.count("a server's program ended") == times)  # noqa: B023  at once
    assert text_of((await host.call("echo")).result) == "well"


@covers("U-STDIO-2")
@pytest.mark.parametrize("tool", FAILED)
async def test_a_task_fails_and_says_why_and_the_next_call_works(gateway: Gateway, host: Host, tool: str) -> None:
    reason, message = FAILED[tool]
    task = (await host.start(tool))["taskId"]
    assert (await host.until(task, "failed"))["statusMessage"] == message
    error = (await host.ask("tasks/result", {"taskId": task})).error
    assert (error["code"], error["message"]) == (-32603, message)
    assert error["data"] == {"origin": "upstream", "reason": reason, "dispatched": True}
    assert text_of((await host.call("echo")).result) == "well"
    modern = gateway.modern()
    failed = (await modern.call(tool)).error
    assert (failed["code"], failed["message"], failed["data"]["reason"]) == (-32603, message, reason)
    assert text_of((await modern.call("echo")).result) == "well"


# --- the start -----------------------------------------------------------------------------------------------------

REFUSED = {
    "mute": ("timeout", "The server did not answer in time"),
    "deaf": ("timeout", "The server did not answer in time"),
    "dead": ("closed", EXITED.format(5)),
    "refusing": ("refused", "The server refused to open a session"),
    "babbling": ("malformed", "The server broke the protocol: it chose an unknown protocol revision"),
}
"""By way of misbehaving from the start: what a host is told that comes then."""


@pytest.mark.real_time
@pytest.mark.parametrize("way", REFUSED)
async def test_whoever_meets_a_program_that_does_not_get_going_is_told_and_the_next_one_is_served(
    tmp_path: Path, way: str
) -> None:
    reason, message = REFUSED[way]
    async with awkward(tmp_path, way, timeouts={"first_byte": "1s"}) as gateway:
        error = (await gateway.host().ask("initialize", GREETING)).error
        assert (error["code"], error["message"]) == (-32603, message)
        assert error["data"] == {"origin": "upstream", "reason": reason, "dispatched": False}
        host = await gateway.greeted()
        assert text_of((await host.call("echo")).result) == "well"


async def test_a_program_may_say_much_before_it_is_asked_anything(tmp_path: Path) -> None:
    async with awkward(tmp_path, "chatting") as gateway:
        host = await gateway.greeted()
        assert text_of((await host.call("echo")).result) == "well"


GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
