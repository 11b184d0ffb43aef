"""A program that ended by itself: another is started when it is needed, and not too soon where that fails."""

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from helpers.loop_pace import pass_time
from helpers.waiting import eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.stdio.exits import LIVES, Cause
from taskgate.upstream.stdio.supervisor_client import Supervisor
from unit.upstream.stdio.conftest import Yard
from unit.upstream.stdio.programs import program, runs

NewYard = Callable[..., Yard]
HOUR = timedelta(hours=1)


async def refusal(yard: Yard, name: str = "alice") -> UpstreamFailed:
    with pytest.raises(UpstreamFailed) as refused:
        await yard.take(name)
    assert refused.value.dispatched is False
    return refused.value


@pytest.mark.parametrize(
    ("statement", "cause"),
    [
        ("sys.exit(1)", Cause.EXIT),
        ("os.kill(os.getpid(), 9)", Cause.SIGNAL),
        ("os.close(1); signal.pause()", Cause.CLOSED),
        ("print('{' * (2**25 + 1), flush=True); sys.stdin.read()", Cause.TOO_LARGE),
    ],
)
async def test_the_next_request_gets_another_and_why_is_counted(yard: Yard, statement: str, cause: Cause) -> None:
    taken = await yard.take()
    await taken.do(statement)
    await taken.end()
    await eventually(lambda: yard.counts[-1] == 0)
    assert yard.restarts == []
    again = await yard.take()
    await again.tell(id=1)
    assert await again.told() == [{"heard": {"id": 1}}]
    assert yard.restarts == [cause]


async def test_one_that_was_ended_is_not_started_again_but_anew(yard: Yard) -> None:
    taken = await yard.take()
    taken.line.drop()
    await taken.end()
    await yard.take()
    assert yard.restarts == []


async def test_programs_that_fail_at_once_are_held_back_longer_each_time(new_yard: NewYard) -> None:
    yard = new_yard(command=program("sys.exit(3)"), backoff=timedelta(minutes=1), max_backoff=HOUR)
    waits = []
    for _ in range(4):
        taken = await yard.take()
        assert str(await taken.end()) == "The server's program exited with status 3 before it answered"
        pause = (await refusal(yard)).retry_after
        assert pause is not None
        waits.append(ceil(pause / timedelta(minutes=1)))
        await pass_time(pause.total_seconds())
    assert waits == [1, 2, 4, 8]
    assert yard.restarts == [Cause.EXIT] * 3


async def test_where_the_pause_is_long_a_request_is_refused_and_told_when_to_come_again(new_yard: NewYard) -> None:
    yard = new_yard(command=program("sys.exit(3)"), backoff=HOUR, max_backoff=HOUR)
    await (await yard.take()).end()
    failure = await refusal(yard)
    assert str(failure) == "The server's program failed soon after its start, once; the next start is in 3600 s"
    assert (failure.reason, yard.counts) == ("unreachable", [1, 0])
    assert failure.retry_after is not None
    assert timedelta(minutes=59) < failure.retry_after <= HOUR


async def test_that_is_so_for_whom_it_failed_and_for_nobody_else(new_yard: NewYard) -> None:
    yard = new_yard(backoff=HOUR, max_backoff=HOUR)
    taken = await yard.take("alice")
    await taken.do("sys.exit(1)")
    await taken.end()
    await refusal(yard, "alice")
    assert (await yard.take("bob")).line.is_usable


async def test_one_that_was_of_use_for_long_is_started_again_at_once(new_yard: NewYard) -> None:
    yard = new_yard(backoff=HOUR, max_backoff=HOUR)
    taken = await yard.take()
    await taken.tell(id=1)
    await taken.told()
    await pass_time(LIVES)
    await taken.do("sys.exit(1)")
    await taken.end()
    assert (await yard.take()).line.is_usable
    assert yard.restarts == [Cause.EXIT]


async def test_one_that_is_ended_for_a_message_without_end_is_started_again_at_once(new_yard: NewYard) -> None:
    yard = new_yard(limit=10_000, backoff=HOUR, max_backoff=HOUR)
    taken = await yard.take()
    await taken.do("print('{' * 160_001, flush=True); sys.stdin.read()")
    await taken.end()
    assert (await yard.take()).line.is_usable


