"""The gateway's ends of a program's streams."""

import os

import pytest

from helpers.departing import Departing
from helpers.waiting import eventually
from taskgate.upstream.stdio.pipes import PipeWriter


async def test_what_nobody_can_read_any_more_is_not_written_though_the_loop_has_not_heard_of_it_yet() -> None:
    told: list[str] = []
    writing = PipeWriter(lambda: told.append("ended"))
    theirs, ours = os.pipe()
    await writing.connect(ours)
    assert writing.is_read
    assert await writing.write(b"one\n", Departing(lambda: told.append("left")))
    assert os.read(theirs, 99) == b"one\n"
    os.close(theirs)
    assert not writing.is_read
    assert not await writing.write(b"two\n", Departing(lambda: pytest.fail("nothing may leave")))
    await eventually(lambda: told == ["left", "ended"])
    assert not writing.is_read
