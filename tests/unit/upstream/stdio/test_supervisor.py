"""The nursery itself: what becomes of it and of what it started when it, or the gateway, goes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import taskgate
from helpers.waiting import bounded, eventually
from taskgate.upstream.stdio.supervisor_client import LOST, ProgramNotStarted, Supervisor
from unit.upstream.stdio.programs import is_there, program, runs
from unit.upstream.stdio.started import DAEMON, STUBBORN, Start


async def test_to_close_ends_whatever_runs_and_the_nursery(nurse: Supervisor, start: Start) -> None:
    rude = await start(STUBBORN)
    daemon = await start(f"subprocess.run({program(DAEMON)!r}); signal.pause()")
    pids = [nurse.pid, rude.number(), daemon.number(), daemon.child.pid]
    async with bounded():
        await nurse.close()
    assert (await rude.status(), await daemon.status()) == (-9, -15)
    assert not any(runs(pid) for pid in pids if pid is not None)
    with pytest.raises(ProgramNotStarted):
        await start()


async def test_signals_that_are_meant_to_end_it_do_not(nurse: Supervisor, start: Start) -> None:
    """Those of a terminal, or of whoever ends a whole service: the gateway ends its programs in its own time."""
    await start()
    first = nurse.pid
    assert first is not None
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(first, each)
    assert await (await start("sys.exit(5)")).status() == 5
    assert nurse.pid == first


async def test_where_it_is_killed_its_programs_have_ended_and_another_is_started(
    nurse: Supervisor, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"child = subprocess.Popen({program(STUBBORN)!r}); signal.signal(15, signal.SIG_IGN); signal.pause()"
    started = await start(text)
    child, first = started.number(), nurse.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert await started.status() == LOST
    await eventually(lambda: not runs(started.child.pid) and not runs(child))
    assert nurse.pid is None
    assert await (await start("sys.exit(5)")).status() == 5
    assert nurse.pid not in (None, first)
    assert "the nursery process ended" in caplog.text
    assert not is_there(first), "it was waited for"


async def test_where_it_is_killed_what_waits_for_a_start_is_told(nurse: Supervisor, start: Start) -> None:
    await start()
    first = nurse.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    starting = asyncio.ensure_future(start())
    await asyncio.wait((starting,), timeout=0.05)
    os.kill(first, signal.SIGKILL)
    async with bounded():
        with pytest.raises(ProgramNotStarted):
            await starting


async def test_a_nursery_that_does_not_listen_blocks_nobody(nurse: Supervisor, start: Start) -> None:
    """More is asked of it than a socket holds; then it listens again, and all of that is done."""
    await start()
    assert nurse.pid is not None
    os.kill(nurse.pid, signal.SIGSTOP)
    asked = [asyncio.ensure_future(start("sys.exit(6)" + "#" * 50_000)) for _ in range(20)]
    await asyncio.wait(asked, timeout=0.05)
    assert not any(each.done() for each in asked)
    os.kill(nurse.pid, signal.SIGCONT)
    async with bounded():
        begun = await asyncio.gather(*asked)
    assert [await each.status() for each in begun] == [6] * 20


GATEWAY = """
import asyncio, os, sys
from taskgate.upstream.stdio.supervisor_client import Supervisor
from taskgate.upstream.stdio.supervisor_client import Order

async def main():
    nurse = Supervisor()
    for _ in range(int(sys.argv[1])):
        reading, writing = os.pipe()
        await nurse.start(Order(sys.argv[2:], dict(os.environ), None, (reading, 1, 2)), print)
        os.close(reading)
    print(nurse.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.program
def test_nothing_is_left_of_a_gateway_that_was_killed() -> None:
    """Whatever its programs are like: one that ends with its input, a stubborn one, one with a daemon."""
    text = f"""
if not os.fork():
    subprocess.run({program(DAEMON)!r}); os._exit(0)
if os.fork():
    say(os.getpid()); sys.stdin.read(); sys.exit(0)
{STUBBORN}
"""
    command = [sys.executable, "-c", GATEWAY, "3", *program(text)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as gateway:
        assert gateway.stdout is not None
        # Of each program: itself, what it started, and the daemon; and the nursery.
        pids = [int(gateway.stdout.readline()) for _ in range(3 * 3 + 1)]
        assert all(runs(pid) for pid in pids)
        gateway.kill()
    asyncio.run(eventually(lambda: not any(runs(pid) for pid in pids)))


@pytest.mark.program
def test_it_needs_the_standard_library_alone() -> None:
    """Nor is it loaded with more of the gateway than itself."""
    text = (
        "import sys; before = set(sys.modules); sys.path.append(sys.argv[1])\n"
        "import taskgate.upstream.stdio.supervisor.program\n"
        "print(*sorted(set(sys.modules) - before - sys.stdlib_module_names))"
    )
    root = str(Path(taskgate.__file__).parents[1])
    command = [sys.executable, "-I", "-S", "-c", text, root]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    own = [name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names]
    package = "taskgate.upstream.stdio.supervisor"
    assert [name for name in own if not (name.startswith(package) or package.startswith(f"{name}."))] == []
    assert f"{package}.children" in own
