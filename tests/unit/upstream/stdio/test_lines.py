"""One program as a line: its messages, and whatever else it writes."""

import asyncio
from collections.abc import Callable
from functools import partial

import orjson
import pytest

from helpers.departing import Departing
from helpers.waiting import bounded, eventually
from unit.upstream.stdio.conftest import LIMIT, Yard, outgoing
from unit.upstream.stdio.programs import program

NewYard = Callable[..., Yard]


# --- messages


async def test_what_is_sent_arrives_and_what_is_said_is_heard(yard: Yard) -> None:
    taken = await yard.take()
    await taken.tell(id=1)
    await taken.tell(id=2)
    assert await taken.told(2) == [{"heard": {"id": 1}}, {"heard": {"id": 2}}]


async def test_a_message_with_lines_in_it_is_sent_as_one(yard: Yard) -> None:
    taken = await yard.take()
    async with bounded():
        await taken.line.send(outgoing(b'{\r\n  "id":\n 1\r}'))
    assert await taken.told() == [{"heard": {"id": 1}}]


async def test_it_is_told_that_a_message_leaves_before_a_byte_of_it_does(yard: Yard) -> None:
    taken = await yard.take()
    left: list[bytes] = []
    async with bounded():
        await taken.line.send(outgoing(b'{"id":1}', call=Departing(lambda: left.append(b"left"))))
    assert left == [b"left"]


async def test_a_line_that_comes_in_pieces_is_heard_whole(yard: Yard) -> None:
    taken = await yard.take()
    for piece in ('{"a":', '"b', 'c"'):
        await taken.do(f"sys.stdout.write({piece!r}); sys.stdout.flush(); sys.stderr.write('.'); sys.stderr.flush()")
    await taken.do("print('}', flush=True)")
    assert await taken.told() == [{"abc"[0]: "bc"}]


async def test_several_lines_at_once_are_heard_one_by_one_whatever_ends_them(yard: Yard) -> None:
    taken = await yard.take()
    await taken.do(r"""sys.stdout.write('{"a":1}\n{"a":2}\r\n\n  \n{"a":3}\n'); sys.stdout.flush()""")
    assert await taken.told(3) == [{"a": 1}, {"a": 2}, {"a": 3}]


async def test_megabytes_pass_both_ways(yard: Yard) -> None:
    taken = await yard.take()
    await taken.tell(text="x" * (LIMIT - 100))
    [heard] = await taken.told()
    assert len(heard["heard"]["text"]) == LIMIT - 100


