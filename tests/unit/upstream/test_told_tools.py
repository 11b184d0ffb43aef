"""What a session knows of tools because its host asked for them, before it has read the catalogue itself."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer, note
from helpers.waiting import eventually
from taskgate.protocol.messages import Params, Response
from taskgate.upstream.calls import UpstreamCall
from unit.upstream.conftest import Caller, new_caller

TOOL: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


@pytest.fixture(autouse=True)
def tools(server: ScriptedServer) -> None:
    """The server has one tool."""
    server.tools = [TOOL]


async def host_lists(caller: Caller, params: str | None = None) -> Response:
    found = None if params is None else Params(params)
    return await caller.session.call(UpstreamCall("tools/list", found), caller.heard.of_calls)


@pytest.mark.parametrize("params", [None, "{}", '{"_meta":{}}'])
async def test_what_the_host_was_told_is_listed(server: ScriptedServer, caller: Caller, params: str | None) -> None:
    assert caller.session.listed("echo") is None
    await host_lists(caller, params)
    listed = caller.session.listed("echo")
    assert listed is not None
    assert listed.hints == {"readOnlyHint": True}
    assert caller.session.listed("other") is None
    assert listed == (await caller.session.tools())["echo"]


async def test_a_tool_that_the_host_was_not_told_of_has_the_list_read(server: ScriptedServer, caller: Caller) -> None:
    await host_lists(caller)
    server.tools = [{**TOOL, "name": "other"}]
    assert set(await caller.session.tools("echo")) == {"echo"}
    assert set(await caller.session.tools("other")) == {"other"}
    assert caller.session.listed("echo") is None
    assert len(server.heard("tools/list")) == 2


async def test_the_first_list_is_read_once_also_for_a_tool_that_is_not_in_it(
    server: ScriptedServer, caller: Caller
) -> None:
    assert set(await caller.session.tools("other")) == {"echo"}
    assert len(server.heard("tools/list")) == 1


async def test_the_last_list_counts(server: ScriptedServer, caller: Caller) -> None:
    await host_lists(caller)
    await host_lists(caller)
    server.tools = [{**TOOL, "name": "other"}]
    await host_lists(caller)
    assert (caller.session.listed("echo"), caller.session.listed("other") is not None) == (None, True)


async def test_after_the_server_said_that_its_tools_changed_nothing_is_known_of_them(
    server: ScriptedServer, caller: Caller
) -> None:
    await host_lists(caller)
    await server.streaming()
    await server.push(note("notifications/tools/list_changed"))
    await eventually(lambda: caller.heard.session)
    assert caller.session.listed("echo") is None
    # The same list again is news then.
    await host_lists(caller)
    assert caller.session.listed("echo") is not None


async def test_a_part_of_a_list_is_none(server: ScriptedServer, caller: Caller) -> None:
    server.tools = [{**TOOL, "name": f"tool-{number}"} for number in range(3)]
    server.page_size = 2
    first = await host_lists(caller)
    assert first.result is not None
    assert "nextCursor" in first.text
    await host_lists(caller, f'{{"cursor":"{first.result.value["nextCursor"]}"}}')
    assert [caller.session.listed(f"tool-{number}") for number in range(3)] == [None] * 3


async def test_what_is_no_list_is_passed_on_and_teaches_nothing(server: ScriptedServer, caller: Caller) -> None:
    await host_lists(caller)
    server.tools = "none"  # type: ignore[assignment]
    await host_lists(caller)
    assert caller.session.listed("echo") is not None


async def test_an_old_list_is_read_again_once_somebody_asks_what_is_listed(server: ScriptedServer) -> None:
    """A task asks so, and its host may never ask for the list again."""
    clock = ManualClock()
    caller = new_caller(server.url, clock=clock, catalogue_age=timedelta(minutes=5))
    await host_lists(caller)
    server.tools = [{**TOOL, "name": "other"}]
    clock.advance(timedelta(minutes=4))
    assert caller.session.listed("echo") is not None
    assert len(server.heard("tools/list")) == 1
    clock.advance(timedelta(minutes=2))
    assert caller.session.listed("echo") is not None
    await eventually(lambda: caller.session.listed("other"))
    assert len(server.heard("tools/list")) == 2
    await caller.session.close()
    await caller.upstream.close()
