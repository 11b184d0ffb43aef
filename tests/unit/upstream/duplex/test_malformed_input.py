"""What is not one message: taken apart, told whose answer it would have been, and taken for no more."""

import asyncio
import threading
from typing import Any

import pytest

from helpers.server import note, sends
from helpers.server.in_process import ScriptedChannels
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.duplex import peek
from taskgate.upstream.duplex.peek import MOST_PARTS, answered_by, parts_of, reports_parse_error
from taskgate.upstream.duplex.transport import ChannelTransport
from unit.upstream.duplex.sent import CALL, begun, greeted, post, read
from unit.upstream.houses import House

UNREAD = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}'


def test_an_array_is_its_elements_as_they_are_written() -> None:
    assert parts_of(b' [{"a": 1} ,2, [3]]') == [b'{"a": 1}', b"2", b"[3]"]
    for none in (b"[]", b"{}", b"[1", b"42", b"[\xff]"):
        assert parts_of(none) == []
    assert len(parts_of(b"[" + b"1," * (MOST_PARTS - 1) + b"1]")) == MOST_PARTS
    assert parts_of(b"[" + b"1," * MOST_PARTS + b"1]") == []


@pytest.mark.parametrize(
    ("message", "ids"),
    [
        (b'{"id":5,"id":5,"result":{}}', {5}),
        (b'{"id":5,"id":"a","id":null,"id":true,"result":{}}', {5, "a"}),
        (b'{"id":5,"id":6,"method":"ping"}', set()),
        (b'{"result":{"id":5}}', set()),
        (b'[{"jsonrpc":"2.0","id":5,"result":{', {5}),
        (b' [ {"jsonrpc":"2.0","method":"ping","id":5},', set()),
        (b'[{"id":5,"id":5}]', set()),
        (b"[5", set()),
        (b"42", set()),
        (b"hello", set()),
    ],
)
def test_what_can_be_no_question_is_an_answer_to_what_it_names(message: bytes, ids: set[object]) -> None:
    assert set(answered_by(message)) == ids


def test_who_could_not_read_something_says_so_with_an_error_of_its_own() -> None:
    assert reports_parse_error(UNREAD)
    assert reports_parse_error(b'{"error":{"code":-32700}}')
    for other in (
        b'{"id":5,"error":{"code":-32700}}',
        b'{"id":null,"error":{"code":-32600}}',
        b'{"id":null,"error":-32700}',
        b'{"id":null,"method":"x","error":{"code":-32700}}',
        b'{"id":null,"result":{}}',
        b"[]",
        b"hello",
    ):
        assert not reports_parse_error(other)


