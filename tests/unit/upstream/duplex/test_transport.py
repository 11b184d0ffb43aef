"""The transport over lines by itself: statuses as HTTP has them, and bounds."""

import asyncio

import pytest

from helpers.departing import Departing
from helpers.scripted_lines import ScriptedProgram, note, progress
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex import transport as module
from taskgate.upstream.duplex.base import ChannelUnavailable
from taskgate.upstream.duplex.transport import ChannelTransport
from unit.upstream.duplex.conftest import seconds
from unit.upstream.duplex.sent import CALL, HELLO, begun, post, read, stream


async def test_a_session_has_an_id_that_nobody_can_guess_and_a_header_can_hold(transport: ChannelTransport) -> None:
    ids = {await begun(transport) for _ in range(3)}
    assert len(ids) == 3
    assert all(len(id_) >= 32 and id_.isalnum() for id_ in ids)


async def test_an_answer_comes_as_a_document_and_after_progress_as_a_stream(
    transport: ChannelTransport, program: ScriptedProgram
) -> None:
    id_ = await begun(transport)
    incoming = await transport.send(post(CALL % 2, id_))
    assert (incoming.streams, len(await read(incoming))) == (False, 1)
    program.silent.add("tools/call")
    sending = asyncio.create_task(transport.send(post(CALL % 3, id_)))
    line, asked = await program.asked("tools/call", 2)
    line.say(progress(3, 1))
    incoming = await sending
    line.answer(asked, {})
    assert (incoming.streams, len(await read(incoming))) == (True, 2)
    assert (incoming.last_event, incoming.retry, incoming.session) == (None, None, None)


async def test_an_unknown_session_is_not_found(transport: ChannelTransport, program: ScriptedProgram) -> None:
    for outgoing in (post(CALL % 1, "no"), stream("no"), stream("no", "DELETE")):
        assert (await transport.send(outgoing)).status == 404
    assert (await transport.send(Outgoing(verb="GET", headers={}))).status == 405
    assert (await transport.send(post(CALL % 1))).status == 404
    assert (await transport.send(post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}'))).status == 404
    assert not program.lines


async def test_a_session_that_was_ended_is_not_found(transport: ChannelTransport, program: ScriptedProgram) -> None:
    id_ = await begun(transport)
    listening = await transport.send(stream(id_))
    assert (await transport.send(stream(id_, "DELETE"))).status == 200
    assert await read(listening) == []
    assert (await transport.send(post(CALL % 2, id_))).status == 404
    assert program.lines[0].holders == 0
    assert not transport._shared[program.lines[0]].sessions


async def test_the_end_of_a_session_is_the_end_of_what_is_under_way_in_it(
    transport: ChannelTransport, program: ScriptedProgram
) -> None:
    id_ = await begun(transport)
    program.silent.add("tools/call")
    sending = asyncio.create_task(transport.send(post(CALL % 2, id_)))
    line, _ = await program.asked("tools/call")
    for question in ("q", "r"):
        line.say({"jsonrpc": "2.0", "id": question, "method": "roots/list"})
    await transport.send(post(b'{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}', id_))
    await transport.send(stream(id_, "DELETE"))
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
    transport: ChannelTransport, program: ScriptedProgram
) -> None:
    id_ = await begun(transport)
    listening = await transport.send(stream(id_))
    program.lines[0].say(note("notifications/tools/list_changed"))
    program.lines[0].exit("The server's process exited with status 3")
    messages = listening.messages()
    assert b"list_changed" in await anext(messages)
    with pytest.raises(UpstreamFailed, match="The server's process exited with status 3") as failed:
        await anext(messages)
    listening.release()
    assert (failed.value.reason, failed.value.dispatched) == ("session_lost", False)
    for _ in range(2):
        with pytest.raises(UpstreamFailed, match="The server's process exited with status 3") as failed:
            await transport.send(post(CALL % 2, id_))
        assert (failed.value.reason, failed.value.dispatched) == ("session_lost", False)


