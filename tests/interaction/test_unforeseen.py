"""What nobody foresaw: a fault of our own is told without a word about itself, and no task stays unfinished for it."""

import asyncio
import logging
from datetime import datetime

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, SystemClock, serve
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded

PLANTED = "s3cret of the fault"
DONE = {"content": []}


class FaultyClock(SystemClock):
    """The machine's, but for one reading of it that fails: the one of that number from when it is `armed` on.

    Readings of timers and other threads do not count: which of them is the first is a matter of time.
    """

    def __init__(self, number: int) -> None:
        self.armed = self.failed = False
        self._left = number

    def now(self) -> datetime:
        self._read()
        return super().now()

    def wall(self) -> datetime:
        return self.now()

    def elapsed(self) -> float:  # type: ignore[override]
        self._read()
        return SystemClock.elapsed()

    def _read(self) -> None:
        if not self.armed or not _in_a_task():
            return
        self._left -= 1
        if self._left == 0:
            self.failed = True
            raise RuntimeError(PLANTED)


def _in_a_task() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        # There is no loop on another thread.
        return False


@pytest.mark.parametrize("as_task", [False, True])
async def test_a_fault_of_ours_is_an_internal_error_and_no_more(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture, as_task: bool
) -> None:
    server.script["echo"] = hold = Hold()
    clock = FaultyClock(1)
    async with serve(configuration({"reports": server.url}), Environment(clock=clock)) as gateway:
        host = await gateway.greeted()
        calling = asyncio.create_task(host.call("echo", **({"task": {}} if as_task else {})))
        async with bounded():
            await hold.begun.wait()
            task = (await calling).result["task"]["taskId"] if as_task else ""
        with caplog.at_level(logging.ERROR):
            caplog.clear()
            clock.armed = True
            hold.release(DONE)
            if as_task:
                await gateway.counted("taskgate_tasks_finished_total")
                assert (await host.task(task))["status"] == "failed"
            answer = await (host.ask("tasks/result", {"taskId": task}) if as_task else calling)
    assert (answer.status, answer.code) == (200, -32603)
    assert answer.error["data"] == {"origin": "gateway", "reason": "internal", "dispatched": True}
    assert PLANTED not in answer.text
    assert [record.name for record in caplog.records] == ["taskgate.runner" if as_task else "taskgate.gateway"]


@pytest.mark.parametrize("number", range(2, 7))
async def test_wherever_it_is_no_host_hears_a_word_of_it_and_the_next_call_works(
    server: ScriptedServer, number: int
) -> None:
    server.script["echo"] = hold = Hold()
    clock = FaultyClock(number)
    async with serve(configuration({"reports": server.url}), Environment(clock=clock)) as gateway:
        host = await gateway.greeted()
        calling = asyncio.create_task(host.call("echo"))
        async with bounded():
            await hold.begun.wait()
            clock.armed = True
            hold.release(DONE)
            assert PLANTED not in (await calling).text
        assert clock.failed
        clock.armed = False
        assert (await host.call("report", {"a": 1})).result["structuredContent"] == {"a": 1}
