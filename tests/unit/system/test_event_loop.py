"""Which event loop is taken."""

import asyncio
import sys
from collections.abc import Callable

import pytest
import uvloop

from taskgate.system.event_loop import LoopUnavailable, loop_factory, name_of


@pytest.mark.parametrize("name", ["auto", "uvloop"])
def test_uvloop_is_taken_where_it_is_installed(name: str) -> None:
    loop = loop_factory(name)()
    try:
        assert name_of(loop) == "uvloop"
    finally:
        loop.close()


def test_uvloop_may_be_refused() -> None:
    assert loop_factory("asyncio") is asyncio.new_event_loop


def test_the_timers_of_the_loop_that_is_taken_run() -> None:
    async def waits() -> str:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        loop.call_later(0.001, done.set)
        async with asyncio.timeout(10):
            await done.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout_at(loop.time() + 0.001):
                await asyncio.Event().wait()
        return name_of(loop)

    with asyncio.Runner(loop_factory=loop_factory("uvloop")) as runner:
        assert runner.run(waits()) == "uvloop"


def test_without_uvloop_asyncio_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory("auto") is asyncio.new_event_loop


def test_without_uvloop_to_demand_it_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(LoopUnavailable, match=r"pip install 'taskgate\[uvloop\]'"):
        loop_factory("uvloop")


@pytest.mark.parametrize(
    ("made", "name"),
    [(asyncio.SelectorEventLoop, "asyncio"), (uvloop.new_event_loop, "uvloop")],
    ids=["asyncio", "uvloop"],
)
def test_a_loop_has_the_name_of_its_package(made: Callable[[], asyncio.AbstractEventLoop], name: str) -> None:
    loop = made()
    try:
        assert name_of(loop) == name
    finally:
        loop.close()
