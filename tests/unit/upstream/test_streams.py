"""What a server says besides answers: on the stream of a call, and on the GET stream of the session."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from helpers.recording_listener import RecordingListener
from helpers.server import Hold, ScriptedServer, Turn, elsewhere, event, note, open_stream, progress_note, stream
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.upstream.legacy import event_streams
from taskgate.upstream.notification_limits import MESSAGES

QUESTIONS = {
    "ping": ({"jsonrpc": "2.0", "id": "q", "method": "ping"}, {"jsonrpc": "2.0", "id": "q", "result": {}}),
    "sampling": (
        {"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": -32601, "message": "Method not found"}},
    ),
}


async def test_progress_on_a_calls_own_stream_reaches_it(server: ScriptedServer, caller) -> None:
    server.script["steps"] = stream({"content": []}, progress=3)
    assert (await caller.call("steps", progress=True)).error is None
    assert [on_notification.params["progress"].value for on_notification in caller.heard.call] == [1, 2, 3]
    assert "response opened" in caller.heard.streams
    assert "response ended" in caller.heard.streams


async def test_progress_on_the_get_stream_reaches_the_call_with_its_token(server: ScriptedServer, caller) -> None:
    server.script["slow"] = hold = Hold()
    other = Hold()
    server.script["other"] = other
    ear = RecordingListener()
    calls = [
        asyncio.create_task(caller.call("slow", progress=True)),
        asyncio.create_task(caller.run("other", ear=ear)),
    ]
    async with bounded():
        await asyncio.gather(hold.begun.wait(), other.begun.wait())
        foreign = [progress_note(other.turns[0].token, 8), progress_note("text", 8), progress_note(999, 8)]
        await server.push(*foreign, progress_note(hold.turns[0].token, 1))
        await eventually(lambda: caller.heard.call)
        for one in (hold, other):
            one.release({"content": []})
        await asyncio.gather(*calls)
    assert [on_notification.params["progress"].value for on_notification in caller.heard.call] == [1]
    assert [on_notification.params["progress"].value for on_notification in ear.notifications] == [8]


async def says_first_on_the_get_stream(turn: Turn) -> web.StreamResponse:
    """The head of an answer, then progress on the GET stream, then the answer: nothing is awaited between."""
    response = await open_stream(turn.request)
    await turn.server.push(*(progress_note(turn.token, number) for number in (1, 2, 3)))
    await response.write(event(turn.answer({"content": []})))
    await response.write_eof()
    return response


async def test_progress_on_the_get_stream_comes_before_the_answer_that_was_said_after_it(
    server: ScriptedServer, caller
) -> None:
    server.script["steps"] = says_first_on_the_get_stream
    await caller.session.open()
    await server.streaming()
    for _ in range(3):
        assert (await caller.call("steps", progress=True)).error is None
        assert [on_notification.params["progress"].value for on_notification in caller.heard.call] == [1, 2, 3]
        caller.heard.call.clear()


async def test_a_call_that_is_let_go_of_while_its_progress_is_heard_has_its_answer(
    server: ScriptedServer, caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def never(_: object) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(event_streams.ServerStream, "catch_up", never)
    server.script["steps"] = says_first_on_the_get_stream
    await caller.session.open()
    await server.streaming()
    call = asyncio.create_task(caller.call("steps", progress=True))
    async with bounded():
        await begun.wait()
        await caller.session.close()
        assert (await call).result.value == {"content": []}
    assert server.cancelled == []


async def test_a_get_stream_that_is_read_slowly_holds_no_answer_up(
    server: ScriptedServer, new_caller_of: Callable[..., Any]
) -> None:
    more, caller = MESSAGES.burst * 2, new_caller_of(server.url, max_result=2**22)
    await caller.session.open()
    await server.streaming()
    await server.push(event(note("notifications/message", level="info", data=1)) * more)
    await eventually(lambda: len(caller.heard.session) >= MESSAGES.burst)
    assert (await caller.call(progress=True)).error is None
    assert len(caller.heard.session) < more


async def test_progress_of_an_ended_call_is_dropped(server: ScriptedServer, caller) -> None:
    await caller.call(progress=True)
    token = server.heard("tools/call")[0]["params"]["_meta"]["progressToken"]
    await server.push(progress_note(token, 1), note("notifications/message", level="info", data="after"))
    await eventually(lambda: caller.heard.session)
    assert caller.heard.call == []


async def test_the_get_stream_stands_before_the_first_call_leaves(server: ScriptedServer, caller) -> None:
    await caller.call()
    verbs = [(request.verb, (request.message or {}).get("method")) for request in server.requests]
    assert verbs.index(("GET", None)) < verbs.index(("POST", "tools/call"))


async def test_a_server_that_never_begins_its_stream_delays_nobody_for_long(server: ScriptedServer, caller) -> None:
    async def silent(_: web.Request) -> web.StreamResponse:
        return await asyncio.get_running_loop().create_future()

    server.get = silent
    async with bounded(2):
        assert (await caller.call()).error is None


@pytest.mark.parametrize("place", ["call", "get"])
@pytest.mark.parametrize(("question", "reply"), QUESTIONS.values(), ids=QUESTIONS)
async def test_a_question_of_the_server_is_answered_at_once(
    server: ScriptedServer, caller, place: str, question, reply
) -> None:
    server.script["asks"] = stream({"content": []}, before=[question])
    if place == "call":
        await caller.call("asks")
    else:
        await caller.session.open()
        await server.streaming()
        await server.push(question)
    await eventually(lambda: server.replies)
    assert server.replies == [reply]


async def test_an_answer_on_the_get_stream_is_an_answer(server: ScriptedServer, caller) -> None:
    server.script["else"] = elsewhere({"content": [], "n": 1})
    await caller.session.open()
    await server.streaming()
    async with bounded():
        response = await caller.call("else")
    assert response.result.value == {"content": [], "n": 1}
    await caller.session.close()
    assert server.cancelled == []


@covers("T23")
async def test_an_answer_to_another_call_is_passed_over(server: ScriptedServer, caller) -> None:
    foreign = [{"jsonrpc": "2.0", "id": id_, "result": {"content": ["wrong"]}} for id_ in (999, "3", "x")]
    server.script["odd"] = stream({"content": ["right"]}, before=foreign)
    assert (await caller.call("odd")).result.value == {"content": ["right"]}


async def test_the_first_of_two_answers_wins(server: ScriptedServer, caller) -> None:
    async def twice(turn) -> web.StreamResponse:
        before = [turn.answer({"content": ["first"]})]
        return await stream({"content": ["second"]}, before=before)(turn)

    server.script["twice"] = twice
    assert (await caller.call("twice")).result.value == {"content": ["first"]}


async def test_a_broken_get_stream_is_opened_again(server: ScriptedServer, caller) -> None:
    await caller.session.open()
    await server.streaming()
    server.cut_streams()
    await eventually(lambda: len(server.verbs("GET")) == 2)
    await server.streaming()
    await server.push(note("notifications/message", level="info", data="again"))
    await eventually(lambda: caller.heard.session)
    assert caller.heard.streams == ["get opened", "get ended", "get opened"]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between streams, none of which is waited for."""
    taken: list[float] = []
    at_once = asyncio.sleep

    async def remember(seconds: float) -> None:
        if seconds >= event_streams.PAUSE_FIRST / 2:
            taken.append(seconds)
        await at_once(0)

    monkeypatch.setattr(asyncio, "sleep", remember)
    return taken


