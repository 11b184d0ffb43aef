"""How a call ends, or is left, that another process made, and whose session is ended with it."""

import asyncio
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from aiohttp import web

from helpers.manual_clock import SeededEntropy
from helpers.recording_listener import RecordingListener
from helpers.server import LastingTool, ScriptedServer
from helpers.upstream_calls import task_call
from helpers.waiting import bounded, eventually
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.upstream import failures
from taskgate.upstream.calls import Resumed, ResumePoint
from taskgate.upstream.context import LARGEST_ID, request_ids
from taskgate.upstream.legacy import event_streams
from unit.upstream.adopting import DONE, LONG, Before, after, before, going_on, gone, tool
from unit.upstream.asking import question
from unit.upstream.conftest import EVERYTHING, Caller, new_caller
from unit.upstream.eras import arrived

__all__ = ["after", "before", "tool"]


async def test_whoever_cancels_what_they_took_over_has_it_cancelled_at_the_server(
    server: ScriptedServer, before: Before, after: Caller
) -> None:
    outcome = going_on(after, Resumed(before.resume_point, {}))
    await before.call.listened_to(2)
    outcome.cancel()
    await asyncio.wait((outcome,))
    await eventually(lambda: server.cancelled)
    assert server.cancelled == [before.call.turn.id]


async def test_a_call_that_is_left_is_neither_cancelled_nor_is_its_session_ended_nor_its_question_answered(
    server: ScriptedServer, before: Before
) -> None:
    await server.streaming()
    await server.push(question("q"))
    await eventually(lambda: before.ear.questions)
    before.ear.leaves = True
    before.calling.cancel()
    await asyncio.wait((before.calling,))
    await before.caller.session.close()
    assert (server.cancelled, server.verbs("DELETE"), server.replies) == ([], [], [])


async def test_a_call_that_is_left_before_its_server_has_made_a_task_of_it_is_left_all_the_same(
    server: ScriptedServer, tool: LastingTool
) -> None:
    """Who goes on with it hears of the task."""
    server.capabilities = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
    server.tools = [{"name": "long", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}]
    caller, ear = new_caller(server.url, EVERYTHING), RecordingListener()
    calling = asyncio.create_task(caller.run("long", ear=ear))
    call = await tool.called()
    assert "task" in call.turn.message["params"]
    await eventually(lambda: ear.resume_points)
    ear.leaves = True
    calling.cancel()
    await asyncio.wait((calling,))
    await caller.close()
    assert (server.cancelled, server.verbs("DELETE"), server.heard("tasks/cancel")) == ([], [], [])


@pytest.mark.parametrize("last", [True, False])
async def test_the_last_of_those_who_go_on_in_a_session_ends_it_where_nobody_else_does(
    server: ScriptedServer, before: Before, after: Caller, last: bool
) -> None:
    asked: list[str] = []

    async def is_last() -> bool:
        asked.append("once")
        return last

    other = after.upstream.session(after.heard.of_session, lambda: pytest.fail("nobody is shown"), EVERYTHING)
    resumed = Resumed(before.resume_point, {}, is_last, "anybody")
    calls = [going_on(after, resumed)]
    await before.call.listened_to(2)
    within, ear = timedelta(seconds=60), RecordingListener()
    second = resumed._replace(resume_point=before.resume_point._replace(request=-1))
    waiting = asyncio.create_task(other.call(task_call("long", "{}", within, resumes=second), ear))
    await before.call.listened_to(3)
    before.call.answer(DONE)
    async with bounded():
        await asyncio.gather(*calls)
    await after.session.close()
    assert (server.verbs("DELETE"), asked) == ([], [])
    # They share what belongs to the session, and its own stream was opened once more.
    assert len([get for get in server.verbs("GET") if "last-event-id" not in get.headers]) == 2
    waiting.cancel()
    await asyncio.wait((waiting,))
    await other.close()
    assert (len(server.verbs("DELETE")), asked) == (int(last), ["once"])


