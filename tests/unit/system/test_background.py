"""Work beside everything else: over when its owner is, and no failure of it harms anybody."""

import asyncio

import pytest

from helpers.waiting import bounded, eventually
from taskgate.system.background import Background


async def fail() -> int:
    raise ValueError("as the test wants")


async def test_what_fails_is_logged_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    background, goes_on = Background(), asyncio.Event()
    background.run(fail)
    background.run(goes_on.wait)
    await eventually(lambda: caplog.records)
    assert not goes_on.is_set()
    goes_on.set()
    await eventually(lambda: not background.running)
    [record] = caplog.records
    assert record.levelname == "ERROR"


async def test_what_somebody_waits_for_fails_to_them_alone(caplog: pytest.LogCaptureFixture) -> None:
    background = Background()
    with pytest.raises(ValueError, match="as the test wants"):
        await background.start(fail)
    assert caplog.records == []


async def test_what_fails_after_its_waiter_has_gone_is_no_complaint_of_the_loop() -> None:
    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    background = Background()
    begun = background.start(fail)
    await eventually(begun.done)
    del begun
    await eventually(lambda: not background.running)
    assert complaints == []


async def test_to_close_gives_up_what_runs_and_what_that_begins_and_waits_for_it() -> None:
    background, ends = Background(), list[str]()

    async def second() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("second")

    async def first() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("first")
            background.run(second)
            # It has begun before it is given up.
            await asyncio.sleep(0)

    background.run(first)
    await asyncio.sleep(0)
    async with bounded():
        await background.close()
    assert ends == ["first", "second"]
    assert background.running == ()