async def ends_at_once(request: web.Request) -> web.StreamResponse:
    """A stream with nothing on it."""
    response = await open_stream(request)
    await response.write_eof()
    return response


async def test_pauses_between_streams_double_up_to_a_limit(server: ScriptedServer, caller, pauses: list[float]) -> None:
    server.get = ends_at_once
    await caller.session.open()
    await eventually(lambda: len(pauses) >= 11)
    wholes = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    shares = [pause / whole for pause, whole in zip(pauses, wholes, strict=False)]
    assert all(0.5 <= share <= 1 for share in shares)
    assert all(abs(one - next_one) > 0.001 for one, next_one in pairwise(shares))


async def test_sessions_that_lost_their_streams_together_come_back_apart(
    server: ScriptedServer, new_caller_of: Callable, pauses: list[float]
) -> None:
    server.get = ends_at_once
    seen: list[list[float]] = []
    for _ in range(20):
        caller = new_caller_of(server.url)
        pauses.clear()
        await caller.session.open()
        await eventually(lambda: len(pauses) >= 3)
        await caller.session.close()
        seen.append(pauses[:3])
    for turn in zip(*seen, strict=True):
        assert max(turn) / min(turn) > 1.5


async def test_a_session_takes_the_same_pauses_every_time(
    server: ScriptedServer, new_caller_of: Callable, pauses: list[float]
) -> None:
    server.get = ends_at_once
    seen: list[list[float]] = []
    for _ in range(2):
        server.sessions_opened = 0
        caller = new_caller_of(server.url)
        pauses.clear()
        await caller.session.open()
        await eventually(lambda: len(pauses) >= 5)
        await caller.session.close()
        seen.append(pauses[:5])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("code", [408, 409, 429, 500, 503])
