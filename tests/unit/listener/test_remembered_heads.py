"""A head that was admitted, and whose caller is known, is admitted again on its connection without a check."""

import asyncio
import json
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.host.raw import RawAnswer, RawHost, post, request_head
from taskgate.auth.context import ANONYMOUS
from taskgate.listener.door import ADMISSION_FIELDS, MOST_REMEMBERED, MOST_REMEMBERED_BYTES
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import LONG_BODY, CountedHosts, Gate, opened

OTHER_PATH = "/other/mcp"


async def known(exchange: Exchange) -> HttpReply:
    """A gateway that knows every caller."""
    exchange.head.caller = ANONYMOUS
    return HttpReply(body="{}")


@pytest.fixture
def hosts() -> CountedHosts:
    return CountedHosts({"gate.example"})


@pytest.fixture
async def gate(hosts: CountedHosts) -> AsyncIterator[Gate]:
    """A listener in front of a gateway that knows every caller."""
    async with opened(known, allowed_hosts=hosts) as gate:
        yield gate


async def test_a_head_is_checked_once_for_all_requests_that_bring_it(gate: Gate, hosts: CountedHosts) -> None:
    async with gate.host() as host:
        for number in range(3):
            # What belongs to one message may differ: its length, its name, its trace.
            more = {"Mcp_Name": f"tool-{number}", "Traceparent": f"00-{number}", "X_Request_Id": str(number)}
            assert (await host.ask(post("{" + " " * 10**number + "}", User_Agent="host/1", **more))).status == 200
    assert hosts.asked == 1
    assert gate.engine.seen[0] is gate.engine.seen[1] is gate.engine.seen[2]
    contexts = gate.emitted.closing()
    assert len({context.id for context in contexts}) == 3
    assert {(each.address, each.verb, each.path, each.agent, each.status) for each in contexts} == {
        ("127.0.0.1", "POST", "/mcp", "host/1", 200)
    }


async def test_a_length_of_thousands_of_digits_is_read_also_where_its_head_is_remembered() -> None:
    async with opened(known, max_header=8192) as gate, gate.host() as host:
        for zeros in (0, 5000, 5000):
            assert (await host.ask(post("{}", Content_Length="0" * zeros + "2"))).status == 200
        assert len(gate.emitted.closing()) == 3


async def test_another_connection_is_another_matter(gate: Gate, hosts: CountedHosts) -> None:
    for _ in range(2):
        async with gate.host() as host:
            await host.ask(post())
    assert hosts.asked == 2


async def test_a_head_whose_caller_is_unknown_is_checked_each_time() -> None:
    hosts = CountedHosts({"gate.example"})
    async with opened(allowed_hosts=hosts) as gate, gate.host() as host:
        for _ in range(3):
            await host.ask(post())
    assert hosts.asked == 3


async def test_a_head_that_is_refused_is_refused_each_time(gate: Gate, hosts: CountedHosts) -> None:
    async with gate.host() as host:
        for _ in range(2):
            assert (await host.ask(post())).status == 200
            assert (await host.ask(post(Origin="https://evil.example"))).status == 403
    assert (hosts.asked, len(gate.engine.seen)) == (3, 2)


