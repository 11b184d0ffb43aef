"""The transport over lines by itself: refusals of servers, and bounds."""

import asyncio
from datetime import timedelta

import pytest

from helpers.departing import Departing
from helpers.server import error, note, progress_note
from helpers.server.in_process import ScriptedChannels
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.duplex.base import ChannelRefusal, ChannelUnavailable
from taskgate.upstream.duplex.pending import Receipt
from taskgate.upstream.duplex.session import ChannelSession
from taskgate.upstream.duplex.transport import ChannelTransport
from unit.upstream.duplex.conftest import seconds
from unit.upstream.duplex.sent import CALL, HELLO, begun, greeted, post, read


async def test_an_answer_comes_as_a_document_and_after_progress_as_a_stream(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    session = await begun(transport)
    incoming = await session.ask(post(CALL % 2))
    assert (incoming.streams, len(await read(incoming))) == (False, 1)
    program.silent.add("tools/call")
    sending = asyncio.create_task(session.ask(post(CALL % 3)))
    line, asked = await program.asked("tools/call", 2)
    line.say(progress_note(3, 1))
    incoming = await sending
    line.answer(asked, {})
    assert (incoming.streams, len(await read(incoming))) == (True, 2)
    assert (incoming.last_event, incoming.retry) == (None, None)


async def test_a_session_that_was_ended_sends_nothing(transport: ChannelTransport, program: ScriptedChannels) -> None:
    session = await begun(transport)
    listening = session.listen()
    session.end()
    assert await read(listening) == []
    with pytest.raises(UpstreamFailed, match="The server ended the session") as failed:
        await session.ask(post(CALL % 2))
    assert (failed.value.reason, failed.value.dispatched) == ("session_lost", False)
    assert program.lines[0].holders == 0


async def test_the_end_of_a_session_is_the_end_of_what_is_under_way_in_it(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    session = await begun(transport)
    program.silent.add("tools/call")
    sending = asyncio.create_task(session.ask(post(CALL % 2)))
    line, _ = await program.asked("tools/call")
    for question in ("q", "r"):
        line.say({"jsonrpc": "2.0", "id": question, "method": "roots/list"})
    await session.send(post(b'{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}'))
    session.end()
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await sending
    assert (failed.value.reason, failed.value.dispatched) == ("closed", True)
    await program.asked("notifications/cancelled")
    await eventually(lambda: [each for each in line.heard if each.get("id") == "r"])
    assert [each for each in line.heard if each.get("id") == "q"] == [
        {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}
    ]


async def test_whoever_speaks_in_a_session_whose_line_is_lost_is_told_why_and_so_is_its_stream(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    session = await begun(transport)
    listening = session.listen()
    program.lines[0].say(note("notifications/tools/list_changed"))
    program.lines[0].exit("The server's process exited with status 3")
    assert b"list_changed" in await anext(listening)
    with pytest.raises(UpstreamFailed, match="The server's process exited with status 3") as failed:
        await anext(listening)
    listening.release()
    assert (failed.value.reason, failed.value.dispatched) == ("session_lost", False)
    for _ in range(2):
        with pytest.raises(UpstreamFailed, match="The server's process exited with status 3") as failed:
            await session.ask(post(CALL % 2))
        assert (failed.value.reason, failed.value.dispatched) == ("session_lost", False)


async def test_messages_without_an_answer_are_taken(transport: ChannelTransport, program: ScriptedChannels) -> None:
    session = await begun(transport)
    confirmed = post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    for outgoing in (confirmed, confirmed, post(b'{"jsonrpc":"2.0","id":"q","result":{}}')):
        assert (await session.send(outgoing)).status == 202
    assert program.lines[0].methods() == ["initialize", "notifications/initialized"]


@pytest.mark.parametrize(
    "how", [503, UpstreamFailed(UpstreamReason.CLOSED, "The line broke", dispatched=True)], ids=str
)
async def test_a_handshake_that_is_not_taken_fails_everybody_who_waits_for_the_welcome(
    transport: ChannelTransport, program: ScriptedChannels, how: int | UpstreamFailed
) -> None:
    taking = program.holds = asyncio.Event()
    program.silent.add("initialize")
    first = asyncio.create_task(greeted(transport))
    line, _ = await program.asked("initialize")
    second = asyncio.create_task(transport.open(post(HELLO.replace(b'"id":1', b'"id":2')), lambda _: None))
    await eventually(lambda: line.holders == 2)
    line.status = how
    taking.set()
    async with bounded():
        with pytest.raises(UpstreamFailed, match="The line broke" if isinstance(how, UpstreamFailed) else "503"):
            await second
        if isinstance(how, int):
            assert (await first)[0].status == how
        else:
            with pytest.raises(UpstreamFailed, match="The line broke"):
                await first
        line.status = 202
        program.silent.clear()
        await begun(transport)
    assert line.methods() == ["initialize", "initialize"]


async def test_progress_of_what_was_answered_already_is_heard_beside_answers(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    # As of a task that the server made of the call.
    session = await begun(transport)
    await read(await session.ask(post(CALL % 2)))
    listening = session.listen()
    program.lines[0].say(progress_note(2, 1))
    async with bounded():
        assert b"progressToken" in await anext(listening)
    listening.release()


async def test_a_refusal_of_the_handshake_gives_no_session(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    program.methods["initialize"] = error(-32602, "no")
    incoming, sessions = await greeted(transport)
    assert (incoming.status, sessions) == (200, [])
    assert b"-32602" in (await read(incoming))[0]
    assert program.lines[0].holders == 0


async def test_a_line_that_is_refused_with_a_status_is_answered_with_it(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    program.refuses = ChannelUnavailable(ChannelRefusal(401, timedelta(seconds=7)))
    sessions: list[ChannelSession] = []
    assert await transport.open(post(HELLO), sessions.append) == Receipt(401, timedelta(seconds=7))
    assert not sessions


@pytest.mark.parametrize("status", [400, 404, 503])
async def test_a_message_that_is_refused_loses_nothing(
    transport: ChannelTransport, program: ScriptedChannels, status: int
) -> None:
    """Whether the server knows the session is asked by whoever has it."""
    session = await begun(transport)
    program.lines[0].status = status
    incoming = await session.ask(post(CALL % 2))
    assert (incoming.status, incoming.streams, await read(incoming)) == (status, False, [])
    program.lines[0].status = 202
    assert (await session.ask(post(CALL % 3))).status == 200
    assert not program.lines[0].was_dropped


async def test_a_line_that_cannot_be_written_to_fails_the_request_alone(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    session = await begun(transport)
    failure = UpstreamFailed(UpstreamReason.CLOSED, "The line broke", dispatched=False)
    program.lines[0].status = failure
    with pytest.raises(UpstreamFailed, match="The line broke"):
        await session.ask(post(CALL % 2))
    assert program.lines[0].ears is not None
    assert program.lines[0].ears.in_flight == 0


async def test_the_first_byte_tells_that_a_request_has_left(transport: ChannelTransport) -> None:
    session = await begun(transport)
    left: list[bool] = []
    await read(await session.ask(post(CALL % 2, call=Departing(lambda: left.append(True)))))
    assert left == [True]


@pytest.mark.parametrize("acknowledges", [False, True])
async def test_silence_is_borne_as_long_as_the_request_says(*, acknowledges: bool) -> None:
    program = ScriptedChannels(acknowledges=acknowledges)
    transport = ChannelTransport(program)
    session = await begun(transport)
    program.silent.add("tools/call")
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await session.ask(post(CALL % 2, first_byte=seconds(0.02)))
        assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)
        sending = asyncio.create_task(session.ask(post(CALL % 3, idle=seconds(0.02))))
        line, _ = await program.asked("tools/call", 2)
        line.say(progress_note(3, 1))
        incoming = await sending
        with pytest.raises(UpstreamFailed) as failed:
            await read(incoming)
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)
    assert line.ears is not None
    assert line.ears.in_flight == 0
    await transport.close()