async def test_answers_to_several_calls_in_one_array_reach_each_of_them(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    session = await begun(transport)
    program.silent.add("tools/call")
    sending = [asyncio.create_task(session.ask(post(CALL % number))) for number in (2, 3, 4)]
    line, _ = await program.asked("tools/call", 3)
    line.say(
        [{"jsonrpc": "2.0", "id": number, "result": {"n": number}} for number in (3, 2)] + [note("notifications/x")]
    )
    async with bounded():
        for number in (2, 3):
            (message,) = await read(await sending[number - 2])
            assert message == b'{"jsonrpc": "2.0", "id": %d, "result": {"n": %d}}' % (number, number)
        assert not sending[2].done()
        line.say(b'[{"jsonrpc":"2.0","id":4}]')
        await read(await sending[2])


async def test_a_welcome_may_come_in_an_array(house: House, program: ScriptedChannels) -> None:
    program.methods["initialize"] = sends(
        lambda asked: [{"jsonrpc": "2.0", "id": asked["id"], "result": program.handshake()}]
    )
    async with bounded():
        assert (await house.guest().call()).error is None


async def test_a_welcome_that_cannot_be_read_fails_whoever_waits_for_it(
    house: House, program: ScriptedChannels
) -> None:
    program.methods["initialize"] = sends(lambda asked: b'{"id":%d,"id":%d,"result":{}}' % (asked["id"], asked["id"]))
    async with bounded():
        with pytest.raises(UpstreamFailed, match="is not JSON-RPC"):
            await house.guest().call()


async def test_a_server_that_cannot_read_its_greeting_fails_it(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    program.methods["initialize"] = sends(lambda _: UNREAD)
    async with bounded():
        with pytest.raises(UpstreamFailed, match="could not read a message"):
            await greeted(transport)


async def test_where_several_calls_run_none_fails_for_what_cannot_be_told(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    session = await begun(transport)
    program.silent.add("tools/call")
    sending = [asyncio.create_task(session.ask(post(CALL % number))) for number in (2, 3)]
    line, first = await program.asked("tools/call", 1)
    _, second = await program.asked("tools/call", 2)
    line.say(UNREAD, b'{"jsonrpc":"2.0","id":2,"id":3,"result":{}}')
    line.answer(first, {})
    async with bounded():
        await read(await sending[0])
        # Now it is the only one.
        line.say(UNREAD)
        with pytest.raises(UpstreamFailed) as failed:
            await sending[1]
    assert (failed.value.reason, failed.value.dispatched) == ("refused", True)
    line.answer(second, {})


async def test_a_welcome_that_is_too_large_fails_who_waits_and_the_next_one_asks_again(
    house: House, program: ScriptedChannels
) -> None:
    program.silent.add("initialize")
    opening = asyncio.create_task(house.guest().session.open())
    line, asked = await program.asked("initialize")
    assert line.ears is not None
    assert line.ears.on_truncated(b'{"jsonrpc":"2.0","id":%d,"result":{"x":\0}}' % asked["id"])
    with pytest.raises(UpstreamFailed, match="The server's answer is too large"):
        await opening
    program.silent.clear()
    assert (await house.guest().call()).error is None


async def test_a_notification_or_junk_that_is_too_large_fails_nobody(
    transport: ChannelTransport, program: ScriptedChannels
) -> None:
    session = await begun(transport)
    program.silent.add("tools/call")
    sending = asyncio.create_task(session.ask(post(CALL % 2)))
    line, _ = await program.asked("tools/call")
    assert line.ears is not None
    assert line.ears.on_truncated(b'{"jsonrpc":"2.0","method":"notifications/message","params":{\0}}')
    assert line.ears.on_truncated(
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,\0}}'
    )
    assert not line.ears.on_truncated(b"Loading\0...")
    line.say({"jsonrpc": "2.0", "id": 2, "result": {}})
    async with bounded():
        assert len(await read(await sending)) == 1


async def test_what_cannot_be_read_is_not_that_of_the_only_one_where_another_was_given_up(
    house: House, program: ScriptedChannels
) -> None:
    program.silent.add("tools/call")
    guest = house.guest()
    left = guest.calling()
    line, _ = await program.asked("tools/call")
    left.cancel()
    await program.asked("notifications/cancelled")
    calling = guest.calling()
    _, asked = await program.asked("tools/call", 2)
    line.say(UNREAD)
    line.answer(asked, {})
    async with bounded():
        assert (await calling).error is None


LARGE = b"[" + b"[]," * 100_000 + b"0]"


@pytest.mark.parametrize(
    "around",
    [
        b'{"jsonrpc":"2.0","id":2,"result":{"a":%s}}',
        b'{"x":1, "jsonrpc" : "2.0", "result":{"a":%s}, "id" : 2}',
        b'[{"jsonrpc":"2.0","method":"notifications/x"},{"result":{"a":%s},"id":2,"jsonrpc":"2.0"}]',
        b'{"jsonrpc":"2.0","id":2,"id":2,"result":%s}',
    ],
)
async def test_a_large_answer_finds_who_waits_however_it_is_written(
    transport: ChannelTransport, program: ScriptedChannels, around: bytes
) -> None:
    session = await begun(transport)
    program.silent.add("tools/call")
    sending = [asyncio.create_task(session.ask(post(CALL % number))) for number in (2, 3)]
    line, _ = await program.asked("tools/call", 1)
    await program.asked("tools/call", 2)
    assert line.ears is not None
    await line.ears.on_large_message(around % LARGE)
    async with bounded():
        assert [LARGE in message for message in await read(await sending[0])] == [True]
    assert not sending[1].done(), "nobody else is failed"
    line.say({"jsonrpc": "2.0", "id": 3, "result": {}})
    async with bounded():
        await read(await sending[1])


@pytest.mark.parametrize(
    ("message", "is_one"),
    [
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"x":%s,"progressToken":9}}', True),
        (b'{"jsonrpc":"2.0","id":77,"result":{"a":%s}}', True),
        (b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%s}}', True),
        (b'{"jsonrpc":"2.0","id":77,"result":{"a":%s}', False),
        (b"%s", False),
        (b'{"mask":%s}', False),
        (b'{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"a":%s}}', True),
    ],
)
async def test_what_is_large_and_answers_nothing_fails_nobody(
    transport: ChannelTransport,
    program: ScriptedChannels,
    monkeypatch: pytest.MonkeyPatch,
    message: bytes,
    is_one: bool,
) -> None:
    loop, parse = threading.get_ident(), peek.parse

    def parsed(text: bytes, **more: int) -> Any:
        assert len(text) < len(LARGE) or threading.get_ident() != loop, "the loop reads it"
        return parse(text, **more)

    monkeypatch.setattr(peek, "parse", parsed)
    session = await begun(transport)
    program.silent.add("tools/call")
    sending = asyncio.create_task(session.ask(post(CALL % 2)))
    line, _ = await program.asked("tools/call")
    assert line.ears is not None
    assert await line.ears.on_large_message(message % LARGE) is is_one
    line.say({"jsonrpc": "2.0", "id": 2, "result": {}})
    async with bounded():
        assert len(await read(await sending)) == 1
