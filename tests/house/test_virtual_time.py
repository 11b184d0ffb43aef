"""Virtual time of a loop: it jumps to the next timer only where nothing is ready to run, and nobody else works."""

import asyncio
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from helpers.virtual_time import keep_busy, virtual_time
from helpers.waiting import bounded, eventually

pytestmark = pytest.mark.thorough

HOUR = 3600.0


@pytest.fixture
def jumps() -> Iterator[None]:
    """Virtual time."""
    with virtual_time():
        yield


@pytest.mark.usefixtures("jumps")
async def test_an_hour_is_over_at_once_and_the_loop_knows_it() -> None:
    loop, real = asyncio.get_running_loop(), time.monotonic()
    began = loop.time()
    await asyncio.sleep(HOUR)
    assert HOUR <= loop.time() - began < HOUR + 60
    assert time.monotonic() - real < 60


@pytest.mark.usefixtures("jumps")
async def test_timers_come_in_their_order() -> None:
    came: list[float] = []

    async def after(seconds: float) -> None:
        await asyncio.sleep(seconds)
        came.append(seconds)

    await asyncio.gather(*map(after, [3 * HOUR, 1.0, HOUR, 2.0]))
    assert came == [1.0, 2.0, HOUR, 3 * HOUR]


@pytest.mark.usefixtures("jumps")
async def test_no_timer_overtakes_what_one_socket_sends_to_another() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.readline():
            writer.write(asked)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in range(1000):
            async with asyncio.timeout(0.05):
                writer.write(b"ping\n")
                assert await reader.readline() == b"ping\n"
        writer.close()
        await writer.wait_closed()


@pytest.mark.usefixtures("jumps")
@pytest.mark.parametrize("looks", [False, True], ids=["bounded", "eventually"])
async def test_the_longest_wait_of_a_test_does_not_end_while_a_busy_machine_still_brings_something(looks: bool) -> None:
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    late = threading.Timer(1.2, loop.call_soon_threadsafe, [came.set])
    # A thread that nobody knows to be at work.
    late.name = "asyncio_late"
    late.start()
    if looks:
        await eventually(came.is_set)
    else:
        async with bounded():
            await came.wait()
    late.join()


@pytest.mark.usefixtures("jumps")
async def test_a_job_of_an_executor_is_waited_for() -> None:
    job = asyncio.create_task(asyncio.to_thread(time.sleep, 0.05))
    await asyncio.sleep(0)
    began = time.monotonic()
    async with asyncio.timeout(HOUR):
        await job
    assert time.monotonic() - began > 0.04


@pytest.mark.usefixtures("jumps")
@pytest.mark.parametrize("name", ["taskgate-store-writer", "taskgate-audit-stdout"])
async def test_a_thread_with_a_queue_is_waited_for_while_it_works(name: str) -> None:
    loop, jobs = asyncio.get_running_loop(), queue.SimpleQueue[Callable[[], object] | None]()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()
        time.sleep(0.05)
        loop.call_soon_threadsafe(over.set)

    over = asyncio.Event()
    thread = threading.Thread(target=work, name=name)
    thread.start()
    for _ in range(2):
        began, ended = loop.time(), asyncio.Event()

        def job(ended: asyncio.Event = ended) -> None:
            time.sleep(0.05)
            loop.call_soon_threadsafe(ended.set)

        jobs.put(job)
        async with asyncio.timeout(HOUR):
            await ended.wait()
        assert loop.time() - began < HOUR / 2
        real = time.monotonic()
        await asyncio.sleep(HOUR)
        assert time.monotonic() - real < 60
    jobs.put(None)
    async with asyncio.timeout(HOUR):
        await over.wait()
    thread.join()


@pytest.mark.usefixtures("jumps")
async def test_while_a_program_runs_time_is_that_of_the_machine() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        real = time.monotonic()
        await asyncio.sleep(0.05)
        assert time.monotonic() - real > 0.04
        program.communicate(b"\n")
    real = time.monotonic()
    await asyncio.sleep(HOUR)
    assert time.monotonic() - real < 60


async def test_a_program_that_other_tests_share_holds_no_time_up() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        with virtual_time():
            real = time.monotonic()
            await asyncio.sleep(HOUR)
            assert time.monotonic() - real < 60
        program.communicate(b"\n")


@pytest.mark.usefixtures("jumps")
async def test_a_long_wait_takes_few_looks() -> None:
    looks, end = 0, asyncio.get_running_loop().time() + HOUR / 100

    def is_over() -> bool:
        nonlocal looks
        looks += 1
        return asyncio.get_running_loop().time() > end

    await eventually(is_over, within=HOUR)
    assert looks < 1000


@pytest.mark.usefixtures("jumps")
async def test_a_thread_that_works_is_waited_for() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        time.sleep(0.05)
        loop.call_soon_threadsafe(ended.set)

    thread = threading.Thread(target=work)
    thread.start()
    async with asyncio.timeout(HOUR):
        await ended.wait()
    thread.join()


async def test_elsewhere_time_is_that_of_the_machine() -> None:
    began = time.monotonic()
    await asyncio.sleep(0.05)
    assert time.monotonic() - began > 0.04


@pytest.mark.usefixtures("jumps")
async def test_time_stands_still_while_something_runs() -> None:
    loop, real = asyncio.get_running_loop(), time.monotonic()
    began = loop.time()
    while time.monotonic() < real + 0.05:
        """The machine is slow."""
    await asyncio.sleep(0)
    assert loop.time() - began < 0.001


@pytest.mark.usefixtures("jumps")
async def test_what_never_waits_comes_to_the_end_of_its_time_all_the_same() -> None:
    async def turns() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(turns(), 0.05)


@pytest.mark.usefixtures("jumps")
async def test_timers_that_became_due_in_one_busy_turn_come_in_the_next() -> None:
    came: list[int] = []
    loop = asyncio.get_running_loop()
    for number in (2, 1):
        loop.call_later(number, came.append, number)
    keep_busy(HOUR)
    assert came == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert came == [1, 2]
