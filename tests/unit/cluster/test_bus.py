"""Messages between replicas: in order, to their receivers only, each once, and without delay for the sender."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from helpers.manual_clock import SeededEntropy
from helpers.memory_post import Office
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.clock import SystemClock
from taskgate.cluster.bus import CLOSE_TIMEOUT, LARGEST, RETRY, WAITING, WAITING_BYTES, ClusterBus, is_replica_name
from taskgate.cluster.message_auth import ENCRYPTED, FRESH, NUMBERED, SealKeys, is_encrypted
from taskgate.cluster.messages import GetStreamMessage, Parcel, SessionEnded, add_sequence, decode, encode
from taskgate.errors import StoreUnavailable

KEYS = SealKeys(b"k" * 32)
A, B, C = "a" * 16, "b" * 16, "c" * 16
AN, BN = "a" * 12 + NUMBERED, "b" * 12 + NUMBERED
"""The names of replicas that number their messages."""


class Unsubscribed(NamedTuple):
    """A message without a handler."""

    text: str


class Replica:
    """A replica, and what it received."""

    def __init__(
        self,
        office: Office,
        holder: str,
        keys: SealKeys = KEYS,
        *,
        alone: bool = False,
        peers: Collection[str] = ("0" * 16,),
    ) -> None:
        self.bus = ClusterBus(
            log=office.post(),
            seals=keys,
            holder=holder,
            entropy=SeededEntropy(),
            now=SystemClock().now,
            peers=lambda: frozenset() if alone else peers,
        )
        self.received: list[tuple[Any, str]] = []
        self.bus.subscribe(SessionEnded, self._receive)
        self.bus.subscribe(GetStreamMessage, self._receive)

    def _receive(self, message: Any, sender: str) -> None:
        if message == SessionEnded("bad"):
            raise ValueError("this one cannot be handled")
        self.received.append((message, sender))


@pytest.fixture
def office() -> Office:
    return Office()


@asynccontextmanager
async def opened(*processes: Replica) -> AsyncIterator[None]:
    for process in processes:
        process.bus.open()
    try:
        yield
    finally:
        for process in processes:
            await process.bus.close()


async def test_everybody_else_hears_what_is_said_to_all_in_order(office: Office) -> None:
    a, b, c = Replica(office, A), Replica(office, B), Replica(office, C)
    async with opened(a, b, c):
        for number in range(5):
            a.bus.send(SessionEnded(str(number)))
        expected = [(SessionEnded(str(number)), A) for number in range(5)]
        await eventually(lambda: b.received == c.received == expected)
    assert a.received == []


async def test_what_is_said_to_one_nobody_else_hears(office: Office) -> None:
    a, b, c = Replica(office, A), Replica(office, B), Replica(office, C)
    async with opened(a, b, c):
        a.bus.send(SessionEnded("mine"), to=B)
        a.bus.send(SessionEnded("all"))
        await eventually(lambda: c.received == [(SessionEnded("all"), A)])
        await eventually(lambda: len(b.received) == 2)
    assert b.received[0] == (SessionEnded("mine"), A)


async def test_nothing_is_said_to_all_where_nobody_else_lives(office: Office) -> None:
    a = Replica(office, A, alone=True)
    async with opened(a):
        assert not a.bus.has_peers
        a.bus.send(SessionEnded("s"))
        a.bus.send(SessionEnded("to myself"), to=A)
        a.bus.send(SessionEnded("t"), to=B)
        await eventually(lambda: len(office.sent) == 1)
    assert len(office.sent) == 1, "what is for somebody is said: who else lives is known late"


async def test_what_is_large_waits_as_a_parcel_for_the_one_it_is_for(office: Office) -> None:
    a, b, c = Replica(office, A), Replica(office, B), Replica(office, C)
    word = GetStreamMessage("s", "x" * (LARGEST + 1))
    async with opened(a, b, c):
        a.bus.send(word, to=B)
        a.bus.send(SessionEnded("after"))
        await eventually(lambda: b.received == [(word, A), (SessionEnded("after"), A)])
        await eventually(lambda: c.received == [(SessionEnded("after"), A)])
    assert office.parcels == {}
    assert max(map(len, office.sent)) < LARGEST


async def test_what_is_large_is_not_said_to_all(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    a, b = Replica(office, A), Replica(office, B)
    async with opened(a, b):
        a.bus.send(GetStreamMessage("s", "x" * (LARGEST + 1)))
        a.bus.send(SessionEnded("after"))
        await eventually(lambda: b.received == [(SessionEnded("after"), A)])
    assert "too large" in caplog.text


async def test_only_what_one_of_us_wrote_is_heard(office: Office) -> None:
    """T25: whoever can write to the store can say nothing."""
    stranger, a, b = Replica(office, C, SealKeys(b"x" * 32)), Replica(office, A), Replica(office, B)
    async with opened(stranger, a, b):
        stranger.bus.send(SessionEnded("theirs"))
        await office.posts[0].send(b"no word at all")
        await office.posts[0].send(KEYS.sign(encode(Parcel("none"), sender=C, to=B)))
        office.parcels["forged"] = encode(SessionEnded("forged"), sender=A, to=B)
        await office.posts[0].send(KEYS.sign(encode(Parcel("forged"), sender=A, to=B)))
        await eventually(lambda: "forged" not in office.parcels)
        a.bus.send(SessionEnded("ours"))
        await eventually(lambda: b.received == [(SessionEnded("ours"), A)])


async def test_a_parcel_that_names_no_name_is_passed_over(office: Office) -> None:
    a, b = Replica(office, A), Replica(office, B)
    async with opened(a, b):
        await office.posts[0].send(KEYS.sign(encode(Parcel(7), sender=A, to=B)))  # type: ignore[arg-type]
        a.bus.send(SessionEnded("after"))
        await eventually(lambda: b.received == [(SessionEnded("after"), A)])


async def test_a_word_that_cannot_be_receiven_costs_no_other(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    a, b = Replica(office, A), Replica(office, B)
    async with opened(a, b):
        for word in (SessionEnded("bad"), Unsubscribed("what"), SessionEnded("good")):
            a.bus.send(word)
        await eventually(lambda: b.received == [(SessionEnded("good"), A)])
    assert "could not be handled" in caplog.text


async def test_while_the_store_is_away_words_are_lost_and_the_next_are_heard(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = Replica(office, A), Replica(office, B)
    async with opened(a, b):
        office.down = True
        for number in range(3):
            a.bus.send(SessionEnded(f"lost {number}"))
        await eventually(lambda: "does not accept them" in caplog.text)
        office.down = False
        a.bus.send(SessionEnded("found"))
        await asyncio.sleep(RETRY)
        await eventually(lambda: [message for message, _ in b.received][-1:] == [SessionEnded("found")])
    assert caplog.text.count("does not accept them") == 1, "once an outage, however many words there were"


async def test_what_nobody_has_foreseen_makes_no_process_deaf_or_dumb(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = Replica(office, A), Replica(office, B)
    send, receive = office.posts[0].send, office.posts[1].receive
    failures = [KeyError("send"), KeyError("receive")]

    async def sent(word: bytes) -> None:
        if len(failures) == 2:
            raise failures.pop(0)
        await send(word)

    async def received(*, timeout: timedelta) -> tuple[bytes, ...]:
        if len(failures) == 1:
            raise failures.pop(0)
        return await receive(timeout=timeout)

    monkeypatch.setattr(office.posts[0], "send", sent)
    monkeypatch.setattr(office.posts[1], "receive", received)
    async with opened(a):
        a.bus.send(SessionEnded("lost"))
        a.bus.send(SessionEnded("found"))
        await eventually(lambda: "could not be sent" in caplog.text)
        async with opened(b):
            await asyncio.sleep(RETRY)
            await eventually(lambda: b.received == [(SessionEnded("found"), A)])
    assert "could not be received" in caplog.text


async def test_a_parcel_that_cannot_be_had_is_a_lost_word(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Replica(office, A), Replica(office, B)

    async def refuse(name: str) -> bytes | None:
        raise StoreUnavailable("The task store is not available")

    monkeypatch.setattr(office.posts[1], "fetch", refuse)
    async with opened(a, b):
        a.bus.send(GetStreamMessage("s", "x" * (LARGEST + 1)), to=B)
        a.bus.send(SessionEnded("after"))
        await eventually(lambda: b.received == [(SessionEnded("after"), A)])


async def test_no_more_waits_than_there_is_room_for(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    a, b = Replica(office, A), Replica(office, B)
    for number in range(WAITING + 2):
        a.bus.send(SessionEnded(str(number)))
    async with opened(a, b):
        await eventually(lambda: len(b.received) == WAITING)
        a.bus.send(SessionEnded("after"))
        await eventually(lambda: len(b.received) == WAITING + 1)
    assert [message.session for message, _ in b.received] == [*map(str, range(WAITING)), "after"]
    assert caplog.text.count("too many") == 1


async def test_nor_more_bytes(office: Office) -> None:
    a, b = Replica(office, A), Replica(office, B)
    a.bus.send(GetStreamMessage("s", "x" * WAITING_BYTES), to=B)
    a.bus.send(SessionEnded("small"))
    async with opened(a, b):
        await eventually(lambda: b.received == [(SessionEnded("small"), A)])


async def test_what_waits_at_the_end_is_still_said(office: Office) -> None:
    """A session that is ended in the last moment is ended everywhere."""
    a, b = Replica(office, A), Replica(office, B)
    async with opened(b):
        a.bus.open()
        a.bus.send(SessionEnded("s"))
        await a.bus.close()
        await eventually(lambda: b.received == [(SessionEnded("s"), A)])


async def test_the_end_does_not_wait_for_a_store_that_does_not_answer(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Replica(office, A)

    async def hang(word: bytes) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(office.posts[0], "send", hang)
    a.bus.open()
    a.bus.send(SessionEnded("s"))
    closing = asyncio.create_task(a.bus.close())
    await asyncio.sleep(CLOSE_TIMEOUT / 2)
    assert not closing.done()
    async with bounded():
        await closing


async def test_one_that_was_never_opened_can_be_closed(office: Office) -> None:
    await Replica(office, A).bus.close()


@pytest.mark.parametrize(("name", "is_one"), [(A, True), ("0" * 15, False), ("0" * 17, False), ("G" * 16, False)])
def test_names_of_processes_are_told_from_what_a_host_makes_up(name: str, *, is_one: bool) -> None:
    assert is_replica_name(name) is is_one


# --- words that somebody kept -----------------------------------------------------------------------------------------


async def settled(office: Office, *processes: Replica) -> None:
    """Wait until everything that was sent is handled: a last message, of one more replica, has been received."""
    last = Replica(office, "d" * 12 + NUMBERED)
    async with opened(last):
        last.bus.send(SessionEnded("last"))
        await eventually(lambda: all((SessionEnded("last"), last.bus.holder) in each.received for each in processes))
    for each in processes:
        each.received.remove((SessionEnded("last"), last.bus.holder))


@pytest.mark.parametrize("to", [None, BN])
async def test_a_word_that_comes_again_is_not_heard_again(office: Office, to: str | None) -> None:
    a, b = Replica(office, AN), Replica(office, BN)
    async with opened(a, b):
        a.bus.send(GetStreamMessage("s", "first"), to=to)
        a.bus.send(GetStreamMessage("s", "second"), to=to)
        await eventually(lambda: len(b.received) == 2)
        for word in (*office.sent, *office.sent):
            office.posts[1].deliver(word)
        await settled(office, b)
        assert b.received == [(GetStreamMessage("s", "first"), AN), (GetStreamMessage("s", "second"), AN)]


async def test_a_large_word_is_heard_once_and_so_are_those_behind_it(office: Office) -> None:
    a, b = Replica(office, AN), Replica(office, BN)
    large = GetStreamMessage("s", "x" * 40_000)
    async with opened(a, b):
        a.bus.send(large, to=BN)
        a.bus.send(GetStreamMessage("s", "small"), to=BN)
        await eventually(lambda: len(b.received) == 2)
        assert [message for message, _ in b.received] == [large, GetStreamMessage("s", "small")]
        office.posts[1].deliver(office.sent[0])
        await settled(office, b)
        assert len(b.received) == 2


async def test_a_word_whose_number_was_cut_off_is_not_heard(office: Office) -> None:
    """It is sealed as a gateway of the version before would have it; but that has another name."""
    b = Replica(office, BN)
    async with opened(b):
        office.posts[0].deliver(KEYS.sign(encode(SessionEnded("kept"), sender=AN, to=None)))
        office.posts[0].deliver(KEYS.sign(encode(SessionEnded("of before"), sender=A, to=None)))
        await settled(office, b)
        assert b.received == [(SessionEnded("of before"), A)]


async def test_a_process_that_begins_later_hears_nothing_that_was_said_long_before(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    b = Replica(office, BN)
    now = SystemClock().now()
    async with opened(b):
        for age, text in ((FRESH + timedelta(seconds=1), "old"), (timedelta(), "new"), (timedelta(seconds=1), "older")):
            number = int((now - age).timestamp() * 1_000_000)
            office.posts[0].deliver(KEYS.sign(add_sequence(encode(SessionEnded(text), sender=AN, to=None), number)))
        await settled(office, b)
    assert b.received == [(SessionEnded("new"), AN)]
    assert caplog.messages == ["replayed messages are ignored: another program writes to the shared store"]


def test_a_gateway_of_the_version_before_reads_a_word_with_a_number() -> None:
    """It reads JSON, and counts what is in the list."""
    text = add_sequence(encode(GetStreamMessage("s", "m"), sender=AN, to=BN), 2**63 + 5)
    assert json.loads(text) == [AN, BN, "Published", "s", "m"]
    envelope = decode(text)
    assert envelope is not None
    assert envelope.sequence == 2**63 + 5


# --- encrypted messages -----------------------------------------------------------------------------------------------

AE, BE, CE = (letter * 12 + ENCRYPTED for letter in "abc")
"""The names of replicas that read encrypted messages."""


@covers("T25")
async def test_nothing_that_is_sent_among_replicas_of_this_version_can_be_read(office: Office) -> None:
    a, b = Replica(office, AE, peers=(BE, CE)), Replica(office, BE, peers=(AE, CE))
    c = Replica(office, CE, peers=(AE, BE))
    large = GetStreamMessage("session-77", "PIN 4711" * LARGEST)
    async with opened(a, b, c):
        a.bus.send(SessionEnded("session-77"))
        a.bus.send(GetStreamMessage("session-77", "PIN 4711"), to=BE)
        await eventually(lambda: len(b.received) == 2)
        a.bus.send(large, to=BE)
        await eventually(lambda: (large, AE) in b.received)
    assert c.received == [(SessionEnded("session-77"), AE)]
    assert len(office.sent) == 3
    assert len(office.left) == 1
    assert not any(secret in text for text in (*office.sent, *office.left) for secret in (b"PIN 4711", b"session-77"))


async def test_a_message_is_signed_while_a_receiver_of_an_earlier_version_is_alive(office: Office) -> None:
    a, b, old = Replica(office, AE, peers=(BE, C)), Replica(office, BE), Replica(office, C)
    async with opened(a, b, old):
        a.bus.send(SessionEnded("all"))
        a.bus.send(SessionEnded("one of this version"), to=BE)
        a.bus.send(SessionEnded("one of an earlier version"), to=C)
        await eventually(lambda: len(b.received) == 2 and len(old.received) == 2)
    assert [is_encrypted(sent) for sent in office.sent] == [False, True, False]


async def test_an_encrypted_message_that_comes_again_or_to_another_is_not_heard(office: Office) -> None:
    a, b, c = (Replica(office, name, peers=(AE, BE, CE)) for name in (AE, BE, CE))
    async with opened(a, b, c):
        a.bus.send(SessionEnded("s"))
        a.bus.send(SessionEnded("t"), to=BE)
        await eventually(lambda: len(b.received) == 2)
        for sent in tuple(office.sent):
            await office.posts[0].send(sent)
            await office.posts[0].send(sent.replace(BE.encode(), CE.encode()))
        a.bus.send(SessionEnded("after"))
        await eventually(lambda: len(b.received) == 3 and len(c.received) == 2)
    assert [message.session for message, _ in c.received] == ["s", "after"]
