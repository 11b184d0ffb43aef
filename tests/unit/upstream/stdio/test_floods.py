"""A program that writes without end is read no faster than others can bear, and nothing that it says is lost."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helpers.waiting import eventually
from requirements import covers
from taskgate.upstream.notification_limits import LARGEST, SAID_A_SECOND
from taskgate.upstream.stdio.channel import LINES_A_SECOND, LINES_A_TURN
from unit.upstream.stdio.conftest import LIMIT, Taken, Yard

KINDS = {"junk": "x", "empty lines": "", "notifications": '{"method":"n"}'}


async def flooded(yard: Yard, line: str, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], int, int]:
    """What is heard of a program that writes so many lines and then a message; its pauses, and its further turns."""
    loop, pauses, turns = asyncio.get_running_loop(), 0, 0
    call_later, call_soon = loop.call_later, loop.call_soon

    def later(delay: float, callback: Callable[..., object], *args: Any, **more: Any) -> asyncio.Handle:
        nonlocal pauses
        if getattr(callback, "__name__", "") != "_deliver_some":
            return call_later(delay, callback, *args, **more)
        pauses += 1
        return call_later(0, callback, *args, **more)

    def soon(callback: Callable[..., object], *args: Any, **more: Any) -> asyncio.Handle:
        nonlocal turns
        turns += getattr(callback, "__name__", "") == "_deliver_some"
        return call_soon(callback, *args, **more)

    taken = await yard.take()
    taken.ears.heard_all.clear()
    monkeypatch.setattr(loop, "call_later", later)
    monkeypatch.setattr(loop, "call_soon", soon)
    await taken.do(f"sys.stdout.write(({line!r} + chr(10)) * {count}); say({{'a': 1}})")
    await eventually(lambda: b'{"a":1}' in [each.replace(b" ", b"") for each in taken.ears.heard_all[-1:]])
    monkeypatch.undo()
    return taken.ears.heard_all, pauses, turns


@pytest.mark.parametrize("line", KINDS.values(), ids=KINDS)
async def test_a_flood_is_heard_whole_with_pauses(yard: Yard, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 8 * LINES_A_SECOND if line else 200 * LINES_A_SECOND
    heard, pauses, _ = await flooded(yard, line, count, monkeypatch)
    assert len(heard) == (count + 1 if line else 1)
    assert pauses >= 1


async def test_the_more_lines_come_at_once_the_more_turns_do_others_have(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = [(await flooded(yard, "x", size * LINES_A_TURN, monkeypatch))[2] for size in (16, 32)]
    assert few >= 8
    assert many >= few + 8


async def test_a_few_lines_are_heard_without_a_pause(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    heard, pauses, turns = await flooded(yard, "x", 10, monkeypatch)
    assert (len(heard), pauses, turns) == (11, 0, 0)


def said(size: int) -> str:
    """A notification of so many bytes, as a program says it."""
    return '{"jsonrpc":"2.0","method":"notifications/message","params":"' + "x" * (size - 62) + '"}'


@covers("T43")
@covers("T43")
async def test_a_program_that_says_too_much_beside_its_answers_waits_and_is_heard_whole(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, few, many = said(8192), LIMIT // 2 // 8192, (LIMIT + SAID_A_SECOND // 2) // 8192
    assert (await flooded(yard, line, few, monkeypatch))[1] == 0
    heard, pauses, _ = await flooded(yard, line, many, monkeypatch)
    assert len(heard) == many + 1
    assert pauses >= 1


async def test_answers_of_a_program_make_nothing_wait(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = await yard.take()
    taken.ears.on_heard = lambda message: taken.line.answered(len(message))
    monkeypatch.setattr(yard, "take", lambda: _soon(taken))
    heard, pauses, _ = await flooded(yard, said(8192), 3 * LIMIT // 8192, monkeypatch)
    assert (len(heard), pauses) == (3 * LIMIT // 8192 + 1, 0)


@covers("T43")
async def test_of_a_flood_of_progress_of_a_program_the_newest_is_heard(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}'
    few, many = [len((await flooded(yard, line, count, monkeypatch))[0]) for count in (2000, 4000)]
    assert (few < 1500, many < 2000) == (True, True)


async def test_a_notification_of_a_program_that_is_too_large_is_passed_over(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, _, _ = await flooded(yard, said(2 * LARGEST), 3, monkeypatch)
    assert len(heard) == 1


async def _soon(taken: Taken) -> Taken:
    return taken
