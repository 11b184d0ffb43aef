"""The transport over lines where a server takes messages slowly, nobody reads what it says, and at its end."""

import asyncio

import pytest

from helpers.server import note, progress_note
from helpers.server.in_process import ScriptedChannels
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.duplex.pending import MAX_UNREAD
from taskgate.upstream.duplex.session import MAX_BUFFERED_MESSAGES, UNUSED_TIMEOUT
from taskgate.upstream.duplex.transport import ChannelTransport
from taskgate.upstream.failures import Unwelcome
from unit.upstream.duplex.conftest import seconds
from unit.upstream.duplex.sent import CALL, MODERN, begun, greeted, post, read

# --- lines whose server says that it took a message


async def test_an_answer_counts_before_the_message_is_taken_and_a_refusal_after_progress_fails() -> None:
    program = ScriptedChannels(acknowledges=True)
    transport = ChannelTransport(program)
    opened = await begun(transport)
    line = program.lines[0]
    line.taking = asyncio.Event()
    async with bounded():
        assert len(await read(await opened.ask(post(CALL % 2)))) == 1
        program.silent.add("tools/call")
        sending = asyncio.create_task(opened.ask(post(CALL % 3)))
        await program.asked("tools/call", 2)
        line.say(progress_note(3, 1))
        incoming = await sending
        line.status = 500
        line.taking.set()
        with pytest.raises(UpstreamFailed) as failed:
            await read(incoming)
    assert (failed.value.reason, failed.value.dispatched) == ("refused", True)
    await transport.close()


async def test_whoever_stops_waiting_takes_back_a_message_that_is_not_taken_yet() -> None:
    program = ScriptedChannels(acknowledges=True)
    transport = ChannelTransport(program)
    opened = await begun(transport)
    line = program.lines[0]
    line.taking = asyncio.Event()
    program.silent.add("tools/call")
    sending = asyncio.create_task(opened.ask(post(CALL % 3)))
    await program.asked("tools/call")
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await eventually(lambda: line.taken_back)
    assert line.ears is not None
    assert line.ears.in_flight == 0
    await transport.close()


async def test_the_end_of_the_lines_gives_up_what_is_still_being_sent() -> None:
    program = ScriptedChannels(acknowledges=True)
    transport = ChannelTransport(program)
    opened = await begun(transport)
    line = program.lines[0]
    line.taking = asyncio.Event()
    await read(await opened.ask(post(CALL % 2)))
    await transport.close()
    assert line.taken_back == 1


async def test_a_request_has_its_time_for_a_line_too(transport: ChannelTransport, program: ScriptedChannels) -> None:
    program.taking = asyncio.Event()
    bound = seconds(0.02)
    for sending in (
        greeted(transport, first_byte=bound),
        transport.send(post(CALL % 1, first_byte=bound, headers=MODERN)),
    ):
        async with bounded():
            with pytest.raises(UpstreamFailed) as failed:
                await sending
        assert (failed.value.reason, failed.value.dispatched) == ("timeout", False)


# --- what nobody reads


