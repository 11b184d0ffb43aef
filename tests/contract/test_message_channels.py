"""What every message channel promises, whatever moves its messages."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from contract.channels import LIMIT, LINES, Recorder, Spoken, outgoing, taken, wish
from helpers.departing import Departing
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.duplex.base import ChannelProvider


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.program] if name == "program" else []) for name in LINES])
async def lines(request: pytest.FixtureRequest) -> AsyncIterator[ChannelProvider]:
    """Each kind of lines in turn."""
    async with bounded(), LINES[request.param]() as lines:
        yield lines


@pytest.fixture
async def spoken(lines: ChannelProvider) -> AsyncIterator[Spoken]:
    """A line, taken once."""
    spoken = await taken(lines)
    yield spoken
    lines.release(spoken.line)


def notes(*numbers: int) -> list[dict[str, object]]:
    """Messages that can be told apart."""
    return [{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": number}} for number in numbers]


async def test_what_is_sent_arrives_whole_and_in_order(spoken: Spoken) -> None:
    texts = ["plain", "\n\r\u2028 breaks", "ünïcödé \U0001f600", "x" * 60_000]
    for text in texts:
        assert await spoken.tell("note", text=text) is None
    assert [each["params"].get("text") for each in await spoken.heard()][:-1] == texts


async def test_a_message_may_hold_breaks_between_its_tokens(spoken: Spoken) -> None:
    await spoken.line.send(outgoing(b'{\n"jsonrpc":\r\n"2.0",\n "method": "note",\n"params":{"a":\n1}\n}\n'))
    assert (await spoken.heard())[0] == {"jsonrpc": "2.0", "method": "note", "params": {"a": 1}}


async def test_it_is_told_before_anything_may_have_left(spoken: Spoken) -> None:
    left: list[int] = []
    await spoken.line.send(outgoing({"method": "note"}, call=Departing(lambda: left.append(1))))
    assert left == [1]


async def test_what_is_said_is_heard_in_order(spoken: Spoken) -> None:
    await spoken.say(*notes(*range(100)))
    await eventually(lambda: len(spoken.ears.messages) >= 100)
    assert spoken.ears.messages == notes(*range(100))


async def test_what_is_said_before_anybody_listens_is_not_lost(lines: ChannelProvider) -> None:
    line = await lines.acquire(wish())
    await line.send(outgoing({"method": "say", "params": {"lines": ['{"early":1}']}}))
    for _ in range(50):
        await asyncio.sleep(0)
    spoken = Spoken(line, Recorder())
    line.listen(spoken.ears)
    await eventually(lambda: spoken.ears.messages)
    assert spoken.ears.messages == [{"early": 1}]
    lines.release(line)


async def test_what_is_no_message_is_passed_over(spoken: Spoken) -> None:
    await spoken.say("hello", '{"half":', *notes(1))
    await eventually(lambda: spoken.ears.messages)
    assert spoken.ears.messages == notes(1)
    assert spoken.ears.junk == [b"hello", b'{"half":']
    assert not spoken.ears.failures


async def test_a_line_that_is_paused_is_heard_no_further_until_it_goes_on(spoken: Spoken) -> None:
    spoken.line.pause()
    await spoken.say(*notes(1, 2))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(spoken.ears.messages) <= 1
    spoken.line.resume()
    await eventually(lambda: len(spoken.ears.messages) == 2)
    await spoken.say(*notes(3))
    await eventually(lambda: len(spoken.ears.messages) == 3)
    assert spoken.ears.messages == notes(1, 2, 3)


async def test_what_was_said_before_the_end_is_heard_before_it(spoken: Spoken) -> None:
    await spoken.say(*notes(*range(50)))
    await spoken.tell("exit", status=3)
    failure = await spoken.end()
    assert spoken.ears.messages == notes(*range(50))
    assert (failure.reason, failure.dispatched) == ("closed", True)
    assert "server" in str(failure)


async def test_what_is_sent_after_the_end_has_not_left(spoken: Spoken) -> None:
    await spoken.tell("exit", status=3)
    await spoken.end()
    left: list[int] = []
    with pytest.raises(UpstreamFailed) as failed:
        await spoken.line.send(outgoing({"method": "note"}, call=Departing(lambda: left.append(1))))
    assert not failed.value.dispatched
    assert not left
    assert len(spoken.ears.failures) == 1


async def test_a_line_that_is_dropped_is_lost_once_and_not_at_once(spoken: Spoken) -> None:
    spoken.line.drop()
    assert not spoken.ears.failures
    failure = await spoken.end()
    assert (failure.reason, failure.dispatched) == ("closed", True)
    spoken.line.drop()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(spoken.ears.failures) == 1


async def test_a_message_too_large_to_keep_is_passed_over_or_the_end_of_the_line(spoken: Spoken) -> None:
    await spoken.say({"large": "x" * (LIMIT - 100)})
    await eventually(lambda: spoken.ears.messages)
    await spoken.say({"too large": "x" * LIMIT})
    await eventually(lambda: spoken.ears.failures or spoken.ears.cuts)
    assert len(spoken.ears.messages) == 1
    if spoken.ears.failures:
        (failure,) = spoken.ears.failures
        assert (failure.reason, failure.dispatched) == ("too_large", True)
        return
    (ends,) = spoken.ears.cuts
    assert (ends[:14], ends[-2:], ends.count(b"\0")) == (b'{"too large": ', b'"}', 1)
    await spoken.say(*notes(1))
    await eventually(lambda: spoken.ears.messages[1:] == notes(1))


async def test_a_line_that_was_lost_is_given_to_nobody(lines: ChannelProvider, spoken: Spoken) -> None:
    await spoken.tell("exit", status=0)
    await spoken.end()
    another = await taken(lines)
    assert another.line is not spoken.line
    await another.say(*notes(1))
    await eventually(lambda: another.ears.messages)
    lines.release(another.line)


async def test_who_has_another_context_has_another_line(lines: ChannelProvider, spoken: Spoken) -> None:
    other = await lines.acquire(wish("bob"))
    assert other is not spoken.line
    lines.release(other)


async def test_for_what_only_listens_no_line_is_made(lines: ChannelProvider) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        await lines.acquire(wish(only_listens=True))
    assert (failed.value.reason, failed.value.dispatched) == ("unreachable", False)


async def test_the_end_of_the_lines_is_told_on_each_and_there_are_no_more(
    lines: ChannelProvider, spoken: Spoken
) -> None:
    await lines.close()
    (failure,) = spoken.ears.failures
    assert (failure.reason, failure.dispatched) == ("closed", True)
    with pytest.raises(UpstreamFailed) as failed:
        await lines.acquire(wish())
    assert not failed.value.dispatched
