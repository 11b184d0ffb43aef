"""How bytes go to a server: redirects, connections and what is remembered of them."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from helpers.server import Hold, ScriptedServer, raw, redirect, stream
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing
from taskgate.upstream.calls import Principal
from taskgate.upstream.client import HttpTransport
from taskgate.upstream.wire.transport import REUSE_WITHIN
from unit.upstream.exchanges import DOCUMENT, NewTransport, outgoing
from unit.upstream.raw_server import RawServer


async def test_a_permanent_redirect_within_the_origin_is_followed_and_remembered(
    server: ScriptedServer, new_caller_of
) -> None:
    server.moved = (308, server.path)
    caller = new_caller_of(f"{server.origin}/old")
    await caller.call()
    await caller.call()
    posts = server.verbs("POST")
    assert [post.path for post in posts] == ["/old", "/mcp", "/mcp", "/mcp", "/mcp"]
    assert posts[0].message == posts[1].message, "method and body are kept"
    assert {request.path for request in server.verbs("GET")} == {"/mcp"}


WRITTEN = {
    "/a%2Fb/mcp": "/a%2Fb/mcp",
    "/a%3Ab%40c/mcp": "/a%3Ab%40c/mcp",
    "/mcp?k=a%2Fb&sig=%7e%7E+%2B%3D": "/mcp?k=a%2Fb&sig=%7e%7E+%2B%3D",
    "/mcp?k=a'b;c|d&e": "/mcp?k=a'b;c|d&e",
    "/mcp?k=%zz": "/mcp?k=%zz",
    "//mcp": "//mcp",
    "?k=%7e": "/?k=%7e",
    "/x/../mcp": "/mcp",
}


@pytest.mark.parametrize(("written", "sent"), WRITTEN.items())
async def test_path_and_query_are_sent_as_they_are_configured(
    transport_to: NewTransport, written: str, sent: str
) -> None:
    async with RawServer() as server:
        await expect_request(server, transport_to(server.url().removesuffix("/mcp") + written), sent)


REFERENCES = {
    "/x%2Fy?k=a%2Fb&z=%7e": "/x%2Fy?k=a%2Fb&z=%7e",
    "y%3A": "/a%3Ab/y%3A",
    "../%7e/./y": "/%7e/y",
    "?z=%7e": "/a%3Ab/mcp?z=%7e",
    "/\xe9 b": "/%C3%A9%20b",
}


@pytest.mark.parametrize(("reference", "sent"), REFERENCES.items())
async def test_a_redirect_is_followed_as_it_is_written(transport_to: NewTransport, reference: str, sent: str) -> None:
    async with RawServer() as server:
        transport = transport_to(server.url().replace("/mcp", "/a%3Ab/mcp"))
        sending = asyncio.create_task(transport.send(outgoing()))
        line = await server.next()
        await line.request()
        await line.say(f"HTTP/1.1 307 Go\r\nLocation: {reference}\r\nContent-Length: 0\r\n\r\n".encode())
        head, _ = await line.request()
        assert head.split(" ")[1] == sent
        await line.say(DOCUMENT)
        async with bounded():
            (await sending).release()


async def expect_request(server: RawServer, transport: HttpTransport, sent: str) -> None:
    """Expect the target of one request."""
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    head, _ = await line.request()
    assert head.split(" ")[1] == sent
    await line.say(DOCUMENT)
    async with bounded():
        (await sending).release()


async def test_a_temporary_redirect_is_followed_each_time(server: ScriptedServer, new_caller_of) -> None:
    server.streams = False
    caller = new_caller_of(f"{server.origin}/old")
    await caller.call()
    await caller.call()
    posts = server.verbs("POST")
    assert [post.path for post in posts] == ["/old", "/mcp"] * (len(posts) // 2)


async def opened_by_another(caller) -> None:
    """Another session with the server of the caller."""
    session = caller.upstream.session(caller.heard.of_session, lambda: Principal(context="another"))
    await session.open()
    await session.close()


@covers("T16", "T39")
@pytest.mark.parametrize(
    ("configured", "code", "are_redirected"),
    [("/mcp/", 308, 1), ("/mcp/", 307, 2), ("/mcp/?a=1", 308, 2), ("/mcp//", 308, 2), ("/MCP/", 308, 2)],
)
async def test_sessions_share_only_a_permanent_redirect_that_differs_by_a_slash(
    server: ScriptedServer, new_caller_of, configured: str, code: int, are_redirected: int
) -> None:
    server.moved = (code, server.path)
    caller = new_caller_of(f"{server.origin}{configured}")
    await caller.session.open()
    await opened_by_another(caller)
    openings = [each.path for each in server.verbs("POST") if each.message["method"] == "initialize"]
    assert len(openings) == 2 + are_redirected


@pytest.mark.parametrize("old", ["/mcp/", "/old"])
async def test_a_404_ends_what_a_redirect_has_taught(server: ScriptedServer, new_caller_of, old: str) -> None:
    server.moved = (308, server.path)
    caller = new_caller_of(f"{server.origin}{old}")
    await caller.call()
    server.forget_sessions()
    with suppress(UpstreamFailed):
        await caller.call()
    await caller.call()
    paths = [each.path for each in server.verbs("POST")]
    assert paths.count(old) == 3, "also by the ping"


@pytest.mark.parametrize("code", [307, 308])
@pytest.mark.parametrize("location", ["{origin}/mcp", "/mcp", "mcp", "/mcp#part"])
async def test_a_redirect_may_name_its_target_in_any_way(
    server: ScriptedServer, new_caller_of, code: int, location: str
) -> None:
    server.moved = (code, location.format(origin=server.origin))
    caller = new_caller_of(f"{server.origin}/old")
    assert (await caller.call()).error is None


REFUSED = {
    "301": (301, "/mcp", True),
    "302": (302, "/mcp", True),
    "303": (303, "/mcp", True),
    "304": (304, "/mcp", True),
    "another port": (307, "http://127.0.0.1:1/mcp", False),
    "another host": (307, "http://localhost:{port}/mcp", False),
    "another scheme": (308, "https://127.0.0.1:{port}/mcp", False),
    "a user": (307, "http://me@127.0.0.1:{port}/mcp", False),
    "another kind of thing": (307, "data:text/plain,x", False),
    "nowhere": (307, "", False),
    "nonsense": (307, "http://[::1", False),
    "a second redirect": (307, "/again", False),
}


@pytest.mark.parametrize(("code", "location", "dispatched"), REFUSED.values(), ids=REFUSED)
async def test_any_other_redirect_is_a_failure(
    server: ScriptedServer, caller, code: int, location: str, dispatched: bool
) -> None:
    await caller.session.open()
    server.script["moved"] = redirect(code, location.format(port=server.origin.rpartition(":")[2]))
    with pytest.raises(UpstreamFailed) as failed:
        await caller.call("moved")
    assert (failed.value.reason, failed.value.dispatched) == ("redirect", dispatched)
    assert "mcp" not in str(failed.value)
    calls = server.heard("tools/call")
    assert len(calls) == (2 if location == "/again" else 1), "a target that is not followed is never contacted"
    assert (await caller.call()).error is None


@pytest.mark.parametrize("way", ["a document", "a stream"])
async def test_calls_one_after_another_share_a_connection(server: ScriptedServer, caller, way: str) -> None:
    if way == "a stream":
        server.script["echo"] = stream({"content": []}, progress=1)
    await caller.session.open()
    for _ in range(5):
        await caller.call()
        # The end of a stream is a packet of its own.
        await caller.session.tools()
    assert len({request.peer for request in server.verbs("POST")}) <= 2


async def test_a_connection_that_was_idle_for_long_is_not_used_again(server: ScriptedServer, new_caller_of) -> None:
    server.sessions = False
    caller = new_caller_of(server.url)
    await caller.call()
    await asyncio.sleep(REUSE_WITHIN)
    await caller.call()
    first, *_, last = server.verbs("POST")
    assert first.peer != last.peer


async def test_the_connection_of_a_cancelled_call_is_not_used_again(server: ScriptedServer, caller) -> None:
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(caller.call("slow"))
    async with bounded():
        await hold.begun.wait()
        calling.cancel()
        await asyncio.wait((calling,))
        await hold.left.wait()
    peer = hold.turns[0].request.transport
    assert peer is None or peer.is_closing()
    assert (await caller.call()).error is None


async def test_many_calls_are_held_at_once(server: ScriptedServer, caller) -> None:
    server.script["slow"] = hold = Hold()
    calls = [asyncio.create_task(caller.run("slow")) for _ in range(150)]
    await eventually(lambda: len(hold.turns) == 150)
    hold.release({"content": []})
    async with bounded():
        await asyncio.gather(*calls)


@covers("T16")
async def test_cookies_are_not_kept(server: ScriptedServer, new_caller_of) -> None:
    # A jar would keep none of a numeric host in any case.
    caller = new_caller_of(server.url.replace("127.0.0.1", "localhost"))
    server.script["bakes"] = raw(b"{}", Set_Cookie="a=b; Path=/")
    with pytest.raises(UpstreamFailed):
        await caller.call("bakes")
    await caller.call()
    assert not any("cookie" in request.headers for request in server.requests)


async def test_proxies_of_the_environment_are_not_used(server: ScriptedServer, caller, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert (await caller.call()).error is None


async def test_a_closed_transport_sends_nothing(server: ScriptedServer, new_settings) -> None:
    transport = HttpTransport(new_settings(server.url))
    await transport.close()
    with pytest.raises(UpstreamFailed) as failed:
        await transport.send(Outgoing(verb="POST", headers={}, body=b"{}", first_byte=timedelta(seconds=1)))
    assert (failed.value.reason, failed.value.dispatched) == ("closed", False)
    assert server.requests == []


async def test_a_closed_upstream_fails_what_still_waits(server: ScriptedServer, caller) -> None:
    server.script["slow"] = hold = Hold()
    calling = asyncio.create_task(caller.run("slow"))
    async with bounded():
        await hold.begun.wait()
        await caller.upstream.close()
        with pytest.raises(UpstreamFailed) as failed:
            await calling
    assert (failed.value.reason, failed.value.dispatched) == ("closed", True)


def test_settings_do_not_show_where_the_server_is(new_settings) -> None:
    assert "secret" not in repr(new_settings("http://secret.example/mcp"))
