"""What is said beside the calls: all of it, but for what may be dropped."""

import asyncio
from collections.abc import Iterator

import pytest

from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream import failures
from taskgate.upstream.calls import Principal
from taskgate.upstream.legacy.background_posts import MAX_POSTS, PAUSES, BackgroundPosts

ALICE = Principal(context="alice")


class Line:
    """Sends nothing until it may."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.sent: list[str] = []
        self.opens = asyncio.Event()

    async def send(self, message: str, principal: object = None) -> int:
        self.begun.append(message)
        await self.opens.wait()
        if message == "fails":
            raise failures.closed()
        self.sent.append(message)
        return 202


async def test_what_may_be_dropped_is_dropped_while_too_much_is_on_its_way_and_nothing_else() -> None:
    line = Line()
    asides = BackgroundPosts(line.send)
    numbers = [str(number) for number in range(MAX_POSTS + 3)]
    for number in numbers:
        asides.say(number, droppable=True)
    asides.say("answer")
    asides.say("another")
    line.opens.set()
    async with bounded():
        await asides.sent()
    assert line.sent == [*numbers[:MAX_POSTS], "answer", "another"]
    asides.say("later", droppable=True)
    async with bounded():
        await asides.sent()
    assert line.sent[-1] == "later"


async def test_a_message_that_does_not_arrive_troubles_nobody() -> None:
    line = Line()
    line.opens.set()
    asides = BackgroundPosts(line.send)
    asides.say("fails")
    asides.say("arrives")
    async with bounded():
        await asides.sent()
        await asides.sent()
        await asides.drop()
    assert line.sent == ["arrives"]


async def test_what_is_on_its_way_can_be_given_up() -> None:
    line = Line()
    asides = BackgroundPosts(line.send)
    asides.say("stuck")
    await eventually(lambda: line.begun)
    async with bounded():
        await asides.drop()
    line.opens.set()
    async with bounded():
        await asides.sent()
    assert line.sent == []


# --- answers


class Server:
    """Takes each message as it is told to, one after another, and everything after that."""

    def __init__(self, *turns: int | UpstreamFailed) -> None:
        self.turns: Iterator[int | UpstreamFailed] = iter(turns)
        self.heard: list[tuple[str, Principal | None]] = []

    async def send(self, message: str, principal: Principal | None) -> int:
        self.heard.append((message, principal))
        turn = next(self.turns, 202)
        if isinstance(turn, UpstreamFailed):
            raise turn
        return turn


async def answered(server: Server, principal: Principal | None = ALICE) -> None:
    """Answer a server, and wait until that is over."""
    asides = BackgroundPosts(server.send)
    asides.answer("answer", principal)
    async with bounded():
        await asides.sent()


@pytest.mark.parametrize("refusal", [408, 429, 500, 502, 503, 504, "closed", "unreachable"])
async def test_an_answer_that_is_not_taken_for_now_is_sent_again_for_whom_it_is(
    refusal: int | str, caplog: pytest.LogCaptureFixture
) -> None:
    turn = {"closed": failures.closed(), "unreachable": failures.unreachable()}.get(str(refusal), refusal)
    assert not isinstance(turn, str)
    server = Server(turn, turn)
    await answered(server)
    assert server.heard == [("answer", ALICE)] * 3
    assert caplog.records == []


@pytest.mark.parametrize("turn", [200, 202, 400, 401, 404, failures.session_lost()])
async def test_an_answer_that_is_taken_or_refused_for_good_is_sent_once(
    turn: int | UpstreamFailed, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(turn)
    await answered(server, None)
    assert server.heard == [("answer", None)]
    assert caplog.records == []


async def test_an_answer_that_is_never_taken_is_given_up_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    loop, server = asyncio.get_running_loop(), Server(*[503] * (len(PAUSES) + 1))
    began = loop.time()
    await answered(server)
    assert loop.time() - began >= sum(PAUSES)
    assert server.heard == [("answer", ALICE)] * (len(PAUSES) + 1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "could not be delivered" in caplog.text


async def test_what_is_no_answer_is_sent_once_whatever_comes_of_it() -> None:
    server = Server(503)
    asides = BackgroundPosts(server.send)
    asides.say("note")
    async with bounded():
        await asides.sent()
    assert server.heard == [("note", None)]


async def test_an_answer_is_not_dropped_however_much_is_on_its_way_and_can_be_given_up_between_tries() -> None:
    server, line = Server(503), Line()
    crowded = BackgroundPosts(line.send)
    for number in range(MAX_POSTS):
        crowded.say(str(number))
    crowded.answer("answer", None)
    line.opens.set()
    async with bounded():
        await crowded.sent()
    assert line.sent[-1] == "answer"
    asides = BackgroundPosts(server.send)
    asides.answer("answer", None)
    await eventually(lambda: server.heard)
    async with bounded():
        await asides.drop()
    assert len(server.heard) == 1
