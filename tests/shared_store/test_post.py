"""Words between processes, and parcels."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.shared_store import KINDS, Kind, SharedServer
from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.open import open_shared
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.shared import SharedBackend

LONG = timedelta(seconds=10)
SHORT = timedelta(milliseconds=20)
HIGHEST = f"{2**64 - 1}-{2**64 - 1}"


@pytest.fixture
async def third(shared_options: RedisOptions) -> AsyncIterator[SharedBackend]:
    """One more process."""
    shared = await open_shared(shared_options)
    yield shared
    await shared.store.close()


def stream_of(options: RedisOptions) -> str:
    """Where the words lie."""
    return f"{options.key_prefix}{{taskgate}}:post"


async def heard(shared: SharedBackend, count: int) -> list[bytes]:
    """The next words that a process hears."""
    words: list[bytes] = []
    async with bounded():
        while len(words) < count:
            words += await shared.bus.receive(timeout=LONG)
    return words


async def test_every_other_process_hears_a_word_once_and_in_order(
    one: SharedBackend, other: SharedBackend, third: SharedBackend
) -> None:
    words = [b"word %d" % number for number in range(600)]
    for word in words:
        await one.bus.send(word)
    assert await heard(other, len(words)) == words
    assert await heard(third, len(words)) == words
    assert await other.bus.receive(timeout=SHORT) == ()


async def test_a_process_does_not_hear_itself(one: SharedBackend, other: SharedBackend) -> None:
    await one.bus.send(b"mine")
    await other.bus.send(b"yours")
    assert await heard(one, 1) == [b"yours"]
    assert await one.bus.receive(timeout=SHORT) == ()


async def test_who_waits_is_told_at_once(one: SharedBackend, other: SharedBackend) -> None:
    waiting = asyncio.create_task(other.bus.receive(timeout=timedelta(hours=1)))
    async with bounded():
        await asyncio.sleep(0)
        await one.bus.send(b"\x00\xff")
        assert await waiting == (b"\x00\xff",)


async def test_what_was_said_before_a_process_came_is_not_for_it(
    one: SharedBackend, shared_options: RedisOptions
) -> None:
    await one.bus.send(b"early")
    late = await open_shared(shared_options)
    await one.bus.send(b"late")
    assert await heard(late, 1) == [b"late"]
    await late.store.close()


async def test_a_word_is_not_lost_to_who_gave_up_waiting(one: SharedBackend, other: SharedBackend) -> None:
    waiting = asyncio.create_task(other.bus.receive(timeout=LONG))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    await one.bus.send(b"after")
    assert await heard(other, 1) == [b"after"]


async def test_what_was_said_while_a_process_was_cut_off_is_heard_afterwards(
    one: SharedBackend, other: SharedBackend, shared_server: SharedServer
) -> None:
    await one.bus.send(b"before")
    assert await heard(other, 1) == [b"before"]
    waiting = asyncio.create_task(other.bus.receive(timeout=LONG))
    async with bounded():
        while b"cmd=xread" not in shared_server.ask("CLIENT", "LIST"):
            await asyncio.sleep(0)
    shared_server.ask("CLIENT", "KILL", "TYPE", "normal")
    with pytest.raises(StoreUnavailable):
        await waiting
    await one.bus.send(b"meanwhile")
    assert await heard(other, 1) == [b"meanwhile"]


async def test_words_are_heard_again_after_the_store_has_forgotten_all(
    one: SharedBackend, other: SharedBackend, shared_server: SharedServer, shared_options: RedisOptions
) -> None:
    """A server that took over may number words anew, below those that were heard."""
    root = f"{shared_options.key_prefix}{{taskgate}}:"
    await one.bus.send(b"before")
    assert await heard(other, 1) == [b"before"]
    shared_server.ask("DEL", f"{root}post")
    shared_server.ask("XADD", f"{root}post", "1-1", "by", "somebody", "word", "forgotten")
    shared_server.ask("PEXPIRE", f"{root}post", 60_000)
    shared_server.ask("CLIENT", "KILL", "TYPE", "normal")
    with pytest.raises(StoreUnavailable):
        await other.bus.receive(timeout=LONG)
    assert await other.bus.receive(timeout=SHORT) == ()
    shared_server.ask("XADD", f"{root}post", "2-1", "by", "somebody", "word", "anew")
    assert await heard(other, 1) == [b"anew"]


async def test_what_is_no_word_is_passed_over(
    one: SharedBackend,
    other: SharedBackend,
    shared_server: SharedServer,
    shared_options: RedisOptions,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for garbage in (("word", "of nobody"), ("by", "nobody"), ("", "")) * 2:
        shared_server.ask("XADD", stream_of(shared_options), "*", *garbage)
    await one.bus.send(b"between")
    shared_server.ask("XADD", stream_of(shared_options), "*", "by", "nobody")
    await one.bus.send(b"after")
    assert await heard(other, 2) == [b"between", b"after"]
    assert caplog.text.count("An entry of the cluster bus that no gateway wrote") == 1


@pytest.mark.parametrize("placed", [("SET", "nothing"), ("XADD", HIGHEST, "by", "somebody", "word", "the last")])
async def test_what_takes_no_more_words_makes_room_for_what_does(
    placed: tuple[str, ...],
    one: SharedBackend,
    other: SharedBackend,
    shared_server: SharedServer,
    shared_options: RedisOptions,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await one.bus.send(b"before")
    assert await heard(other, 1) == [b"before"]
    command, *rest = placed
    shared_server.ask(command, stream_of(shared_options), *rest)
    if command == "XADD":
        assert await heard(other, 1) == [b"the last"]
    speaking = asyncio.create_task(repeat(one, b"anew"))
    async with bounded():
        while not (words := await heard_of(other)):
            pass
    speaking.cancel()
    await asyncio.wait((speaking,))
    assert set(words) == {b"anew"}
    assert caplog.text.count("The stream of the cluster bus was replaced") == 1


async def heard_of(shared: SharedBackend) -> tuple[bytes, ...]:
    """What a process hears in a moment, if it can."""
    try:
        return await shared.bus.receive(timeout=5 * SHORT)
    except StoreUnavailable:
        return ()


async def repeat(shared: SharedBackend, word: bytes) -> None:
    """Say a word again and again."""
    while True:
        await shared.bus.send(word)
        await asyncio.sleep(0.01)


async def test_an_idle_process_asks_less_than_once_a_second(one: SharedBackend, shared_server: SharedServer) -> None:
    assert await one.bus.receive(timeout=SHORT) == ()
    shared_server.ask("CONFIG", "RESETSTAT")
    assert await one.bus.receive(timeout=timedelta(seconds=2)) == ()
    assert shared_server.commands()["xread"] == 1


async def test_a_parcel_is_fetched_once_by_whoever_comes_first(one: SharedBackend, other: SharedBackend) -> None:
    parcel = bytes(range(256)) * 4096
    await one.bus.leave("answer", parcel, keep=LONG)
    fetched = await asyncio.gather(*(shared.bus.fetch("answer") for shared in (one, other, one, other)))
    assert sorted(fetched, key=lambda each: each is None) == [parcel, None, None, None]
    assert await one.bus.fetch("nothing") is None


async def test_a_parcel_that_nobody_fetches_is_gone_in_the_end(one: SharedBackend) -> None:
    await one.bus.leave("answer", b"", keep=timedelta(microseconds=1))
    async with bounded():
        while await one.bus.fetch("answer") is not None:
            await one.bus.leave("answer", b"", keep=timedelta(microseconds=1))


async def test_a_word_that_finds_no_stream_makes_room_and_is_there(
    one: SharedBackend, shared_server: SharedServer, shared_options: RedisOptions
) -> None:
    shared_server.ask("SET", stream_of(shared_options), "no stream", "PX", 60_000)
    await one.bus.send(b"word")
    ((_, fields),) = shared_server.ask("XRANGE", stream_of(shared_options), "-", "+")
    assert b"word" in (fields.values() if isinstance(fields, dict) else fields)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_whose_memory_is_full_keeps_the_words_it_has(tmp_path: Path, kind: Kind) -> None:
    async with SharedServer(tmp_path, kind) as server, bounded():
        shared = await open_shared(options := server.options())
        try:
            await shared.bus.send(b"word")
            server.ask("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(StoreUnavailable):
                await shared.bus.send(b"another")
            assert server.ask("XLEN", stream_of(options)) == 1
            server.ask("CONFIG", "SET", "maxmemory", "0")
        finally:
            await shared.store.close()