async def test_a_refusal_of_the_moment_is_no_end_of_the_stream(
    server: ScriptedServer, caller, pauses: list[float], code: int
) -> None:
    refused = 0

    async def later(request: web.Request) -> web.StreamResponse:
        nonlocal refused
        if refused < 3:
            refused += 1
            return web.Response(status=code)
        server.get = None
        return await ends_at_once(request)

    server.get = later
    await caller.session.open()
    await server.streaming()
    await server.push(note("notifications/message", level="info", data="at last"))
    await eventually(lambda: caller.heard.session)
    assert len(pauses) == 4
    assert caller.heard.lost == 0


@pytest.mark.parametrize("code", [400, 404, 405, 501])
async def test_a_server_without_a_get_stream_is_not_asked_again(
    server: ScriptedServer, caller, pauses: list[float], code: int
) -> None:
    async def none(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code)

    server.get = none
    await caller.session.open()
    for _ in range(5):
        assert (await caller.call()).error is None
    assert len(server.verbs("GET")) == 1
    assert pauses == []
    assert caller.heard.lost == 0


async def test_garbage_on_the_get_stream_is_passed_over(server: ScriptedServer, caller) -> None:
    await caller.session.open()
    await server.streaming()
    await server.push(b"data: {\n\n", b"event: other\ndata: x\n\n", note("notifications/message", level="info", data=1))
    await eventually(lambda: caller.heard.session)
    assert len(server.verbs("GET")) == 1


async def test_the_get_stream_ends_with_the_session(server: ScriptedServer, caller) -> None:
    await caller.session.open()
    await server.streaming()
    await caller.session.close()
    assert caller.heard.streams == ["get opened", "get ended"]
    await eventually(lambda: not server.open_streams)


async def test_a_flood_of_questions_is_not_answered_without_end(server: ScriptedServer, caller) -> None:
    questions = [event({"jsonrpc": "2.0", "id": number, "method": "ping"}) for number in range(500)]
    server.script["floods"] = stream({"content": []}, before=[b"".join(questions)])
    await caller.call("floods")
    await caller.session.close()
    assert 0 < len(server.replies) < 250


@covers("T43")
async def test_a_notification_that_is_too_large_is_passed_over_and_its_call_goes_on(
    server: ScriptedServer, new_caller_of: Callable[..., Any]
) -> None:
    lines = [note("notifications/message", level="info", data="x" * size) for size in (2**17, 10)]
    server.script["logs"] = stream({"content": []}, before=[event(each) for each in lines])
    caller = new_caller_of(server.url, max_result=2**20)
    assert (await caller.call("logs")).error is None
    assert [on_notification.params["data"].value for on_notification in caller.heard.call] == ["x" * 10]