async def test_good_service_has_what_failed_before_it_forgotten(new_yard: NewYard) -> None:
    yard = new_yard(backoff=HOUR, max_backoff=HOUR)

    async def fail(name: str) -> None:
        taken = await yard.take(name)
        await taken.do("sys.exit(1)")
        await taken.end()

    for name, seconds, failures in (("alice", 1.0, "2 times in a row"), ("bob", LIVES, "once")):
        await fail(name)
        await pass_time(HOUR.total_seconds())
        taken = await yard.take(name)
        await taken.tell(id=1)
        await taken.told()
        await pass_time(seconds)
        taken.line.drop()
        await taken.end()
        await fail(name)
        assert f", {failures};" in str(await refusal(yard, name))


async def test_the_same_without_a_word_was_of_no_use(new_yard: NewYard) -> None:
    yard = new_yard(backoff=HOUR, max_backoff=HOUR)
    taken = await yard.take()
    await taken.do("print('Hello', flush=True)")
    await eventually(lambda: taken.ears.heard_all)
    await pass_time(LIVES)
    await taken.do("sys.exit(1)")
    await taken.end()
    await refusal(yard)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"command": ("no-such-program",)}, "the program or its interpreter does not exist"),
        ({"cwd": Path("/no/such/place")}, "its working directory does not exist"),
        ({"command": ("/",)}, "no permission to execute it"),
        ({"command": ("true", "x" * 2**20)}, "its arguments are too long"),
        ({"command": ("true", "\0")}, "the system refused it"),
    ],
)
async def test_why_a_program_cannot_be_started_is_said_and_not_where_it_is(
    new_yard: NewYard, settings: dict[str, object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    yard = new_yard(**settings, backoff=HOUR, max_backoff=HOUR)
    first, second = await asyncio.gather(refusal(yard), refusal(yard))
    assert str(first) == str(second) == f"The server's program could not be started: {why}"
    assert (first.reason, yard.counts) == ("unreachable", [1, 0])
    assert "held" not in str(first)
    assert "the next start is in" in str(await refusal(yard))
    assert "a server's program could not be started" in caplog.text


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"command": ("no-such-program",)}, "No such file or directory"),
        ({"command": ("true",), "cwd": Path("/no/such/place")}, "cwd /no/such/place: No such file or directory"),
    ],
)
async def test_the_log_tells_a_folder_that_is_missing_from_a_program(
    new_yard: NewYard, settings: dict[str, object], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    await refusal(new_yard(**settings))
    [record] = [each for each in caplog.records if each.message == "a server's program could not be started"]
    assert vars(record)["error"] == error


@pytest.mark.parametrize(
    ("connects", "works"), [("connect_write_pipe", 0), ("connect_read_pipe", 0), ("connect_read_pipe", 1)]
)
async def test_a_program_whose_pipes_cannot_be_watched_is_not_started_and_leaves_its_place(
    new_yard: NewYard, monkeypatch: pytest.MonkeyPatch, connects: str, works: int
) -> None:
    """And its pipes are closed, which is looked at after every test."""
    loop, yard = asyncio.get_running_loop(), new_yard(processes=1)
    connect, calls = getattr(loop, connects), count()

    async def refuse(*pipe: Any) -> Any:
        if next(calls) >= works:
            raise OSError(errno.ENOSPC, "no space")
        return await connect(*pipe)

    with monkeypatch.context() as patched:
        patched.setattr(loop, connects, refuse)
        assert str(await refusal(yard)) == "The server's program could not be started: the system refused it"
    assert yard.counts == [1, 0]
    assert runs((await yard.take("bob", b'{"a":1}')).line.pid)


async def test_a_nursery_that_does_not_answer_is_not_waited_for_for_ever(nurse: Supervisor, new_yard: NewYard) -> None:
    await new_yard().take()
    assert nurse.pid is not None
    os.kill(nurse.pid, signal.SIGSTOP)
    try:
        failure = await refusal(new_yard(connect=0.1))
    finally:
        os.kill(nurse.pid, signal.SIGCONT)
    assert str(failure) == "The server's program could not be started in time"


async def test_where_the_nursery_dies_every_line_is_lost_and_the_next_request_is_served(
    nurse: Supervisor, yard: Yard
) -> None:
    taken = await yard.take("alice"), await yard.take("bob")
    assert nurse.pid is not None
    os.kill(nurse.pid, 9)
    for each in taken:
        failure = await each.end()
        assert (failure.reason, failure.dispatched) == ("closed", True)
        assert str(failure) == "The server's program ended before it answered; its exit status is unknown"
    again = await yard.take("alice")
    await again.tell(id=1)
    await again.told()
    assert yard.restarts == [Cause.NURSERY]
