"""How one program's line ends, and what is said of that."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from helpers.loop_pace import paced, pass_time
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.stdio.channel import MOMENT
from taskgate.upstream.stdio.supervisor_client import Child, Order, Supervisor
from unit.upstream.stdio.conftest import Taken, Yard
from unit.upstream.stdio.programs import program, runs

NewYard = Callable[..., Yard]


async def refusal(taken: Taken) -> UpstreamFailed:
    with pytest.raises(UpstreamFailed) as refused:
        await taken.tell(too="late")
    return refused.value


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("sys.exit(3)", "The server's program exited with status 3 before it answered"),
        ("sys.exit(0)", "The server's program exited with status 0 before it answered"),
        ("os.kill(os.getpid(), 9)", "The server's program was killed by SIGKILL before it answered"),
        ("os.kill(os.getpid(), 34)", "The server's program was killed by SIGRTMIN before it answered"),
    ],
)
async def test_how_it_ended_is_said(yard: Yard, statement: str, text: str) -> None:
    taken = await yard.take()
    await taken.do(statement)
    failure = await taken.end()
    assert (str(failure), failure.reason, failure.dispatched) == (text, "closed", True)
    late = await refusal(taken)
    assert (str(late), late.reason, late.dispatched) == (text, "closed", False)


async def test_what_it_said_before_its_end_is_heard_before_that(yard: Yard) -> None:
    taken = await yard.take()
    order: list[object] = []
    taken.ears.on_heard = order.append
    taken.ears.on_closed = order.append  # type: ignore[method-assign,assignment]
    await taken.do("[say({'text': 'x' * 1000}) for _ in range(60)]; os._exit(1)")
    await eventually(lambda: len(order) == 61)
    assert isinstance(order[-1], UpstreamFailed)


async def test_what_it_said_before_its_end_is_heard_also_after_a_pause(yard: Yard) -> None:
    taken = await yard.take()
    taken.line.pause()
    await taken.do("[say({'text': 'x' * 1000}) for _ in range(60)]; os._exit(1)")
    await eventually(lambda: taken.line.status is not None)
    await pass_time(2 * MOMENT)
    assert not taken.ears.failures
    taken.line.resume()
    await taken.end()
    assert len(taken.ears.messages) == 60


async def test_a_program_whose_child_holds_its_output_has_ended_all_the_same(yard: Yard) -> None:
    taken = await yard.take()
    await taken.do(
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.signal(15, signal.SIG_IGN); "
        'print("{}", flush=True); signal.pause()\'], start_new_session=True); time.sleep(0.3); os._exit(5)'
    )
    assert "status 5" in str(await taken.end())


@pytest.mark.parametrize(("stream", "said"), [("stdout", "output"), ("stdin", "input")])
async def test_a_program_that_closes_a_stream_and_lives_is_ended(yard: Yard, stream: str, said: str) -> None:
    taken = await yard.take()
    number = {"stdin": 0, "stdout": 1}[stream]
    await taken.do(f"os.close({number}); signal.signal(15, lambda *_: os._exit(0)); signal.pause()")
    failure = await taken.end()
    assert str(failure) == f"The server's program closed its {said} before it answered"
    await eventually(lambda: not runs(taken.line.pid))


async def test_a_message_without_end_ends_the_line_and_the_program(new_yard: NewYard) -> None:
    taken = await new_yard(limit=10_000).take()
    await taken.do("say({'a': 1}); sys.stdout.write('{' + 'x' * 160_000); sys.stdout.flush(); sys.stdin.read()")
    failure = await taken.end()
    assert str(failure) == "The server's program was stopped because it wrote a message that is too large"
    assert (failure.reason, failure.dispatched) == ("closed", True)
    assert taken.ears.messages == [{"a": 1}], "what came before is not lost"
    assert taken.ears.cuts == [b"{" + b"x" * 511 + b"\0"], "it may be told whose it would have been"
    await eventually(lambda: not runs(taken.line.pid))


async def test_a_line_that_is_dropped_is_over_and_its_program_ends(yard: Yard) -> None:
    taken = await yard.take()
    taken.line.drop()
    assert taken.ears.failures == [], "it is not told within the call"
    failure = await taken.end()
    assert (str(failure), failure.dispatched) == ("The session with the server was closed", True)
    assert not (await refusal(taken)).dispatched
    await eventually(lambda: not runs(taken.line.pid))


async def test_after_it_was_dropped_nothing_is_heard(yard: Yard) -> None:
    taken = await yard.take()
    taken.ears.on_heard = lambda message: taken.line.drop()
    await taken.do("print('{}\\n' * 10, flush=True)")
    await taken.end()
    assert taken.ears.heard_all == [b"{}"]


async def test_a_program_ends_by_itself_when_its_input_does(yard: Yard) -> None:
    taken = await yard.take()
    taken.line.drop()
    await eventually(lambda: taken.line.status == 0)


async def test_and_may_say_much_before(yard: Yard) -> None:
    """Also where it was not listened to when it was ended: it is read on, for nobody."""
    taken = await yard.take()
    await taken.do("sys.stdin.read(); print('x' * 1000000, flush=True); sys.exit(7)")
    taken.line.pause()
    taken.line.drop()
    await eventually(lambda: taken.line.status == 7)


async def test_what_a_program_does_not_hear_any_more_is_refused_with_what_is_known_of_it_by_then(yard: Yard) -> None:
    taken = await yard.take()
    await taken.do("os.close(0); print('{}', flush=True); signal.pause()")
    await taken.told()
    failure = await refusal(taken)
    assert (failure.reason, failure.dispatched) == ("closed", False)
    assert str(failure) == "The server's program has ended or no longer reads its input"
    await taken.end()
    assert str(await refusal(taken)) == "The server's program closed its input before it answered"


async def test_whoever_meets_a_program_that_has_just_ended_hears_how(nurse: Supervisor, yard: Yard) -> None:
    """Which the nursery tells a moment after the pipes do."""
    taken = await yard.take()
    assert nurse.pid is not None
    # However slow the nursery is.
    with paced(0.01):
        os.kill(nurse.pid, signal.SIGSTOP)
        try:
            await taken.do("os._exit(0)")
            await eventually(lambda: not taken.line.is_usable)
            refused = asyncio.create_task(refusal(taken))
            await asyncio.sleep(0.001)
            assert not refused.done()
        finally:
            os.kill(nurse.pid, signal.SIGCONT)
        async with bounded():
            assert str(await refused) == "The server's program exited with status 0 before it answered"


async def test_so_does_whoever_it_was_started_for(new_yard: NewYard, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Supervisor.start

    async def start(nurse: Supervisor, order: Order, ended: Callable[[int], None]) -> Child:
        """Knows that it began once it has ended, and tells of the end after that."""
        statuses: list[int] = []
        child = await begin(nurse, order, statuses.append)
        await eventually(lambda: statuses)
        asyncio.get_running_loop().call_later(0.05, ended, *statuses)
        return child

    monkeypatch.setattr(Supervisor, "start", start)
    with pytest.raises(UpstreamFailed, match="exited with status 0") as refused:
        await new_yard(command=program("sys.exit(0)")).take()
    assert not refused.value.dispatched
