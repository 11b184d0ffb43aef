"""Which event loop is taken, and what its timers do when the loop stood still."""

import asyncio
import socket
import sys
from collections.abc import Callable

import pytest
import uvloop

from taskgate.system.event_loop import LoopUnavailable, loop_factory, name_of, patient


@pytest.mark.parametrize("name", ["auto", "uvloop"])
def test_uvloop_is_taken_where_it_is_installed(name: str) -> None:
    loop = loop_factory(name)()
    try:
        assert name_of(loop) == "uvloop"
    finally:
        loop.close()


def test_uvloop_may_be_refused() -> None:
    loop = loop_factory("asyncio")()
    try:
        assert name_of(loop) == "asyncio"
    finally:
        loop.close()


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_the_timers_of_the_loop_that_is_taken_run(name: str) -> None:
    async def waits() -> str:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        loop.call_later(0.001, done.set)
        async with asyncio.timeout(10):
            await done.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout_at(loop.time() + 0.001):
                await asyncio.Event().wait()
        return name_of(loop)

    with asyncio.Runner(loop_factory=loop_factory(name)) as runner:
        assert runner.run(waits()) == name


class StoppableLoop(asyncio.SelectorEventLoop):
    """A loop that a test has stand still: `away` is for how many seconds it did."""

    away = 0.0

    def time(self) -> float:
        return super().time() + self.away


@pytest.mark.parametrize(("sent", "outcome"), [(b"answer\n", b"answer\n"), (b"", None)], ids=["came", "did not come"])
def test_what_came_while_the_loop_stood_still_is_read_before_its_timers_run(sent: bytes, outcome: bytes | None) -> None:
    async def waits() -> bytes | None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        assert isinstance(loop, StoppableLoop)

        async def line() -> bytes | None:
            begun.set()
            try:
                async with asyncio.timeout(8):
                    return await reader.readline()
            except TimeoutError:
                return None

        waiting = asyncio.create_task(line())
        await begun.wait()
        loop.away = 12
        theirs.send(sent)
        found = await waiting
        theirs.close()
        writer.close()
        return found

    with asyncio.Runner(loop_factory=patient(StoppableLoop)) as runner:
        assert runner.run(waits()) == outcome


def test_without_uvloop_asyncio_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = loop_factory("auto")()
    try:
        assert name_of(loop) == "asyncio"
    finally:
        loop.close()


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
