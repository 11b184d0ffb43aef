"""Connections of strangers take no place of a probe, of a scrape, or of an operator with a token."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

import pytest

from helpers.host.raw import RawHost, raw_host, request_head
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.listener.operations import MOST_AT_WORK, MOST_CONNECTIONS, MOST_OF_ADDRESS, MOST_STRANGERS
from taskgate.operators.access import Role
from taskgate.operators.routes import Answer, ApiCall, EventStream, NoQuery, Route
from unit.listener.gate import MOMENT
from unit.listener.operating import TOKEN, Operated, operating, told

PROBE = request_head("GET", "/readyz", Host="localhost")
SCRAPE = request_head("GET", "/metrics", Host="localhost")
BEARER = f"Bearer {TOKEN}"
ELSEWHERE = "127.0.0.2"
PAGE = b"x" * 2**19
"""Several of them are more than the kernel takes for a peer that does not read."""
MANY = 500


def posted(path: str, **headers: str) -> bytes:
    """The head of a POST whose body does not come."""
    return request_head("POST", path, **{"Host": "localhost", "Content_Length": "10", **headers})


def acting() -> bytes:
    """The request of an operator with a token, whose body has two bytes."""
    return posted("/api/v1/tasks", Content_Length="2", Content_Type="application/json", Authorization=BEARER) + b"{}"


KINDS = {
    "silent": b"",
    "half a head": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n",
    "a handshake of TLS": bytes.fromhex("16030100c8010000c40303") + b"\0" * 200,
    "a body that does not come": posted("/api/v1/tasks"),
    "a body in chunks that do not come": posted("/api/v1/tasks", Content_Length="", Transfer_Encoding="chunked"),
    "a sign-in without a body": posted("/ui/session"),
    "a scrape that is not read": SCRAPE * 16,
    "probes that are not read": request_head("GET", "/readyz?verbose", Host="localhost") * 16,
    "files that are not read": request_head("GET", "/ui/console.js", Host="localhost") * 64,
    "idle after a request": request_head("GET", "/nothing", Host="localhost"),
    "idle after a probe": PROBE,
    "HEAD": request_head("HEAD", "/metrics", Host="localhost") * 16,
    "OPTIONS": request_head("OPTIONS", "/api/v1/tasks", Host="localhost") * 16,
}


async def answered(_: ApiCall) -> Answer:
    """Answer without content."""
    return Answer()


class Taken(NoQuery):
    """A body without members."""


ROUTE = Route(
    method="POST",
    path="/tasks",
    summary="Act",
    description="Acts.",
    role=Role.OPERATOR,
    answer=Answer,
    body=Taken,
    handler=answered,
)


@pytest.fixture
async def large(operated: Operated, monkeypatch: pytest.MonkeyPatch) -> Operated:
    """A listener whose metrics and readiness are long, with the API."""

    async def scrape(_: str | None) -> tuple[bytes, str]:
        return PAGE, "text/plain"

    monkeypatch.setattr(operated.metrics, "scrape", scrape)
    operated.servers = {"reports": {"text": PAGE.decode()}}
    operated.serve_api(ROUTE)
    return operated


@asynccontextmanager
async def strangers(operated: Operated, count: int, sent: bytes) -> AsyncIterator[list[socket.socket]]:
    """Connections that send the same, and read nothing."""
    made: list[socket.socket] = []
    try:
        async with bounded(120):
            for _ in range(count):
                one = socket.socket()
                made.append(one)
                one.setblocking(False)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                await asyncio.get_running_loop().sock_connect(one, operated.address)
                with suppress(ConnectionError, BlockingIOError):
                    one.send(sent)
                # The listener accepts between two of them, as it does for peers elsewhere.
                await asyncio.sleep(0)
        yield made
    finally:
        for one in made:
            one.close()


def is_open(connection: socket.socket) -> bool:
    """Whether the listener has not ended it; what it has sent is read."""
    try:
        while connection.recv(2**16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


async def statuses(operated: Operated, paths: list[str], source: str | None = None) -> list[int]:
    """Those of requests one after the other, each on a new connection."""
    found: list[int] = []
    for path in paths:
        async with raw_host(operated.address, source) as host:
            found.append((await host.ask(request_head("GET", path, Host="localhost"))).status)
    return found


@covers("T34", "T53")
@pytest.mark.parametrize("count", [MOST_CONNECTIONS, pytest.param(MANY, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("sent", KINDS.values(), ids=KINDS)
async def test_strangers_keep_no_probe_no_scrape_and_no_operator_out(large: Operated, sent: bytes, count: int) -> None:
    async with AsyncExitStack() as stack:
        prober = await stack.enter_async_context(raw_host(large.address, ELSEWHERE))
        assert (await prober.ask(PROBE)).status == 200
        made = await stack.enter_async_context(strangers(large, count, sent))
        assert await statuses(large, ["/livez", "/readyz"] * 19) == [200] * 38
        assert await statuses(large, ["/metrics"], ELSEWHERE) == [200]
        assert await statuses(large, ["/metrics"]) == [200]
        async with raw_host(large.address) as operator:
            assert (await operator.ask(acting())).status == 200
        assert (await prober.ask(PROBE)).status == 200, "a connection that has sent nothing but probes stays"
        # What the system still has to send of an ended connection comes before its end.
        await eventually(lambda: sum(map(is_open, made)) <= MOST_CONNECTIONS)


@covers("T34")
@pytest.mark.parametrize("begun", [b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"], ids=["silent", "slow"])
async def test_a_head_that_does_not_come_to_its_end_ends_its_connection(begun: bytes) -> None:
    async with operating(head_timeout=MOMENT) as operated:
        async with raw_host(operated.address) as host:
            await host.send(begun)
            assert await host.at_end()
        async with raw_host(operated.address) as host:
            assert (await host.ask(request_head("GET", "/livez", Host="localhost"))).status == 200
            await host.send(b"GET /livez HTTP/1.1\r\n")
            assert await host.at_end(), "so does the next head of a kept connection"


@pytest.mark.requirement("T34")
async def test_an_answer_may_take_longer_than_a_head() -> None:
    async with operating(head_timeout=MOMENT) as operated:
        operated.holds = asyncio.Event()
        async with raw_host(operated.address) as host:
            asking = asyncio.create_task(host.ask(PROBE))
            async with raw_host(operated.address) as silent:
                assert await silent.at_end()
            operated.holds.set()
            assert (await asking).status == 200


FRAMINGS = {"length": {}, "chunks": {"Content_Length": "", "Transfer_Encoding": "chunked"}}


@covers("T34", "T53")
@pytest.mark.parametrize("path", ["/api/v1/tasks", "/api/v1/nothing", "/ui/session", "/-/reload"])
@pytest.mark.parametrize(
    "framing", [{}, {"Content-Length": "", "Transfer-Encoding": "chunked"}], ids=["length", "chunks"]
)
async def test_the_body_of_a_stranger_is_not_waited_for(operated: Operated, path: str, framing: dict[str, str]) -> None:
    operated.serve_api(ROUTE)
    page = {"Origin": f"http://localhost:{operated.address[1]}"} if path == "/ui/session" else {}
    async with raw_host(operated.address) as host:
        head = request_head(
            "POST", path, Host=f"localhost:{operated.address[1]}", **page, **{"Content-Length": "10", **framing}
        )
        assert (await host.ask(head)).status == 401
        assert await host.at_end()


@pytest.mark.parametrize(("path", "status"), [("/api/v1/nothing", 404), ("/api/v1/tasks/x", 404)])
async def test_a_body_for_no_route_is_not_waited_for(operated: Operated, path: str, status: int) -> None:
    operated.serve_api(ROUTE)
    async with raw_host(operated.address) as host:
        answer = await host.ask(posted(path, Authorization=BEARER))
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert await host.at_end()


@covers("T34")
async def test_a_body_that_is_too_slow_is_refused_as_such() -> None:
    async with operating(head_timeout=MOMENT) as operated:
        operated.serve_api(ROUTE)
        async with raw_host(operated.address) as host:
            answer = await host.ask(posted("/api/v1/tasks", Authorization=BEARER))
            document = told(answer)
            assert isinstance(document, dict)
            assert (answer.status, document["error"]["code"]) == (408, "body_too_slow")
            assert await host.at_end()


async def stream(_: ApiCall) -> EventStream:
    """Stream without an end."""

    async def parts() -> EventStream:
        while True:
            yield PAGE

    return parts()


STREAM = Route(
    method="GET",
    path="/events",
    summary="Stream",
    description="Streams.",
    role=Role.VIEWER,
    answer=None,
    handler=stream,
)
VERBOSE = request_head("GET", "/readyz?verbose", Host="localhost")
NOT_READ = {
    "scrapes": SCRAPE * 16,
    "short answers": VERBOSE * 2000,
    "an event stream": request_head("GET", "/api/v1/events", Host="localhost", Authorization=BEARER),
}


def is_ended(connection: socket.socket) -> bool:
    """Whether the other side is gone, found without reading."""
    try:
        connection.send(b"\r\n")
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


@covers("T34", "T53")
@pytest.mark.parametrize("sent", NOT_READ.values(), ids=NOT_READ)
async def test_an_answer_that_is_not_read_ends_its_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scrape(_: str | None) -> tuple[bytes, str]:
        return PAGE, "text/plain"

    async with operating(write_timeout=MOMENT) as operated:
        monkeypatch.setattr(operated.metrics, "scrape", scrape)
        operated.servers = {"reports": {"text": "x" * 2000}}
        operated.serve_api(ROUTE, STREAM)
        async with strangers(operated, 1, sent) as [one]:
            await eventually(lambda: is_ended(one))
        async with raw_host(operated.address) as host:
            assert (await host.ask(SCRAPE)).body == PAGE, "a peer that reads has its answer"


@covers("T34", "T53")
async def test_probes_are_answered_while_very_many_readiness_checks_hang(operated: Operated) -> None:
    operated.holds = asyncio.Event()
    async with strangers(operated, MANY, PROBE):
        assert await statuses(operated, ["/livez"] * 38) == [200] * 38
        async with raw_host(operated.address) as host:
            asked = asyncio.create_task(host.ask(PROBE))
            count = operated.asked
            await eventually(lambda: operated.asked > count)
            operated.holds.set()
            assert (await asked).status == 200


@covers("T34", "T53")
async def test_scrapes_of_one_address_have_so_many_places_and_those_of_another_have_their_own(
    operated: Operated,
) -> None:
    operated.serve_api(ROUTE)
    operated.holds = asyncio.Event()
    async with AsyncExitStack() as stack:

        async def scrape(source: str | None) -> asyncio.Task[int]:
            host = await stack.enter_async_context(raw_host(operated.address, source))
            count = operated.asked
            scraping = asyncio.create_task(status_of(host, SCRAPE))
            await eventually(lambda: scraping.done() or operated.asked > count)
            return scraping

        sources = [None] * MOST_OF_ADDRESS + [ELSEWHERE] * (MOST_STRANGERS - MOST_OF_ADDRESS)
        running = [await scrape(source) for source in sources]
        assert not any(each.done() for each in running)
        for source in (None, ELSEWHERE, "127.0.0.3"):
            assert (await scrape(source)).result() == 503
        async with raw_host(operated.address) as operator:
            assert (await operator.ask(acting())).status == 200
        assert await statuses(operated, ["/livez"]) == [200]
        operated.holds.set()
        assert {await each for each in running} == {200}
        assert await (await scrape(None)) == 200


async def status_of(host: RawHost, sent: bytes) -> int:
    """The status of an answer."""
    return (await host.ask(sent)).status


@covers("T34", "T53")
async def test_requests_with_a_token_leave_places_to_probes(operated: Operated) -> None:
    held, running = asyncio.Event(), 0

    async def hold(_: ApiCall) -> Answer:
        nonlocal running
        running += 1
        await held.wait()
        return Answer()

    operated.serve_api(replace(ROUTE, handler=hold, body=None))
    bare = request_head("POST", "/api/v1/tasks", Host="localhost", Authorization=BEARER)
    async with AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(raw_host(operated.address)) for _ in range(MOST_AT_WORK)]
        asking = [asyncio.create_task(status_of(host, bare)) for host in hosts]
        await eventually(lambda: running == MOST_AT_WORK)
        async with raw_host(operated.address) as host:
            answer = await host.ask(bare)
            document = told(answer)
            assert isinstance(document, dict)
            assert (answer.status, document["error"]["code"], answer.headers["retry-after"]) == (503, "busy", "1")
        async with strangers(operated, MANY, b""):
            assert await statuses(operated, ["/livez", "/readyz"] * 19) == [200] * 38
        held.set()
        assert {await each for each in asking} == {200}


@pytest.mark.requirement("T34")
async def test_a_connection_without_a_request_gives_way_to_a_new_one(operated: Operated) -> None:
    async with AsyncExitStack() as stack:
        scraper = await stack.enter_async_context(raw_host(operated.address))
        assert (await scraper.ask(PROBE)).status == 200
        idle = [await stack.enter_async_context(raw_host(operated.address)) for _ in range(MOST_CONNECTIONS - 1)]
        # The second has begun a head, and not ended it.
        await idle[1].send(b"GET /livez HTTP/1.1\r\n")
        for gone in idle[:2]:
            probe = await stack.enter_async_context(raw_host(operated.address))
            assert (await probe.ask(PROBE)).status == 200
            assert await gone.at_end()
        assert (await scraper.ask(PROBE)).status == 200, "it was used"


@pytest.mark.requirement("T34")
async def test_of_connections_between_two_requests_the_one_that_waits_longest_gives_way(operated: Operated) -> None:
    async with AsyncExitStack() as stack:
        used = [await stack.enter_async_context(raw_host(operated.address)) for _ in range(MOST_CONNECTIONS)]
        for host in used:
            assert (await host.ask(PROBE)).status == 200
        assert (await used[0].ask(PROBE)).status == 200
        probe = await stack.enter_async_context(raw_host(operated.address))
        assert (await probe.ask(PROBE)).status == 200
        assert await used[1].at_end()
        assert (await used[0].ask(PROBE)).status == 200