@pytest.mark.parametrize("other", [{"revision": "1.0"}, {"revision": None}, {"event": None}, {"request": None}])
async def test_what_is_no_place_of_a_stream_is_gone(before: Before, after: Caller, other: dict[str, Any]) -> None:
    failure = await gone(after, before.resume_point._replace(**other))
    assert isinstance(failure, failures.Gone)
    assert failure.dispatched


@pytest.mark.parametrize("how", ["session", "event"])
async def test_a_server_that_knows_nothing_of_the_call_any_more_is_asked_once(
    server: ScriptedServer, tool: LastingTool, before: Before, after: Caller, how: str
) -> None:
    if how == "session":
        server.forget_sessions()
    else:
        tool.forgets = True
    failure = await gone(after, before.resume_point)
    assert isinstance(failure, failures.Gone)
    assert failure.dispatched
    assert len(server.heard("tools/call")) == 1


async def test_a_stream_that_another_connection_has_is_waited_for(
    server: ScriptedServer, tool: LastingTool, before: Before, after: Caller
) -> None:
    """A server notices only after a while that whoever had it is gone."""
    goes_on, tries = tool.resume, 0

    async def taken(request: Any) -> Any:
        nonlocal tries
        tries += 1
        return await goes_on(request) if tries > 2 * event_streams.MAX_FAILURES else web.Response(status=409)

    server.resume = taken
    before.call.answer(DONE)
    async with bounded(LONG):
        assert (await going_on(after, Resumed(before.resume_point, {}))).error is None


async def test_a_call_that_its_server_refused_for_a_visit_is_gone(server: ScriptedServer, before: Before) -> None:
    """Whether it was made again after the visit nobody knows."""
    after = new_caller(
        server.url, Peer(revision=Revision.R2026_07_28, capabilities={"elicitation": {"url": {}}}, info={})
    )
    request_context = {"mode": "url", "elicitationId": "e", "url": "https://x.example.com/", "message": "Pay"}
    refusal = {"code": -32042, "message": "first", "data": {"elicitations": [request_context]}}
    before.call.say({"jsonrpc": "2.0", "id": before.call.turn.id, "error": refusal})
    failure = await gone(after, before.resume_point)
    assert isinstance(failure, failures.Gone)
    await after.close()


async def test_what_fails_on_the_way_may_have_run_and_has_more_time_than_a_stream_that_was_heard_here(
    server: ScriptedServer, before: Before, after: Caller
) -> None:
    """Whatever ended the gateway may have ended the server, too, and both come back."""
    loop = asyncio.get_running_loop()
    await server.stop()
    began = loop.time()
    assert (await gone(after, before.resume_point)).dispatched
    # At once, and then after pauses that double up to half a minute.
    assert loop.time() - began == pytest.approx(1 + 2 + 4 + 8 + 16 + 4 * 30, abs=5)


def test_ids_of_a_process_begin_at_random_and_fit_32_bits() -> None:
    entropy = SeededEntropy(7)
    ids = sorted(next(request_ids(entropy)) for _ in range(2000))
    assert 0 < ids[0] < 2**23
    assert 2**31 - 2**23 < ids[-1] < 2**31
    assert len(set(ids)) > 1990


def test_after_the_largest_id_comes_the_first() -> None:
    class Last:
        """The entropy of which the largest first id is made."""

        def token(self, size: int) -> bytes:
            return (LARGEST_ID - 1).to_bytes(size)

    assert list(islice(request_ids(Last()), 3)) == [LARGEST_ID, 1, 2]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_call_is_gone_on_with_in_the_era_that_it_was_made_in_and_nothing_is_found_out_before(
    plain: ScriptedServer, anew, revision: str
) -> None:
    session, ear = anew().session, RecordingListener()
    resumed = Resumed(ResumePoint(revision=revision), {})
    with pytest.raises(UpstreamFailed) as failed:
        await session.call(
            task_call("echo", "{}", timedelta(seconds=20), resumes=resumed),
            ear,
        )
    assert isinstance(failed.value, failures.Gone)
    assert (arrived(plain), session.era) == ([], Era.MODERN if revision == "2026-07-28" else Era.LEGACY)
    await session.close()