async def test_what_is_not_read_stops_the_line_and_reading_it_lets_it_go_on(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    opened = await begun(transport)
    program.silent.add("tools/call")
    sending = asyncio.create_task(opened.ask(post(CALL % 2)))
    line, asked = await program.asked("tools/call")
    line.say({**progress_note(2, 1), "more": "x" * (MAX_UNREAD // 2)})
    incoming = await sending
    assert not line.is_paused
    line.say({**progress_note(2, 2), "more": "x" * (MAX_UNREAD // 2)})
    assert line.is_paused
    await anext(incoming)
    assert line.is_paused
    await anext(incoming)
    assert not line.is_paused
    line.answer(asked, {"content": "x" * MAX_UNREAD})
    assert line.is_paused
    incoming.release()
    assert not line.is_paused


async def test_a_session_that_does_not_listen_is_told_so_much_and_no_more(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    opened = await begun(transport)
    (line,) = program.lines
    line.say(*(note("notifications/message", data=turn) for turn in range(MAX_BUFFERED_MESSAGES)))
    line.say({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
    await eventually(lambda: [each for each in line.heard if each.get("id") == "q" and "error" in each])
    listening = opened.listen()
    async with bounded():
        assert all([b'"data": %d' % turn in await anext(listening) for turn in range(MAX_BUFFERED_MESSAGES)])
    listening.release()


async def test_whoever_listens_anew_takes_the_stream_over(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    opened = await begun(transport)
    first = opened.listen()
    hearing = asyncio.create_task(read(first))
    await asyncio.sleep(0)
    second = opened.listen()
    program.lines[0].say(note("notifications/tools/list_changed"))
    async with bounded():
        assert await hearing == []
        assert b"list_changed" in await anext(second)
    second.release()


async def test_a_session_that_nobody_hears_any_more_ends_by_itself(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    opened = await begun(transport)
    opened.listen().release()
    await asyncio.sleep(UNUSED_TIMEOUT - 1)
    assert program.lines[0].holders == 1
    await asyncio.sleep(1)
    assert program.lines[0].holders == 0
    with pytest.raises(UpstreamFailed, match="The server ended the session"):
        await opened.ask(post(CALL % 2))


async def test_a_session_that_is_heard_again_does_not_end(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    opened = await begun(transport)
    opened.listen().release()
    listening = opened.listen()
    await asyncio.sleep(2 * UNUSED_TIMEOUT)
    assert program.lines[0].holders == 1
    listening.release()


async def test_a_session_at_work_does_not_end_for_being_unheard(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    opened = await begun(transport)
    program.silent.add("tools/call")
    sending = asyncio.create_task(opened.ask(post(CALL % 2)))
    line, asked = await program.asked("tools/call")
    opened.listen().release()
    await asyncio.sleep(2 * UNUSED_TIMEOUT)
    assert line.holders == 1
    line.answer(asked, {})
    assert len(await read(await sending)) == 1
    await asyncio.sleep(UNUSED_TIMEOUT)
    assert line.holders == 0


# --- the end, and what is not spoken


async def test_the_end_of_the_lines_fails_what_is_under_way(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    opened = await begun(transport)
    program.silent.add("tools/call")
    sending = asyncio.create_task(opened.ask(post(CALL % 2)))
    await program.asked("tools/call")
    await transport.close()
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await sending
    assert (failed.value.reason, failed.value.dispatched) == ("closed", True)


async def test_lines_of_the_other_era_alone_know_nothing_of_the_modern_one(program: ScriptedChannels) -> None:
    transport = ChannelTransport(program, is_modern=False)
    discover = b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}'
    with pytest.raises(Unwelcome, match="HTTP status 404"):
        await transport.send(post(discover, headers=MODERN))
    assert not program.lines
    await transport.close()


# --- what is said beside answers


async def test_a_line_is_told_of_answers_to_what_was_asked_and_of_nothing_else() -> None:
    program = ScriptedChannels()
    transport = ChannelTransport(program)
    opened = await begun(transport)
    line = program.lines[0]
    before = line.excused
    assert before > 0
    program.silent.add("tools/call")
    answers = [b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % number for number in (2, 3, 9)]
    async with bounded():
        waited_for, given_up = [await _sent(transport, program, opened, number) for number in (2, 3)]
        given_up.cancel()
        await asyncio.wait([given_up])
        line.say(progress_note(2, 1), *answers, *answers)
        await waited_for
    assert line.excused - before == len(answers[0]) + len(answers[1])
    await transport.close()


async def _sent(
    transport: ChannelTransport, program: ScriptedChannels, session: str, number: int
) -> "asyncio.Task[object]":
    """A call that its server has."""
    sending = asyncio.create_task(_answer(transport, session, number))
    await program.asked("tools/call", number - 1)
    return sending


async def _answer(transport: ChannelTransport, session: str, number: int) -> object:
    incoming = await session.ask(post(CALL % number))
    try:
        return await read(incoming)
    finally:
        incoming.release()
