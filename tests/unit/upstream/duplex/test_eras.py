"""Which era a server behind lines is found to speak: it is asked on a line of its own, and may end of the question."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helpers.server import result, sends
from helpers.server.in_process import ScriptedChannels
from helpers.waiting import bounded, eventually
from taskgate.domain.versions import Era
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.upstream.era import PATIENCE, EraFinder
from unit.upstream.houses import House

COMPLETE = {"resultType": "complete"}


@pytest.fixture
def finder() -> EraFinder:
    return EraFinder(ModernUpstream("1.0", ExtensionPolicy()))


async def test_a_server_that_refuses_the_question_is_of_the_legacy_era(
    house: House, program: ScriptedChannels, finder: EraFinder
) -> None:
    async with bounded():
        assert (await house.of_any_era(finder).call()).error is None
    assert finder.eras == (Era.LEGACY,)
    assert [line.methods() for line in program.lines] == [
        ["initialize", "notifications/initialized", "tools/call"],
        ["server/discover"],
    ]
    await eventually(lambda: program.lines[1].is_lost)
    assert not program.lines[0].is_lost


async def test_a_server_that_ends_of_the_question_is_too_and_is_asked_once(
    house: House, program: ScriptedChannels, finder: EraFinder
) -> None:
    program.methods["server/discover"] = sends(
        lambda _: program.lines[-1].exit("The server's process exited with status 1")
    )
    async with bounded():
        for _ in range(2):
            assert (await house.of_any_era(finder).call()).error is None
    assert finder.eras == (Era.LEGACY,)
    assert [method for line in program.lines for method in line.methods()].count("server/discover") == 1


async def test_a_server_that_does_not_answer_the_question_is_too(
    house: House, program: ScriptedChannels, finder: EraFinder
) -> None:
    program.silent.add("server/discover")
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with bounded():
        assert (await house.of_any_era(finder).call()).error is None
    assert loop.time() - began >= PATIENCE.total_seconds()
    assert finder.eras == (Era.LEGACY,)
    await eventually(lambda: program.lines[1].is_lost)


async def test_a_server_that_takes_long_to_start_has_as_long_again_to_say_what_it_speaks(
    house: House, program: ScriptedChannels, finder: EraFinder
) -> None:
    loop = asyncio.get_running_loop()
    discovered = ScriptedChannels("modern").discovery() | {"capabilities": {"tools": {}}}

    def later(result: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
        def answer(asked: dict[str, Any]) -> None:
            loop.call_later(PATIENCE.total_seconds() + 1, lambda: program.lines[-1].answer(asked, result))

        return answer

    program.methods["initialize"] = sends(later(program.handshake()))
    program.methods["server/discover"] = sends(later(COMPLETE | discovered))
    program.methods["tools/call"] = result(COMPLETE | {"content": []})
    program.methods["tools/list"] = result(COMPLETE | {"tools": [], "ttlMs": 0, "cacheScope": "private"})
    async with bounded():
        assert (await house.of_any_era(finder).call()).error is None
    assert finder.eras == (Era.LEGACY, Era.MODERN)


async def test_a_server_of_an_older_revision_is_not_asked(new_house: Callable[..., House], finder: EraFinder) -> None:
    program = ScriptedChannels(revision="2024-11-05")
    async with bounded():
        assert (await new_house(program).of_any_era(finder).call()).error is None
    assert [line.methods()[0] for line in program.lines] == ["initialize"]


async def test_a_server_that_refuses_to_be_greeted_and_answers_is_modern(
    new_house: Callable[..., House], finder: EraFinder
) -> None:
    program = ScriptedChannels("modern")
    program.capabilities = {"tools": {}}
    async with bounded():
        assert (await new_house(program).of_any_era(finder).call()).error is None
    assert finder.eras == (Era.MODERN,)
    assert [line.methods() for line in program.lines] == [
        ["initialize"],
        ["server/discover", "server/discover", "tools/list", "tools/call"],
    ]