async def test_what_is_no_message_is_passed_over(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    taken = await yard.take()
    await taken.do("sys.stdout.buffer.write(b'Server ready!\\n\\xff\\xfe\\n'); say({'a': 1})")
    assert await taken.told() == [{"a": 1}]
    said = [record for record in caplog.records if record.name == "taskgate.upstream.stderr"]
    assert [(record.__dict__["stream"], record.__dict__["text"]) for record in said] == [
        ("stdout", "Server ready!"),
        ("stdout", "��"),
    ]


async def test_of_a_broken_message_the_log_has_the_size_alone(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    taken = await yard.take()
    taken.ears.on_message = lambda message: False  # type: ignore[method-assign]
    await taken.do("print('{\"secret\": 1', flush=True)")
    await eventually(lambda: [each for each in caplog.records if each.name == "taskgate.upstream.stderr"])
    assert "a message of 12 bytes that cannot be read" in str(caplog.records[-1].__dict__["text"])
    assert "secret" not in "".join(str(each.__dict__) for each in caplog.records)


async def test_a_line_without_an_end_is_none(yard: Yard) -> None:
    taken = await yard.take()
    await taken.do("sys.stdout.write('{\"a\": 1}'); sys.stdout.flush(); os._exit(0)")
    await taken.end()
    assert taken.ears.heard_all == []


# --- back-pressure


async def test_a_program_that_does_not_read_holds_up_nobody_else(new_yard: NewYard) -> None:
    yard = new_yard(command=program("say({'pid': os.getpid()}); signal.pause()"))
    deaf, other = await yard.take("alice"), new_yard()
    assert await deaf.told()
    big = orjson.dumps({"text": "x" * 2**20})
    sent: list[int] = []

    async def send() -> None:
        sent.append(await deaf.line.send(outgoing(big, call=Departing(lambda: sent.append(0)))))

    first, second = asyncio.create_task(send()), asyncio.create_task(send())
    await asyncio.wait((first,))
    assert (sent, second.done()) == ([0, None], False)
    fine = await other.take("bob")
    await fine.tell(id=1)
    assert await fine.told() == [{"heard": {"id": 1}}]
    second.cancel()
    await asyncio.wait((second,))
    assert sent == [0, None], "nothing of the second was sent, and nobody was told that it was"
    # It can be ended, too.
    deaf.line.drop()
    await deaf.end()


async def test_messages_go_in_their_order_also_when_they_have_to_wait(yard: Yard) -> None:
    taken = await yard.take()
    await taken.do("sys.stdin.buffer.peek(); os.read(0, 0); time.sleep(0.05)")
    sizes = [2**20, 10, 2**18, 10, 10]
    sending = [asyncio.create_task(taken.tell(number=number, text="x" * size)) for number, size in enumerate(sizes)]
    await asyncio.wait(sending)
    told = await taken.told(len(sizes))
    assert [each["heard"]["number"] for each in told] == list(range(len(sizes)))


async def test_no_more_waits_in_memory_for_a_program_to_read_than_one_message(new_yard: NewYard) -> None:
    big = orjson.dumps({"text": "x" * 2**20})
    reads_one = f"left = {len(big) + 1}\nwhile left: left -= len(os.read(0, left))\nsay({{}}); signal.pause()"
    taken = await new_yard(command=program(reads_one)).take()
    left: list[int] = []
    sending = [
        asyncio.create_task(taken.line.send(outgoing(big, call=Departing(partial(left.append, number)))))
        for number in range(4)
    ]
    assert await taken.told() == [{}]
    await asyncio.wait((sending[1],))
    assert left == [0, 1]
    for each in sending[2:]:
        each.cancel()
    await asyncio.wait(sending)


async def test_what_a_program_says_waits_there_while_reading_is_paused(yard: Yard) -> None:
    taken = await yard.take()
    taken.line.pause()
    await taken.do("[say({'text': 'x' * 1000}) for _ in range(1000)]; say({'at': 'last'})")
    other = await yard.take("bob")
    await other.tell(id=1)
    await other.told()
    assert taken.ears.heard_all == []
    taken.line.resume()
    assert (await taken.told(1001))[-1] == {"at": "last"}


async def test_it_can_be_paused_by_whoever_hears_it(yard: Yard) -> None:
    taken = await yard.take()
    taken.ears.on_heard = lambda message: taken.line.pause()
    await taken.do("[say({'text': 'x' * 1000}) for _ in range(1000)]")
    await eventually(lambda: taken.ears.heard_all)
    other = await yard.take("bob")
    await other.tell(id=1)
    await other.told()
    assert len(taken.ears.heard_all) < 600
    taken.ears.on_heard = lambda message: None
    taken.line.resume()
    await taken.told(1000)


async def test_a_message_that_is_too_large_is_read_past_and_what_follows_is_heard(
    new_yard: NewYard, caplog: pytest.LogCaptureFixture
) -> None:
    taken = await new_yard(limit=100_000).take()
    await taken.do("say({'a': 1}); print('{' + 'x' * 1_000_000 + '}', flush=True); say({'a': 2})")
    assert await taken.told(2) == [{"a": 1}, {"a": 2}]
    assert taken.ears.cuts == [b"{" + b"x" * 511 + b"\0" + b"x" * 511 + b"}"]
    assert [record.__dict__["text"] for record in caplog.records if "output of" in record.message] == [
        "a line of 1000002 bytes, too long to log"
    ]
