"""Work on what is large leaves the event loop, and work on anything else does not."""

import asyncio
import threading
from functools import partial

import pytest

from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.system.offload import LARGE, Turns, offload


@pytest.mark.parametrize(("size", "leaves"), [(0, False), (LARGE, False), (LARGE + 1, True)])
async def test_only_work_on_what_is_large_leaves_the_loop(size: int, leaves: bool) -> None:
    worker = await offload(size, threading.get_ident)
    assert (worker != threading.get_ident()) is leaves


@pytest.mark.parametrize("size", [0, LARGE + 1])
async def test_what_goes_wrong_is_raised(size: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await offload(size, lambda: 1 // 0)


@covers("T46")
async def test_callers_take_turns_with_one_work_of_each_at_a_time() -> None:
    turns, started, go_on = Turns(), list[str](), threading.Event()

    def work(caller: str) -> None:
        started.append(caller)
        go_on.wait(15)

    async with asyncio.TaskGroup() as group:
        for caller in ("mallory", "mallory", "mallory", "alice", "mallory", "bob", "alice"):
            group.create_task(turns.run(caller, partial(work, caller)))
        await eventually(lambda: started)
        go_on.set()
    assert started[:3] == ["mallory", "alice", "bob"]
    assert sorted(started[3:5]) == ["alice", "mallory"]
    assert started[5:] == ["mallory", "mallory"]


async def test_a_turn_ends_with_an_error_and_with_who_does_not_wait_any_more() -> None:
    turns, begun, go_on = Turns(), threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return go_on.wait(15)

    with pytest.raises(ZeroDivisionError):
        await turns.run("mallory", lambda: 1 // 0)
    first = asyncio.create_task(turns.run("mallory", work))
    second = asyncio.create_task(turns.run("mallory", threading.get_ident))
    third = asyncio.create_task(turns.run("mallory", lambda: "third"))
    await eventually(begun.is_set)
    second.cancel()
    go_on.set()
    async with bounded():
        assert await third == "third"
        assert await first
    assert second.cancelled()