async def test_how_a_session_was_lost_is_not_remembered_for_ever(
    transport: ChannelTransport, program: ScriptedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_LOST", 1)
    lost = []
    for _ in range(2):
        lost.append(await begun(transport))
        program.lines[-1].exit()
    assert (await transport.send(post(CALL % 2, lost[0]))).status == 404
    with pytest.raises(UpstreamFailed):
        await transport.send(post(CALL % 2, lost[1]))


async def test_messages_without_an_answer_are_taken(transport: ChannelTransport, program: ScriptedProgram) -> None:
    id_ = await begun(transport)
    confirmed = post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', id_)
    for outgoing in (confirmed, confirmed, post(b'{"jsonrpc":"2.0","id":"q","result":{}}', id_)):
        incoming = await transport.send(outgoing)
        assert (incoming.status, await read(incoming)) == (202, [])
    assert program.lines[0].methods() == ["initialize", "notifications/initialized"]


@pytest.mark.parametrize(
    "how", [503, UpstreamFailed(UpstreamReason.CLOSED, "The line broke", dispatched=True)], ids=str
)
async def test_a_handshake_that_is_not_taken_fails_everybody_who_waits_for_the_welcome(
    transport: ChannelTransport, program: ScriptedProgram, how: int | UpstreamFailed
) -> None:
    taking = program.holds = asyncio.Event()
    program.silent.add("initialize")
    first = asyncio.create_task(transport.send(post(HELLO)))
    line, _ = await program.asked("initialize")
    second = asyncio.create_task(transport.send(post(HELLO.replace(b'"id":1', b'"id":2'))))
    await eventually(lambda: line.holders == 2)
    line.status = how
    taking.set()
    async with bounded():
        with pytest.raises(UpstreamFailed, match="The line broke" if isinstance(how, UpstreamFailed) else "503"):
            await second
        if isinstance(how, int):
            assert (await first).status == how
        else:
            with pytest.raises(UpstreamFailed, match="The line broke"):
                await first
        line.status = 202
        program.silent.clear()
        await begun(transport)
    assert line.methods() == ["initialize", "initialize"]


async def test_progress_of_what_was_answered_already_is_heard_beside_answers(
    transport: ChannelTransport, program: ScriptedProgram
) -> None:
    # As of a task that the server made of the call.
    id_ = await begun(transport)
    await read(await transport.send(post(CALL % 2, id_)))
    listening = await transport.send(stream(id_))
    program.lines[0].say(progress(2, 1))
    async with bounded():
        assert b"progressToken" in await anext(listening.messages())
    listening.release()


async def test_a_refusal_of_the_handshake_gives_no_session(
    transport: ChannelTransport, program: ScriptedProgram
) -> None:
    error = {"code": -32602, "message": "no"}
    program.methods["initialize"] = lambda asked: {"jsonrpc": "2.0", "id": asked["id"], "error": error}
    incoming = await transport.send(post(HELLO))
    assert (incoming.status, incoming.session) == (200, None)
    assert b"-32602" in (await read(incoming))[0]
    assert program.lines[0].holders == 0


async def test_a_line_that_is_refused_with_a_status_is_answered_with_it(
    transport: ChannelTransport, program: ScriptedProgram
) -> None:
    program.refuses = ChannelUnavailable(401)
    incoming = await transport.send(post(HELLO))
    assert (incoming.status, incoming.session, await read(incoming)) == (401, None, [])


@pytest.mark.parametrize("status", [400, 404])
async def test_a_server_that_does_not_know_the_line_any_more_loses_it(
    transport: ChannelTransport, program: ScriptedProgram, status: int
) -> None:
    id_ = await begun(transport)
    program.lines[0].status = status
    assert (await transport.send(post(CALL % 2, id_))).status == status
    await eventually(lambda: program.lines[0].is_lost)
    with pytest.raises(UpstreamFailed, match="The line was dropped"):
        await transport.send(post(CALL % 3, id_))


async def test_a_message_that_is_refused_otherwise_loses_nothing(
    transport: ChannelTransport, program: ScriptedProgram
) -> None:
    id_ = await begun(transport)
    program.lines[0].status = 503
    incoming = await transport.send(post(CALL % 2, id_))
    assert (incoming.status, incoming.streams, await read(incoming)) == (503, False, [])
    program.lines[0].status = 202
    assert (await transport.send(post(CALL % 3, id_))).status == 200
    assert not program.lines[0].was_dropped


async def test_a_line_that_cannot_be_written_to_fails_the_request_alone(
    transport: ChannelTransport, program: ScriptedProgram
) -> None:
    id_ = await begun(transport)
    failure = UpstreamFailed(UpstreamReason.CLOSED, "The line broke", dispatched=False)
    program.lines[0].status = failure
    with pytest.raises(UpstreamFailed, match="The line broke"):
        await transport.send(post(CALL % 2, id_))
    assert program.lines[0].ears is not None
    assert program.lines[0].ears.in_flight == 0


async def test_the_first_byte_tells_that_a_request_has_left(transport: ChannelTransport) -> None:
    id_ = await begun(transport)
    left: list[bool] = []
    await read(await transport.send(post(CALL % 2, id_, call=Departing(lambda: left.append(True)))))
    assert left == [True]


@pytest.mark.parametrize("acknowledges", [False, True])
async def test_silence_is_borne_as_long_as_the_request_says(*, acknowledges: bool) -> None:
    program = ScriptedProgram(acknowledges=acknowledges)
    transport = ChannelTransport(program)
    id_ = await begun(transport)
    program.silent.add("tools/call")
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await transport.send(post(CALL % 2, id_, first_byte=seconds(0.02)))
        assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)
        sending = asyncio.create_task(transport.send(post(CALL % 3, id_, idle=seconds(0.02))))
        line, _ = await program.asked("tools/call", 2)
        line.say(progress(3, 1))
        incoming = await sending
        with pytest.raises(UpstreamFailed) as failed:
            await read(incoming)
    assert (failed.value.reason, failed.value.dispatched) == ("timeout", True)
    assert line.ears is not None
    assert line.ears.in_flight == 0
    await transport.close()
