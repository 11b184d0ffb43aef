"""A head is found again by its bytes: all of them decide, but for the digits of Content-Length."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.host.raw import RawAnswer, post, request_head
from taskgate.auth.context import ANONYMOUS
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import LONG_BODY, LONG_HEAD, CountedHosts, Gate, opened

BEHIND = b"\r\n" * 20
"""Ends what is still open behind a changed head: a head, or a body of a greater length."""
USUAL = post("{}", Mcp_Session_Id="a", Mcp_Name="b", X_More="1")


async def telling(exchange: Exchange) -> HttpReply:
    """Know every caller, and answer with what is seen of a head."""
    head = exchange.head
    head.caller = ANONYMOUS
    seen: list[Any] = [head.method, head.path, head.host_session, head.revision, head.accepts_json, head.query]
    return HttpReply(body=json.dumps([*seen, sorted(exchange.fields)]))


async def assert_alike(gate: Gate, variants: list[bytes]) -> set[int]:
    """Send each on a connection that knows the usual head, and on a fresh one; return the statuses."""
    statuses = set[int]()
    for variant in variants:
        answers, bodies = list[RawAnswer](), list[bytes]()
        for before in ([], [USUAL]):
            async with gate.host() as host:
                for each in before:
                    assert (await host.ask(each)).status == 200
                answers.append(await host.ask(variant))
                bodies.append(gate.engine.bodies[-1] if answers[-1].status == 200 else b"")
        fresh, known = answers
        assert (known.status, known.body, bodies[1], variant) == (fresh.status, fresh.body, bodies[0], variant)
        statuses.add(fresh.status)
    return statuses


@pytest.mark.parametrize("change", ["case", "space", "left out", "twice"])
async def test_a_head_that_differs_in_one_byte_is_answered_as_on_a_fresh_connection(change: str) -> None:
    variants = []
    for at in range(USUAL.index(b"\r\n\r\n") + 4):
        byte = USUAL[at : at + 1]
        other = {"case": byte.swapcase(), "space": b" ", "left out": b"", "twice": byte * 2}[change]
        if other != byte:
            variants.append(USUAL[:at] + other + USUAL[at + 1 :] + BEHIND)
    async with opened(telling) as gate:
        assert {200, 400} <= await assert_alike(gate, variants)


LENGTHS = ["2", "02", "0002", "12", "0", "00", "000000000000000002", "0000000000000000002", "9" * 18, "9" * 19]
LENGTHS += [
    "+2",
    "-2",
    " 2",
    "2 ",
    "\t2\t",
    "2,2",
    "2, 2",
    "2;",
    "0x2",
    "2.0",
    "1e1",
    "2_0",
    "2\x0b",
    "\xb2",
    "2 2",
    "2a",
]
LENGTHS += [str(LONG_BODY + 1), "2\r\nContent-Length: 2", "2\r\nTransfer-Encoding: chunked", "2\r\n 2", "\r\n 2", " "]


async def test_each_content_length_is_answered_as_on_a_fresh_connection() -> None:
    variants = [USUAL.replace(b"Length: 2", b"Length: " + each.encode("latin-1")) + BEHIND for each in LENGTHS]
    async with opened(telling) as gate:
        assert {200, 400, 413} == await assert_alike(gate, variants)


async def test_another_length_is_the_same_head_and_no_length_is_one_of_the_same_admission() -> None:
    hosts = CountedHosts({"gate.example"})
    async with opened(telling, allowed_hosts=hosts) as gate, gate.host() as host:
        for size in (2, 0, 10, 1000, 2):
            assert (await host.ask(post("x" * size))).status == 200
        assert hosts.asked == 1
        assert [len(body) for body in gate.engine.bodies] == [2, 0, 10, 1000, 2]
        # Without a length it is another head, of which the admission is known.
        assert (await host.ask(post("", Content_Length=""))).status == 200
        assert gate.engine.bodies[-1] == b""
        assert hosts.asked == 1


async def test_a_head_that_comes_in_parts_is_found_too_and_what_follows_it_is_read() -> None:
    hosts = CountedHosts({"gate.example"})
    async with opened(telling, allowed_hosts=hosts) as gate, gate.host() as host:
        await host.ask(USUAL)
        for at in range(1, len(USUAL), 7):
            await host.send(USUAL[:at])
            for _ in range(6):
                await asyncio.sleep(0)
            await host.send(USUAL[at:] + post("behind", Origin="https://app.example"))
            assert [(await host.answer()).status for _ in range(2)] == [200, 200]
            assert gate.engine.bodies[-2:] == [b"{}", b"behind"]
        assert hosts.asked == 2


async def test_requests_with_one_head_that_come_at_once_are_remembered_as_one() -> None:
    hosts = CountedHosts({"gate.example"})
    async with opened(telling, allowed_hosts=hosts) as gate, gate.host() as host:
        await host.ask(post(User_Agent="first"))
        await host.send(post() * 10)
        assert [(await host.answer()).status for _ in range(10)] == [200] * 10
        await host.ask(post(User_Agent="first"))
        assert hosts.asked == 2


async def test_a_head_that_its_length_makes_too_large_is_refused_though_it_is_known() -> None:
    # With a length of one digit, the path and the fields are as large as allowed.
    around = "POST  HTTP/1.1\r\n\r\n"
    filler = "x" * (LONG_HEAD + len(around) + 1 - len(post("", Content_Length="2", X_Filler="x")))
    async with opened(telling) as gate, gate.host() as host:
        for length, status in (("2", 200), ("2", 200), ("02", 431)):
            assert (await host.ask(post("{}", Content_Length=length, X_Filler=filler))).status == status


MESSAGES = [
    post("{}"),
    post("x" * 100),
    post("", Content_Length=""),
    post("{}", Mcp_Name="a"),
    post("", Content_Length="", Transfer_Encoding="chunked") + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    request_head("DELETE", "/mcp", Host="gate.example"),
    b"\r\n" + post("y" * 10),
]


async def play(sent: bytes, cuts: list[int], count: int, *, remembers: bool) -> list[Any]:
    """What was answered, and what the gateway got, for these bytes, cut at these places."""

    async def answer(exchange: Exchange) -> HttpReply:
        return await telling(exchange) if remembers else HttpReply(body=(await telling_of_a_stranger(exchange)))

    async with opened(answer) as gate, gate.host() as host:
        for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
            await host.send(sent[start:end])
            for _ in range(4):
                await asyncio.sleep(0)
        answers = [await host.answer() for _ in range(count)]
        return [[(each.status, each.body) for each in answers], gate.engine.bodies]


async def telling_of_a_stranger(exchange: Exchange) -> str:
    """The same answer, for a caller that stays unknown."""
    reply = await telling(exchange)
    exchange.head.caller = None
    assert isinstance(reply.body, str)
    return reply.body


@given(st.lists(st.integers(0, len(MESSAGES) - 1), min_size=2, max_size=12), st.lists(st.floats(0, 1), max_size=6))
def test_requests_that_are_cut_anywhere_are_answered_the_same_with_heads_remembered_and_without(
    chosen: list[int], places: list[float]
) -> None:
    sent = b"".join(MESSAGES[number] for number in chosen)
    cuts = sorted(int(place * len(sent)) for place in places)
    remembered = asyncio.run(play(sent, cuts, len(chosen), remembers=True))
    assert remembered == asyncio.run(play(sent, cuts, len(chosen), remembers=False))
