"""What the nursery starts, and how that ends: by itself or when it is asked to, and with all that it left behind."""

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest

from helpers.waiting import eventually
from taskgate.upstream.stdio.supervisor_client import ProgramNotStarted, Supervisor
from unit.upstream.stdio.programs import children, is_there, program, runs
from unit.upstream.stdio.started import DAEMON, STUBBORN, Start

# --- starting


async def test_a_program_runs_with_its_arguments_environment_and_directory_alone(start: Start, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "TOKEN": "grün \udcff"}
    text = "print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid()]))"
    started = await start(command=(*program(text), "a b", "ü"), env=env, cwd=tmp_path)
    assert await started.status() == 0
    argv, found, cwd, leads = eval(started.says().replace("true", "True"))
    found.pop("LC_CTYPE", None)  # which Python itself sets where there is no locale
    assert (argv, found, cwd, leads) == (["a b", "ü"], env, str(tmp_path), True)


async def test_it_has_no_descriptor_but_its_streams(start: Start) -> None:
    started = await start("print(len(os.listdir('/proc/self/fd')))")
    # One more is the directory itself.
    assert started.number() == 4


async def test_it_starts_with_the_signals_of_any_program(start: Start) -> None:
    text = (
        "print([signal.getsignal(each) for each in (2, 15, 1, 13, 17)] == [signal.default_int_handler, 0, 0, "
        "signal.SIG_IGN, 0], signal.pthread_sigmask(0, []))"
    )
    assert (await start(text)).says() == "True set()\n"


@pytest.mark.parametrize(
    ("command", "cwd", "number", "of_cwd"),
    [
        (("no-such-program",), None, errno.ENOENT, False),
        (("./no-such-program",), None, errno.ENOENT, False),
        (("true",), "nowhere", errno.ENOENT, True),
        (("true",), "plain", errno.ENOTDIR, True),
        (("./plain",), ".", errno.EACCES, False),
        (("./broken",), ".", errno.ENOEXEC, False),
        (("./orphan",), ".", errno.ENOENT, False),
        (("true", "a\0b"), None, 0, False),
        (("true", "\ud800"), None, 0, False),
        (("true", "x" * 2**20), None, errno.E2BIG, False),
    ],
)
async def test_what_cannot_be_started_says_why(
    start: Start, tmp_path: Path, command: tuple[str, ...], cwd: str | None, number: int, of_cwd: bool
) -> None:
    for name, text, mode in (("plain", "", 0o600), ("broken", "\x7fELF", 0o700), ("orphan", "#!/nowhere\n", 0o700)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    with pytest.raises(ProgramNotStarted) as refused:
        await start(command=command, cwd=None if cwd is None else tmp_path / cwd)
    assert (refused.value.errno, refused.value.cwd) == (number, of_cwd)
    # And whoever asks next is served.
    assert await (await start("sys.exit(7)")).status() == 7


async def test_many_are_started_at_once_and_each_has_its_own_streams(start: Start) -> None:
    begun = await asyncio.gather(*(start(f"print({number})") for number in range(30)))
    assert [each.number() for each in begun] == list(range(30))
    assert [await each.status() for each in begun] == [0] * 30


async def test_a_program_whose_start_is_cancelled_ends(nurse: Supervisor, start: Start, tmp_path: Path) -> None:
    await start()
    assert nurse.pid is not None
    os.kill(nurse.pid, signal.SIGSTOP)
    mark = tmp_path / "mark"
    text = (
        f"open({str(mark)!r}, 'w').write(str(os.getpid())); signal.signal(15, lambda *_: os._exit(0)); signal.pause()"
    )
    starting = asyncio.ensure_future(start(text))
    done, _ = await asyncio.wait((starting,), timeout=0.05)
    starting.cancel()
    os.kill(nurse.pid, signal.SIGCONT)
    await asyncio.wait((starting,))
    assert (bool(done), starting.cancelled()) == (False, True)
    await start()
    await eventually(lambda: children(nurse.pid) == [])


# --- ending


async def test_its_exit_or_its_signal_is_told(start: Start) -> None:
    assert await (await start("sys.exit(3)")).status() == 3
    assert await (await start("os.kill(os.getpid(), 6)")).status() == -6


async def test_nobody_is_left_dead_and_unburied(nurse: Supervisor, start: Start) -> None:
    """Nor what a program left behind, which ends later than it."""
    started = await start("child = subprocess.Popen(['true']); time.sleep(0.1); print(child.pid)")
    child = started.number()
    await started.status()
    await eventually(lambda: not is_there(child) and not is_there(started.child.pid))


async def test_it_is_asked_to_end_and_then_made_to(start: Start) -> None:
    polite = await start("signal.signal(15, lambda *_: os._exit(9)); say(1); signal.pause()")
    rude = await start(STUBBORN)
    assert (polite.number(), rude.number()) == (1, rude.child.pid)
    for each in (polite, rude):
        each.child.end(0, 0.2)
    assert (await polite.status(), await rude.status()) == (9, -9)


async def test_it_has_its_time_before_it_is_asked(start: Start) -> None:
    started = await start("say(1); sys.stdin.read(); sys.exit(4)")
    started.number()
    started.child.end(20, 0)
    os.close(started.stdin)
    assert await started.status() == 4


async def test_its_whole_session_ends_with_it(start: Start) -> None:
    """Those too that have a group of their own, and those that do not listen."""
    text = f"""
rude = subprocess.Popen({program(STUBBORN)!r}, stdout=subprocess.PIPE)
apart = subprocess.Popen({program("say(os.getpid()); signal.pause()")!r}, stdout=subprocess.PIPE, process_group=0)
pids = [int(each.stdout.readline()) for each in (rude, apart)]
say(pids)
sys.exit(0)
"""
    started = await start(text)
    rude, apart = eval(started.says())
    assert await started.status() == 0
    await eventually(lambda: not runs(rude) and not runs(apart))


async def test_what_left_its_session_ends_with_it_too(start: Start) -> None:
    started = await start(f"subprocess.run({program(DAEMON)!r}); sys.stdin.read()")
    daemon = started.number()
    assert os.getsid(daemon) != started.child.pid
    os.close(started.stdin)
    await started.status()
    await eventually(lambda: not runs(daemon))


async def test_what_another_program_may_have_begun_is_left_alone_until_that_ends(start: Start) -> None:
    other = await start("say(1); sys.stdin.read()")
    other.number()
    owner = await start(f"subprocess.run({program(DAEMON)!r}); sys.stdin.read()")
    daemon = owner.number()
    later = await start("say(1); sys.stdin.read()")
    later.number()
    os.close(owner.stdin)
    await owner.status()
    # One that began after it cannot have begun it, and is the next that is looked at.
    os.close(later.stdin)
    await later.status()
    again = await start("say(1)")
    await again.status()
    assert runs(daemon)
    os.close(other.stdin)
    await other.status()
    await eventually(lambda: not runs(daemon))
