"""Words between processes: in order, to whom they are for, and never in anybody's way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from helpers.manual_clock import SeededEntropy
from helpers.memory_post import Office
from helpers.waiting import eventually
from taskgate.clock import SystemClock
from taskgate.cluster import bus as module
from taskgate.cluster.bus import ClusterBus, is_holder
from taskgate.cluster.messages import Ended, Parcel, Published, numbered, read, write
from taskgate.cluster.numbers import FRESH, NUMBERED
from taskgate.cluster.seals import WordKeys
from taskgate.errors import StoreUnavailable

KEYS = WordKeys(b"k" * 32)
A, B, C = "a" * 16, "b" * 16, "c" * 16
AN, BN = "a" * 12 + NUMBERED, "b" * 12 + NUMBERED
"""Of processes that number their words."""


class Unheard(NamedTuple):
    """A word that nobody knows."""

    text: str


class Replica:
    """One that has said nothing yet, and what it heard."""

    def __init__(self, office: Office, holder: str, keys: WordKeys = KEYS, *, alone: bool = False) -> None:
        self.said = ClusterBus(
            post=office.post(),
            seals=keys,
            holder=holder,
            entropy=SeededEntropy(),
            now=SystemClock().now,
            company=lambda: not alone,
        )
        self.heard: list[tuple[Any, str]] = []
        self.said.hear(Ended, self._take)
        self.said.hear(Published, self._take)

    def _take(self, word: Any, sender: str) -> None:
        if word == Ended("bad"):
            raise ValueError("this one cannot be taken")
        self.heard.append((word, sender))


@pytest.fixture
def office() -> Office:
    return Office()


@asynccontextmanager
async def opened(*processes: Replica) -> AsyncIterator[None]:
    for process in processes:
        process.said.open()
    try:
        yield
    finally:
        for process in processes:
            await process.said.close()


async def test_everybody_else_hears_what_is_said_to_all_in_order(office: Office) -> None:
    a, b, c = Replica(office, A), Replica(office, B), Replica(office, C)
    async with opened(a, b, c):
        for number in range(5):
            a.said.say(Ended(str(number)))
        expected = [(Ended(str(number)), A) for number in range(5)]
        await eventually(lambda: b.heard == c.heard == expected)
    assert a.heard == []


async def test_what_is_said_to_one_nobody_else_hears(office: Office) -> None:
    a, b, c = Replica(office, A), Replica(office, B), Replica(office, C)
    async with opened(a, b, c):
        a.said.say(Ended("mine"), to=B)
        a.said.say(Ended("all"))
        await eventually(lambda: c.heard == [(Ended("all"), A)])
        await eventually(lambda: len(b.heard) == 2)
    assert b.heard[0] == (Ended("mine"), A)


async def test_nothing_is_said_to_all_where_nobody_else_lives(office: Office) -> None:
    a = Replica(office, A, alone=True)
    async with opened(a):
        assert not a.said.has_company
        a.said.say(Ended("s"))
        a.said.say(Ended("to myself"), to=A)
        a.said.say(Ended("t"), to=B)
        await eventually(lambda: len(office.sent) == 1)
    assert len(office.sent) == 1, "what is for somebody is said: who else lives is known late"


async def test_what_is_large_waits_as_a_parcel_for_the_one_it_is_for(office: Office) -> None:
    a, b, c = Replica(office, A), Replica(office, B), Replica(office, C)
    word = Published("s", "x" * (module.LARGEST + 1))
    async with opened(a, b, c):
        a.said.say(word, to=B)
        a.said.say(Ended("after"))
        await eventually(lambda: b.heard == [(word, A), (Ended("after"), A)])
        await eventually(lambda: c.heard == [(Ended("after"), A)])
    assert office.parcels == {}
    assert max(map(len, office.sent)) < module.LARGEST


async def test_what_is_large_is_not_said_to_all(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    a, b = Replica(office, A), Replica(office, B)
    async with opened(a, b):
        a.said.say(Published("s", "x" * (module.LARGEST + 1)))
        a.said.say(Ended("after"))
        await eventually(lambda: b.heard == [(Ended("after"), A)])
    assert "too large" in caplog.text


async def test_only_what_one_of_us_wrote_is_heard(office: Office) -> None:
    """T25: whoever can write to the store can say nothing."""
    stranger, a, b = Replica(office, C, WordKeys(b"x" * 32)), Replica(office, A), Replica(office, B)
    async with opened(stranger, a, b):
        stranger.said.say(Ended("theirs"))
        await office.posts[0].send(b"no word at all")
        await office.posts[0].send(KEYS.seal(write(Parcel("none"), sender=C, to=B)))
        office.parcels["forged"] = write(Ended("forged"), sender=A, to=B)
        await office.posts[0].send(KEYS.seal(write(Parcel("forged"), sender=A, to=B)))
        await eventually(lambda: "forged" not in office.parcels)
        a.said.say(Ended("ours"))
        await eventually(lambda: b.heard == [(Ended("ours"), A)])


async def test_a_parcel_that_names_no_name_is_passed_over(office: Office) -> None:
    a, b = Replica(office, A), Replica(office, B)
    async with opened(a, b):
        await office.posts[0].send(KEYS.seal(write(Parcel(7), sender=A, to=B)))  # type: ignore[arg-type]
        a.said.say(Ended("after"))
        await eventually(lambda: b.heard == [(Ended("after"), A)])


async def test_a_word_that_cannot_be_taken_costs_no_other(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    a, b = Replica(office, A), Replica(office, B)
    async with opened(a, b):
        for word in (Ended("bad"), Unheard("what"), Ended("good")):
            a.said.say(word)
        await eventually(lambda: b.heard == [(Ended("good"), A)])
    assert "could not be handled" in caplog.text


async def test_while_the_store_is_away_words_are_lost_and_the_next_are_heard(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
    a, b = Replica(office, A), Replica(office, B)
    async with opened(a, b):
        office.down = True
        for number in range(3):
            a.said.say(Ended(f"lost {number}"))
        await eventually(lambda: "does not accept them" in caplog.text)
        office.down = False
        a.said.say(Ended("found"))
        await eventually(lambda: [word for word, _ in b.heard][-1:] == [Ended("found")])
    assert caplog.text.count("does not accept them") == 1, "once an outage, however many words there were"


async def test_what_nobody_has_foreseen_makes_no_process_deaf_or_dumb(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
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
        a.said.say(Ended("lost"))
        a.said.say(Ended("found"))
        await eventually(lambda: "could not be sent" in caplog.text)
        async with opened(b):
            await eventually(lambda: b.heard == [(Ended("found"), A)])
    assert "could not be received" in caplog.text


async def test_a_parcel_that_cannot_be_had_is_a_lost_word(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Replica(office, A), Replica(office, B)

    async def refuse(name: str) -> bytes | None:
        raise StoreUnavailable("The task store is not available")

    monkeypatch.setattr(office.posts[1], "fetch", refuse)
    async with opened(a, b):
        a.said.say(Published("s", "x" * (module.LARGEST + 1)), to=B)
        a.said.say(Ended("after"))
        await eventually(lambda: b.heard == [(Ended("after"), A)])


async def test_no_more_waits_than_there_is_room_for(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WAITING", 2)
    a, b = Replica(office, A), Replica(office, B)
    for number in range(4):
        a.said.say(Ended(str(number)))
    async with opened(a, b):
        await eventually(lambda: len(b.heard) == 2)
        a.said.say(Ended("after"))
        await eventually(lambda: len(b.heard) == 3)
    assert [word.session for word, _ in b.heard] == ["0", "1", "after"]
    assert caplog.text.count("too many") == 1


async def test_nor_more_bytes(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 300)
    a, b = Replica(office, A), Replica(office, B)
    a.said.say(Published("s", "x" * 300), to=B)
    a.said.say(Ended("small"))
    async with opened(a, b):
        await eventually(lambda: b.heard == [(Ended("small"), A)])


async def test_what_waits_at_the_end_is_still_said(office: Office) -> None:
    """A session that is ended in the last moment is ended everywhere."""
    a, b = Replica(office, A), Replica(office, B)
    async with opened(b):
        a.said.open()
        a.said.say(Ended("s"))
        await a.said.close()
        await eventually(lambda: b.heard == [(Ended("s"), A)])


async def test_the_end_does_not_wait_for_a_store_that_does_not_answer(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FAREWELL", 0.01)
    a = Replica(office, A)

    async def hang(word: bytes) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(office.posts[0], "send", hang)
    a.said.open()
    a.said.say(Ended("s"))
    async with asyncio.timeout(5):
        await a.said.close()


async def test_one_that_was_never_opened_can_be_closed(office: Office) -> None:
    await Replica(office, A).said.close()


@pytest.mark.parametrize(("name", "is_one"), [(A, True), ("0" * 15, False), ("0" * 17, False), ("G" * 16, False)])
def test_names_of_processes_are_told_from_what_a_host_makes_up(name: str, *, is_one: bool) -> None:
    assert is_holder(name) is is_one


# --- words that somebody kept -------------------------------------------------------------------------------------


async def settled(office: Office, *processes: Replica) -> None:
    """Wait until whatever was sent is heard, or passed over; what comes last, from one more process, is heard."""
    last = Replica(office, "d" * 12 + NUMBERED)
    async with opened(last):
        last.said.say(Ended("last"))
        await eventually(lambda: all((Ended("last"), last.said.holder) in each.heard for each in processes))
    for each in processes:
        each.heard.remove((Ended("last"), last.said.holder))


@pytest.mark.parametrize("to", [None, BN])
async def test_a_word_that_comes_again_is_not_heard_again(office: Office, to: str | None) -> None:
    a, b = Replica(office, AN), Replica(office, BN)
    async with opened(a, b):
        a.said.say(Published("s", "first"), to=to)
        a.said.say(Published("s", "second"), to=to)
        await eventually(lambda: len(b.heard) == 2)
        for word in (*office.sent, *office.sent):
            office.posts[1].deliver(word)
        await settled(office, b)
        assert b.heard == [(Published("s", "first"), AN), (Published("s", "second"), AN)]


async def test_a_large_word_is_heard_once_and_so_are_those_behind_it(office: Office) -> None:
    a, b = Replica(office, AN), Replica(office, BN)
    large = Published("s", "x" * 40_000)
    async with opened(a, b):
        a.said.say(large, to=BN)
        a.said.say(Published("s", "small"), to=BN)
        await eventually(lambda: len(b.heard) == 2)
        assert [word for word, _ in b.heard] == [large, Published("s", "small")]
        office.posts[1].deliver(office.sent[0])
        await settled(office, b)
        assert len(b.heard) == 2


async def test_a_word_whose_number_was_cut_off_is_not_heard(office: Office) -> None:
    """It is sealed as a gateway of the version before would have it; but that has another name."""
    b = Replica(office, BN)
    async with opened(b):
        office.posts[0].deliver(KEYS.seal(write(Ended("kept"), sender=AN, to=None)))
        office.posts[0].deliver(KEYS.seal(write(Ended("of before"), sender=A, to=None)))
        await settled(office, b)
        assert b.heard == [(Ended("of before"), A)]


async def test_a_process_that_begins_later_hears_nothing_that_was_said_long_before(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    b = Replica(office, BN)
    now = SystemClock().now()
    async with opened(b):
        for age, text in ((FRESH + timedelta(seconds=1), "old"), (timedelta(), "new"), (timedelta(seconds=1), "older")):
            number = int((now - age).timestamp() * 1_000_000)
            office.posts[0].deliver(KEYS.seal(numbered(write(Ended(text), sender=AN, to=None), number)))
        await settled(office, b)
    assert b.heard == [(Ended("new"), AN)]
    assert caplog.messages == ["replayed messages are ignored: another program writes to the shared store"]


def test_a_gateway_of_the_version_before_reads_a_word_with_a_number() -> None:
    """It reads JSON, and counts what is in the list."""
    text = numbered(write(Published("s", "m"), sender=AN, to=BN), 2**63 + 5)
    assert json.loads(text) == [AN, BN, "Published", "s", "m"]
    envelope = read(text)
    assert envelope is not None
    assert envelope.number == 2**63 + 5
