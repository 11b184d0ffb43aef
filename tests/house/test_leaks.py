"""The checks that every test gets do fail a test that leaves something behind, and no other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

CHECKOUT = Path(__file__).parents[2]

LEAKING = """
import asyncio, os, subprocess, sys, threading
import aiohttp
from helpers.leaks import no_task_left_behind, nothing_left_behind

kept = []

async def test_a_task_is_left_running():
    kept.append(asyncio.create_task(asyncio.Event().wait()))

async def test_a_task_is_left_that_will_not_be_cancelled():
    async def stubborn():
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if kept:
                    raise
    kept.clear()
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    kept.append(task)

async def test_a_session_is_left_open():
    kept.append(aiohttp.ClientSession())

async def test_a_session_is_dropped_open():
    aiohttp.ClientSession()

async def test_a_server_is_left_listening():
    kept.append(await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0))

async def test_a_transport_is_left_open():
    async with await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0) as server:
        kept.append(await asyncio.open_connection(*server.sockets[0].getsockname()))

async def test_a_process_is_left_watched():
    os.pidfd_open(os.getpid())

async def test_an_event_of_the_system_is_left():
    os.eventfd(0)

def test_a_process_is_left_running():
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_a_dead_process_is_left_uncollected():
    process = subprocess.Popen([sys.executable, "-c", "print()"], stdout=subprocess.PIPE)
    process.stdout.read()
    process.stdout.close()
    kept.append(process)

def test_a_thread_is_left_running():
    kept.append(threading.Event())
    threading.Thread(target=kept[-1].wait, args=(20,), daemon=True).start()

async def test_a_task_fails_and_nobody_looks():
    async def fail():
        raise ValueError
    asyncio.create_task(fail())
    await asyncio.sleep(0)

async def test_a_callback_fails():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)

def test_an_exception_is_lost_in_a_finalizer():
    class Lossy:
        def __del__(self):
            raise ValueError
    Lossy()

def test_a_file_is_dropped_open():
    open(__file__)
"""

TIDY = """
import asyncio, subprocess, sys
import aiohttp
from aiohttp import web
import pytest
from helpers.leaks import no_task_left_behind, nothing_left_behind
from helpers.waiting import bounded

def test_nothing_happens():
    pass

async def test_a_task_is_cancelled_and_not_awaited():
    task = asyncio.create_task(asyncio.Event().wait())
    await asyncio.sleep(0)
    task.cancel()

async def test_a_whole_exchange_is_closed():
    async def answer(_):
        return web.Response(text="ok")
    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with bounded(), aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{runner.addresses[0][1]}/") as response:
            assert await response.text() == "ok"
    await runner.cleanup()

async def test_a_process_is_waited_for():
    async with bounded():
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
        await process.wait()

async def test_a_thread_of_the_loop_is_the_loops():
    await asyncio.to_thread(int)

@pytest.fixture
async def running():
    task = asyncio.create_task(asyncio.Event().wait())
    yield task
    task.cancel()

async def test_a_fixture_tidies_up_itself(running):
    assert not running.done()

@pytest.fixture(scope="module")
def server():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.communicate(b"")

def test_a_process_of_the_module_may_stay(server):
    assert server.poll() is None
"""


@pytest.mark.timeout(300)
def test_every_kind_of_leak_fails_its_own_test_and_tidy_tests_pass(tmp_path: Path) -> None:
    (tmp_path / "test_leaking.py").write_text(LEAKING)
    (tmp_path / "test_tidy.py").write_text(TIDY)
    options = ["-c", "pyproject.toml", "-p", "no:cacheprovider", "-q", "-rA", "--tb=no"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    verdicts = dict.fromkeys(re.findall(r"def (test_\w+)", LEAKING), "red") | dict.fromkeys(
        re.findall(r"def (test_\w+)", TIDY), "green"
    )
    red = set(re.findall(r"^(?:ERROR|FAILED) \S+::(test_\w+)", run.stdout, re.MULTILINE))
    ran = set(re.findall(r"^\w+ \S+::(test_\w+)", run.stdout, re.MULTILINE))
    assert {name: "red" if name in red else "green" for name in ran} == verdicts, run.stdout + run.stderr