OTHERS: dict[str, bytes] = {
    "method": request_head("DELETE", "/mcp", Host="gate.example", Content_Type="application/json", Accept="*/*"),
    "path": post(path=OTHER_PATH),
    "query": post(path="/mcp?a=b"),
    "version": post().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "a field twice": post(Accept="*/*\r\nAccept: application/json"),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_a_head_of_another_form_is_another_head(gate: Gate, other: str) -> None:
    async with gate.host() as host:
        await host.ask(post())
        assert (await host.ask(OTHERS[other])).status == 200
    assert gate.engine.seen[0] is not gate.engine.seen[1]


VALUES: dict[str, tuple[str, str]] = {
    "Accept": ("*/*", "application/json"),
    "Authorization": ("Bearer a", "Bearer b"),
    "Content-Encoding": ("identity", "Identity"),
    "Content-Type": ("application/json", "Application/json"),
    "Expect": ("100-continue", "100-Continue"),
    "Forwarded": ("for=192.0.2.1", "for=192.0.2.2"),
    "Host": ("gate.example", "Gate.example"),
    "Last-Event-ID": ("a", "b"),
    "Mcp-Session-Id": ("a", "b"),
    "MCP-Protocol-Version": ("2025-11-25", "2026-07-28"),
    "Origin": ("https://app.example", "https://App.example"),
    "Transfer-Encoding": ("chunked", "Chunked"),
    "User-Agent": ("host/1", "host/2"),
    "X-API-Key": ("tgk_a", "tgk_b"),
    "X-Forwarded-For": ("192.0.2.1", "192.0.2.2"),
}


def test_every_field_that_admission_reads_is_compared() -> None:
    names = {name.lower() for name in ADMISSION_FIELDS}
    assert names == {name.lower() for name in VALUES}


@pytest.mark.parametrize("name", VALUES)
async def test_another_value_of_a_field_that_admission_reads_makes_another_head(gate: Gate, name: str) -> None:
    async with gate.host() as host:
        for value in (*VALUES[name], *VALUES[name]):
            sent = {name.replace("-", "_"): value, "X_More": "1"}
            if name == "Transfer-Encoding":
                await host.send(post("", Content_Length="", **sent), b"2\r\n{}\r\n0\r\n\r\n")
            else:
                await host.send(post(**sent) if name != "Host" else post(host=value))
            assert (await host.answer()).status == 200
    first, second, *again = gate.engine.seen
    assert first is not second
    assert again[0] is first
    assert again[1] is second


@pytest.mark.parametrize(
    ("name", "value", "status"), [("Origin", "null", 403), ("Expect", "x", 417), ("Content_Encoding", "gzip", 415)]
)
async def test_a_field_that_admission_reads_is_seen_in_the_place_of_one_that_it_does_not(
    gate: Gate, name: str, value: str, status: int
) -> None:
    async with gate.host() as host:
        assert (await host.ask(post(X_More="1"))).status == 200
        assert (await host.ask(post(**{name: value}))).status == status


async def test_a_trusted_proxy_says_for_each_request_where_it_comes_from() -> None:
    addresses: list[str] = []

    async def listening(exchange: Exchange) -> HttpReply:
        addresses.append(exchange.address)
        return await known(exchange)

    async with opened(listening, trusted_proxies=(ip_network("127.0.0.0/8"),)) as gate, gate.host() as host:
        for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.2"):
            await host.ask(post(X_Forwarded_For=address))
    assert addresses == ["192.0.2.1", "192.0.2.2"] * 2
    assert [context.address for context in gate.emitted.closing()] == addresses


async def test_a_body_that_is_too_large_is_refused_behind_a_known_head(gate: Gate) -> None:
    async with gate.host() as host:
        await host.ask(post())
        assert (await host.ask(post(Content_Length=str(LONG_BODY + 1)))).status == 413
    assert gate.emitted.refused() == ["body_too_large"]


async def test_after_a_reload_every_head_is_checked_again(gate: Gate, hosts: CountedHosts) -> None:
    async with gate.host() as host:
        for _ in range(2):
            await host.ask(post())
            await host.ask(post(User_Agent="host/2"))
        assert hosts.asked == 2
        gate.listener.forget_admissions()
        for _ in range(2):
            await host.ask(post())
            await host.ask(post(User_Agent="host/2"))
    assert hosts.asked == 4


async def test_a_head_is_not_remembered_if_a_reload_came_after_its_check() -> None:
    paths, gates = {"/mcp"}, list[Gate]()

    async def reloading(exchange: Exchange) -> HttpReply:
        if paths:
            paths.clear()
            gates[0].listener.forget_admissions()
        return await known(exchange)

    async with opened(reloading, paths=paths) as gate, gate.host() as host:
        gates.append(gate)
        assert [(await host.ask(post())).status for _ in range(2)] == [200, 404]


class Trail:
    """An audit log whose room is awaited when `is_full`; meanwhile a mount is removed."""

    def __init__(self, paths: set[str]) -> None:
        self.is_full = False
        self.paths = paths
        self.forget: Any = None

    async def room(self) -> bool:
        self.paths.clear()
        self.forget()
        return True


async def test_a_mount_that_is_removed_while_a_request_waits_for_audit_room_is_not_found() -> None:
    paths = {"/mcp"}
    audit_capacity = Trail(paths)
    async with opened(known, audit_capacity=audit_capacity, paths=paths) as gate, gate.host() as host:
        audit_capacity.forget = gate.listener.forget_admissions
        assert (await host.ask(post())).status == 200
        audit_capacity.is_full = True
        assert (await host.ask(post())).status == 404


# --- how much is remembered ----------------------------------------------------------------------------------------


async def test_a_connection_remembers_eight_heads_used_last(gate: Gate, hosts: CountedHosts) -> None:
    async def asked(number: int) -> int:
        before = hosts.asked
        await host.ask(post(User_Agent=f"host/{number}"))
        return hosts.asked - before

    async with gate.host() as host:
        assert [await asked(number) for number in range(100)] == [1] * 100
        newest = range(100 - MOST_REMEMBERED, 100)
        assert MOST_REMEMBERED == 8
        assert [await asked(number) for number in newest] == [0] * MOST_REMEMBERED
        assert await asked(newest[0] - 1) == 1
        # The one that is used goes on.
        assert [await asked(number) for each in range(200, 300) for number in (each, 99)] == [1, 0] * 100


async def test_long_heads_are_remembered_up_to_a_size() -> None:
    size, hosts = MOST_REMEMBERED_BYTES // 3, CountedHosts({"gate.example"})
    async with opened(known, allowed_hosts=hosts, max_header=2 * size) as gate, gate.host() as host:
        for agent in ("a", "b", "c", "c", "b", "a"):
            await host.ask(post(User_Agent=agent * size))
    # The third pushed the first out.
    assert hosts.asked == 4


# --- the same as without a memory ----------------------------------------------------------------------------------


async def telling(exchange: Exchange) -> HttpReply:
    """A gateway that knows who has a good token, and answers with all that it sees of a request."""
    head = exchange.head
    if head.authorization != ("Bearer good",):
        return HttpReply(status=401)
    head.caller = ANONYMOUS
    seen: list[Any] = [head.method, head.path, head.host_session, head.revision, head.accepts_json, head.accepts_stream]
    seen += [head.query, head.last_event_id, exchange.address]
    return HttpReply(body=json.dumps([*seen, sorted(exchange.fields)]))


USUAL = {
    "Host": "gate.example",
    "X-Forwarded-For": "192.0.2.1",
    "Content-Type": "application/json",
    "Authorization": "Bearer good",
    "Mcp-Name": "a",
}
CHANGES: dict[str, tuple[str, ...]] = {
    "Host": ("GATE.example", "evil.example"),
    "Content-Type": ("text/plain", "", "application/json\r\nContent-Encoding: gzip"),
    "Accept": ("*/*", "application/json", "text/event-stream", "text/html"),
    "Authorization": ("Bearer bad", "Bearer good\r\nAuthorization: Bearer bad", ""),
    "Origin": ("https://app.example", "null"),
    "Mcp-Session-Id": ("a", "b", "a b", "a\r\nmcp-session-id: b"),
    "MCP-Protocol-Version": ("2025-11-25", "2026-07-28", "2025-11-25\r\nMCP-Protocol-Version: 2026-07-28"),
    "Last-Event-ID": ("a", "b"),
    "Expect": ("202-teapot",),
    "Upgrade": ("websocket",),
    "X-Forwarded-For": ("192.0.2.2", "192.0.2.1\r\nForwarded: for=192.0.2.3", ""),
    "User-Agent": ("host/1", "host/2"),
    "Mcp-Name": ("b", "", "\r\nOrigin: null"),
}
RELOAD = "reload"


def sent(method: str, path: str, changes: list[tuple[str, str]], size: int) -> bytes:
    """A request with the usual head but for some changes."""
    body = b" " * size if method == "POST" else b""
    length = {"Content-Length": str(size)} if method == "POST" else {}
    return request_head(method, path, **{**USUAL, **dict(changes), **length}) + body


requests = st.builds(
    sent,
    st.sampled_from(["POST"] * 8 + ["GET", "DELETE", "PUT"]),
    st.sampled_from(["/mcp"] * 6 + [OTHER_PATH, "/mcp?a=b", "/nowhere"]),
    st.lists(st.sampled_from([(name, value) for name, values in CHANGES.items() for value in values]), max_size=2),
    st.sampled_from([2, 2, 20, LONG_BODY + 1]),
)


def told(answer: RawAnswer) -> tuple[int, bytes]:
    return answer.status, answer.body


async def compare(steps: list[bytes | str]) -> None:
    """Send the requests on one connection as long as it is kept, and each on a connection of its own as well."""
    paths, proxies = {"/mcp", OTHER_PATH}, (ip_network("127.0.0.0/8"),)
    async with opened(telling, paths=paths, trusted_proxies=proxies) as gate:
        kept = await RawHost.connect(gate.address)
        try:
            for step in steps:
                if isinstance(step, str):
                    paths ^= {OTHER_PATH}
                    gate.listener.forget_admissions()
                    continue
                async with gate.host() as host:
                    fresh = await host.ask(step)
                again = await kept.ask(step)
                assert told(again) == told(fresh)
                if again.headers.get("connection") == "close":
                    await kept.close()
                    kept = await RawHost.connect(gate.address)
        finally:
            await kept.close()
        contexts = gate.emitted.closing()
        fields = [(each.address, each.verb, each.path, each.agent, each.status, each.refusal) for each in contexts]
        assert fields[::2] == fields[1::2]


@given(st.lists(requests | st.just(RELOAD), min_size=1, max_size=8), st.lists(st.integers(0, 7), max_size=12))
def test_on_a_kept_connection_every_head_is_answered_as_on_a_fresh_one(
    steps: list[bytes | str], repeated: list[int]
) -> None:
    usual = sent("POST", "/mcp", [], 2)
    mixed = [each for step in steps for each in (usual, step)]
    asyncio.run(compare([*mixed, *(steps[number % len(steps)] for number in repeated), usual]))
