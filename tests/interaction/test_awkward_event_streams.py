"""Servers of HTTP+SSE that misbehave, behind the whole gateway: what becomes of a call of each kind, exactly, for hosts
of both eras, and that the next call works.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server.sse import SseServer, SseStream
from requirements import covers

GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
PROPER = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}'
JUNK = (
    b"event: ping\ndata: 1\n\ndata: Loading\n\n: hello\n\ndata\n\ndata: []\n\ndata: [42]\n\n"
    b"event: message\n\ndata: \xff\xfe\n\n\n\n"
)
LARGEST = 65536
"""Bytes that are kept of a result here."""

TASKS = {"max_result": f"{LARGEST}B", "upgrade": [{"tool": "echo", "mode": "sync"}, {"tool": "*", "mode": "always"}]}

Says = Callable[[SseStream, int], None]


def event(text: bytes) -> bytes:
    return b"data: " + text + b"\n\n"


def lines(text: bytes) -> bytes:
    """The same in as many lines as there are commas, ended in all the ways that a line can end."""
    return b"\r\n".join(b"data:" + part for part in text.replace(b",", b",\n").split(b"\n")) + b"\r\r"


def ends(stream: SseStream, _: int) -> None:
    stream.exit()


def ends_within(stream: SseStream, id: int) -> None:
    stream.say(event(PROPER % (id, b"well"))[:40])
    stream.exit()


WELL: dict[str, Says] = {
    "junk": lambda stream, id: stream.say(JUNK, event(PROPER % (id, b"well")), JUNK),
    "strangers": lambda stream, id: stream.say(event(PROPER % (id + 10**6, b"ill")), event(PROPER % (id, b"well"))),
    "twice": lambda stream, id: stream.say(event(PROPER % (id, b"well")), event(PROPER % (id, b"ill"))),
    "bytes": lambda stream, id: stream.say(*(bytes([byte]) for byte in event(PROPER % (id, b"well")))),
    "lines": lambda stream, id: stream.say(lines(PROPER % (id, b"well"))),
    "in_an_array": lambda stream, id: stream.say(
        event(b"[%s, %s]" % (PROPER % (id + 10**6, b"ill"), PROPER % (id, b"well")))
    ),
    "large": lambda stream, id: stream.say(event(PROPER % (id, b"well" * 10**4))),
}
"""By tool: how it answers, well all the same."""

NO_MESSAGE = "The server broke the protocol: a message of it is not JSON-RPC"
ENDED = "The server's event stream ended"
FAILED: dict[str, tuple[Says, str, str]] = {
    "latin": (lambda stream, id: stream.say(event(PROPER % (id, b"caf\xe9"))), "malformed", NO_MESSAGE),
    "broken": (lambda stream, id: stream.say(event((PROPER % (id, b"well"))[:-1])), "malformed", NO_MESSAGE),
    "neither": (lambda stream, id: stream.say(event(b'{"jsonrpc":"2.0","id":%d}' % id)), "malformed", NO_MESSAGE),
    "doubled": (
        lambda stream, id: stream.say(event(b'{"jsonrpc":"2.0","id":%d,' % id + (PROPER % (id, b"well"))[1:])),
        "malformed",
        NO_MESSAGE,
    ),
    "too_large": (
        lambda stream, id: stream.say(event(PROPER % (id, b"x" * 2 * LARGEST))),
        "too_large",
        "The server's answer is too large",
    ),
    "endless": (
        lambda stream, _: stream.say(b"data: " + b"x" * 2 * LARGEST),
        "too_large",
        "The server's answer is too large",
    ),
    "ends": (ends, "closed", ENDED),
    "ends_within": (ends_within, "closed", ENDED),
}
"""By tool: how it answers, and why its call fails, and what is said of that."""


@pytest.fixture
async def events() -> AsyncIterator[SseServer]:
    """A server with all of these tools, which answers them as the test says."""
    async with SseServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", *WELL, *FAILED)]
        server.silent |= {f"tool:{name}" for name in (*WELL, *FAILED)}
        yield server


def before(server: SseServer, **keys: Any) -> Any:
    """A gateway before that server. Calls of hosts that can have tasks are tasks at once, but for those of `echo`."""
    upstream = {"path": "/reports/mcp", "transport": "sse", "url": server.url, "protocol_version": "auto", **keys}
    return serve(configuration({}, upstreams={"reports": upstream}, tasks=TASKS))


@pytest.fixture
async def gateway(events: SseServer) -> AsyncIterator[Gateway]:
    async with before(events) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: Gateway) -> Host:
    return await gateway.greeted()


async def answered_by(says: Says, events: SseServer, times: int) -> None:
    """Have the call answered that is made as the first, the second, …"""
    line, asked = await events.asked("tools/call", times)
    says(line, asked["id"])  # type: ignore[arg-type]


async def works(host: Any) -> bool:
    return bool((await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1})


@covers("U-SSE-1")
@pytest.mark.parametrize("tool", WELL)
async def test_a_call_is_answered_in_spite_of_what_else_comes(events: SseServer, host: Host, tool: str) -> None:
    task = (await host.start(tool))["taskId"]
    await answered_by(WELL[tool], events, 1)
    result = (await host.ask("tasks/result", {"taskId": task})).result
    assert result["content"][0]["text"].startswith("well")
    assert await works(host)
    assert len(events.gets) == 1


@covers("U-SSE-3")
@pytest.mark.parametrize("tool", FAILED)
async def test_a_task_fails_and_says_why_and_the_next_call_works(
    gateway: Gateway, events: SseServer, host: Host, tool: str
) -> None:
    says, reason, message = FAILED[tool]
    task = (await host.start(tool))["taskId"]
    await answered_by(says, events, 1)
    assert (await host.until(task, "failed"))["statusMessage"] == message
    error = (await host.ask("tasks/result", {"taskId": task})).error
    assert (error["code"], error["message"]) == (-32603, message)
    assert error["data"] == {"origin": "upstream", "reason": reason, "dispatched": True}
    assert await works(host)
    modern = gateway.modern()
    made = await modern.start(tool)
    await answered_by(says, events, 3)
    error = (await modern.until(made["taskId"], "failed"))["error"]
    assert (error["message"], error["data"]["reason"]) == (message, reason)
    assert await works(modern)


# --- the start -----------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "elsewhere": (
        {"endpoint": "http://127.0.0.1:1/messages"},
        "redirect",
        "The server's message endpoint is on another origin, which is not allowed",
    ),
    "nowhere": ({"endpoint": None}, "timeout", "The server did not send its message endpoint in time"),
    "at_once": (
        {"endpoint": None, "ends_early": True},
        "unreachable",
        "The server's event stream ended before it sent its message endpoint",
    ),
    "no_stream": (
        {"content_type": "application/json"},
        "malformed",
        "The server broke the protocol: it did not answer with an event stream",
    ),
    "missing": ({"get": 404}, "refused", "The server refused the request with HTTP status 404"),
    "failing": ({"get": 500}, "refused", "The server refused the request with HTTP status 500"),
    "deaf": ({"post": 500}, "refused", "The server refused the request with HTTP status 500"),
    "endless": (
        {"endpoint": None, "before": b"data: " + b"x" * 2 * LARGEST},
        "too_large",
        "The server's answer is too large",
    ),
    "moved": (
        {"moved": {"/sse": "http://127.0.0.1:1/sse"}},
        "redirect",
        "The server sent a redirect that the gateway does not follow",
    ),
}
"""By what is wrong: how the server is made so, and what a host is told that comes then."""


@covers("U-SSE-2")
@pytest.mark.parametrize("wrong", REFUSED)
async def test_whoever_comes_to_a_server_that_cannot_be_spoken_to_is_told_and_served_when_it_can(
    events: SseServer, wrong: str
) -> None:
    changes, reason, message = REFUSED[wrong]
    well = {name: getattr(events, name) for name in changes}
    for name, value in changes.items():
        setattr(events, name, value)
    async with before(events, timeouts={"connect": "500ms", "first_byte": "1s"}) as gateway:
        error = (await gateway.host().ask("initialize", GREETING)).error
        assert (error["code"], error["message"]) == (-32603, message)
        status = {"missing": {"httpStatus": 404}, "failing": {"httpStatus": 500}, "deaf": {"httpStatus": 500}}
        assert error["data"] == {"origin": "upstream", "reason": reason, "dispatched": False, **status.get(wrong, {})}
        for name, value in well.items():
            setattr(events, name, value)
        assert await works(await gateway.greeted())
        assert await works(gateway.modern())
