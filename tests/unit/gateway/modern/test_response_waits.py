"""How a request is waited for: until its answer, its host's leaving, or the gateway's end."""

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from helpers.waiting import bounded, eventually
from taskgate.errors import CutOff
from taskgate.gateway.listeners import ResponseWaiter
from taskgate.gateway.modern.adapter import ModernListener
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.system.cancel_scope import ScopeCancelled
from unit.gateway.modern.calling import Talk, Words

WORDS = cast("ModernDownstream", Words())


def attending(patience: float = 60) -> ResponseWaiter:
    return ResponseWaiter(timedelta(seconds=patience))


class Work:
    """Something that takes as long as the test wants."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.was_cancelled = False

    async def __call__(self) -> str:
        try:
            await self.over.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return "done"


async def test_what_is_waited_for_is_given_back() -> None:
    work = Work()
    work.over.set()
    async with bounded():
        assert await attending().wait(Talk(), work()) == "done"


@pytest.mark.parametrize("early", [True, False], ids=["before", "meanwhile"])
async def test_a_host_that_leaves_ends_the_wait_and_the_work(early: bool) -> None:
    talk, work = Talk(), Work()
    if early:
        talk.leave()
    waiting = asyncio.create_task(attending().wait(talk, work()))
    await asyncio.sleep(0)
    talk.leave()
    with pytest.raises(ScopeCancelled):
        async with bounded():
            await waiting
    assert work.was_cancelled


async def test_at_the_end_every_wait_is_cut_off() -> None:
    attends, works = attending(), [Work(), Work()]
    waiting = [asyncio.create_task(attends.wait(Talk(), work())) for work in works]
    await asyncio.sleep(0)
    attends.waits.stop()
    async with bounded():
        for each in waiting:
            with pytest.raises(CutOff):
                await each
    assert all(work.was_cancelled for work in works)


async def test_who_begins_to_wait_after_the_end_is_cut_off_and_told_only_what_is_there_already() -> None:
    attends, endless, over = attending(), Work(), Work()
    over.over.set()
    attends.waits.stop()
    async with bounded():
        assert await attends.wait(Talk(), over()) == "done"
        with pytest.raises(CutOff):
            await attends.wait(Talk(), endless())
    assert endless.was_cancelled


async def test_a_host_that_takes_no_json_gets_a_stream_from_the_start() -> None:
    attends, talk = attending(), Talk(accepts_json=False)
    with ModernListener(talk, None, attends.keepalives, WORDS, None):
        assert talk.is_streaming
    attends.close()


async def test_silence_turns_the_answer_into_a_stream_until_the_wait_is_over() -> None:
    attends, talk, quick = attending(0.001), Talk(), Talk()
    with ModernListener(quick, "q", attends.keepalives, WORDS, None):
        pass
    with ModernListener(talk, "p", attends.keepalives, WORDS, None):
        assert not talk.is_streaming
        await eventually(lambda: len(talk.said) >= 2)
    said_by_then = len(talk.said)
    with ModernListener(Talk(), None, attends.keepalives, WORDS, None) as other:
        assert not other.passes_rounds
    await asyncio.sleep(0)
    assert (len(talk.said), quick.is_streaming) == (said_by_then, False)
    attends.close()


async def test_a_host_that_takes_no_stream_waits_for_a_document() -> None:
    attends, talk = attending(0.001), Talk(accepts_stream=False)
    with ModernListener(talk, None, attends.keepalives, WORDS, None):
        await eventually(lambda: talk.spaces >= 2)
    assert not talk.is_streaming
    attends.close()
