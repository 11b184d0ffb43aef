"""How messages get to a server, by its settings, and what is known of it without asking."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.scripted_lines import ScriptedProgram
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.base import Wish
from taskgate.upstream.duplex.transport import DuplexTransport
from taskgate.upstream.settings import Kind, UpstreamObserver, UpstreamSettings
from taskgate.upstream.stdio.nurse import Nurse
from taskgate.upstream.stdio.settings import StdioSettings
from taskgate.upstream.ways import RememberedLines, Way, way_to
from taskgate.upstream.wire.transport import HttpTransport

SECOND = timedelta(seconds=1)
WISH = Wish("alice", b"{}", Outgoing(verb="POST", headers={}))


def settings(**changes: Any) -> UpstreamSettings:
    usual: dict[str, Any] = {"connect": SECOND, "first_byte": SECOND, "idle": None, "call": SECOND, "max_result": 1024}
    return UpstreamSettings(name="reports", **usual | changes)


@pytest.fixture
def observer() -> UpstreamObserver:
    def nothing(*_: Any) -> None:
        """Nobody listens."""

    return UpstreamObserver(answered=nothing, session_lost=nothing, stream_opened=nothing, stream_ended=nothing)


@pytest.fixture
def way_of(observer: UpstreamObserver) -> Callable[..., Way]:
    return lambda **changes: way_to(settings(**changes), observer, Nurse())


@pytest.mark.parametrize(
    ("changes", "transport", "asks_whose"),
    [
        ({"url": "http://127.0.0.1:9/mcp"}, HttpTransport, False),
        ({"url": "http://127.0.0.1:9/sse", "transport": Kind.SSE}, DuplexTransport, False),
        ({"stdio": StdioSettings(command=("true",)), "transport": Kind.STDIO}, DuplexTransport, True),
    ],
    ids=["http", "sse", "stdio"],
)
async def test_each_kind_of_server_has_its_way_and_nothing_is_known_of_it_at_first(
    way_of: Callable[..., Way], changes: dict[str, Any], transport: type, asks_whose: bool
) -> None:
    way = way_of(**changes)
    assert (type(way.transport), way.asks_whose, way.up()) == (transport, asks_whose, None)
    async with bounded():
        await way.transport.close()


async def test_a_program_is_up_that_was_there_when_it_was_last_wanted() -> None:
    program = ScriptedProgram()
    told: list[bool] = []
    lines = RememberedLines(program, told.append)
    assert lines.up is None
    line = await lines.take(WISH)
    assert lines.up is True
    program.refuses = UpstreamFailed(UpstreamReason.UNREACHABLE, "it could not be started", dispatched=False)
    with pytest.raises(UpstreamFailed, match="it could not be started"):
        await lines.take(WISH)
    assert lines.up is False
    program.refuses = None
    again = await lines.take(WISH)
    assert lines.up is True
    lines.give_back(await lines.take(WISH))
    assert told == [True, False, True], "what is no news is not told"
    lines.give_back(line)
    lines.give_back(again)
    await lines.close()


async def test_that_a_program_was_waited_for_in_vain_says_nothing_of_it() -> None:
    program = ScriptedProgram()
    told: list[bool] = []
    lines = RememberedLines(program, told.append)
    program.refuses = UpstreamFailed(UpstreamReason.TIMEOUT, "all are busy", dispatched=False)
    with pytest.raises(UpstreamFailed, match="all are busy"):
        await lines.take(WISH)
    assert (lines.up, told) == (None, [])
