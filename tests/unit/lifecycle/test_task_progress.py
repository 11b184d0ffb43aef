"""What becomes of the progress of a task: written one after another, the newest last, and no more than is needed."""

import asyncio
from datetime import timedelta

import pytest

from helpers.records import new_record
from helpers.waiting import eventually
from taskgate.admission.rules import QuestionBounds
from taskgate.domain.events import Progressed
from taskgate.domain.record import OwnerKey, TaskId
from taskgate.lifecycle.task_listener import WRITE_EVERY, TaskListener, TaskListeners
from taskgate.lifecycle.task_streams import TaskOrigin
from taskgate.lifecycle.transitions import Choose
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification
from unit.admission.live_rules import live

RECORD = new_record()
PAUSE = WRITE_EVERY.total_seconds()


class SlowChanges:
    """Writes nothing until it may; `writing` counts those who wait for that."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.written: list[str] = []
        self.writing = 0
        self.most = 0

    async def insist(self, owner: OwnerKey, task: TaskId, choose: Choose) -> None:
        """See Transitions; looks at the record only when the store works."""
        self.writing += 1
        self.most = max(self.most, self.writing)
        try:
            await self.goes_on.wait()
        finally:
            self.writing -= 1
        # Somebody else was faster, once: it is chosen again.
        choose(RECORD)
        event = choose(RECORD)
        assert isinstance(event, Progressed)
        self.written.append(event.message)


class Streams:
    """Nobody listens."""

    remote = None

    def send(self, origin: TaskOrigin, message: str) -> bool:
        return False


@pytest.fixture
def changes() -> SlowChanges:
    return SlowChanges()


@pytest.fixture
def listener(changes: SlowChanges) -> TaskListener:
    bounds = QuestionBounds(timedelta(seconds=20), 8)
    shared = TaskListeners(
        transitions=changes, streams=Streams(), dialect=LegacyDownstream("1"), live=live(questions=bounds)
    )  # type: ignore[arg-type]
    return shared.of(RECORD)


def progress(done: int) -> Notification:
    text = f'{{"progressToken":1,"progress":{done},"total":9,"message":"step {done}"}}'
    told = parse(f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{text}}}'.encode(), max_depth=9)
    assert isinstance(told, Notification)
    return told


async def test_of_progress_that_could_not_be_written_for_a_while_the_newest_is_written_and_nothing_after_it(
    changes: SlowChanges, listener: TaskListener
) -> None:
    for done in range(1, 5):
        listener.on_notification(progress(done))
        await eventually(lambda: changes.writing)
    # As long as the store takes, one write waits for it, whatever else is told.
    assert changes.most == 1
    changes.goes_on.set()
    await asyncio.sleep(2 * PAUSE)
    assert changes.written == ["4/9: step 4"]
    listener.on_notification(progress(5))
    listener.on_notification(progress(3))
    await asyncio.sleep(2 * PAUSE)
    assert changes.written == ["4/9: step 4", "5/9: step 5"]
    listener.close()


async def test_what_is_told_while_one_is_written_is_written_next_after_a_pause(
    changes: SlowChanges, listener: TaskListener
) -> None:
    changes.goes_on.set()
    for done in (1, 2, 3):
        listener.on_notification(progress(done))
        await eventually(lambda: changes.written)
    await asyncio.sleep(PAUSE / 2)
    assert changes.written == ["1/9: step 1"]
    await asyncio.sleep(PAUSE)
    assert changes.written == ["1/9: step 1", "3/9: step 3"]
    assert changes.most == 1
    listener.close()


async def test_nothing_is_written_any_more_when_the_call_is_over(changes: SlowChanges, listener: TaskListener) -> None:
    listener.on_notification(progress(1))
    await eventually(lambda: changes.writing)
    listener.close()
    await eventually(lambda: not changes.writing)
    listener.on_notification(progress(2))
    changes.goes_on.set()
    await asyncio.sleep(0)
    assert (changes.written, changes.most) == ([], 1)
