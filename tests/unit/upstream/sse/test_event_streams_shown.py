"""Where an event stream is looked for, and what its server is shown and recognised by."""

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.certificates import Authority
from helpers.exchange_server import ExchangeServer
from helpers.server.sse import SseServer
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.settings import FixedHeader, IdentityHeaders, UpstreamTls
from unit.upstream.houses import Guest, House
from unit.upstream.offices import exchange, somebody
from unit.upstream.raw_server import RawServer

NewHouse = Callable[..., House]


async def failure_of(guest: Guest) -> tuple[str, bool, str]:
    """How a call fails: reason, whether it may have run, text."""
    async with bounded():
        with pytest.raises(UpstreamFailed) as failed:
            await guest.call()
    return failed.value.reason, failed.value.dispatched, str(failed.value)


async def works(guest: Guest) -> bool:
    """Whether a call is answered now."""
    async with bounded():
        return (await guest.call()).error is None


# --- redirects


async def test_a_stream_is_looked_for_where_the_server_sends_us_within_its_origin(
    events: SseServer, new_house: NewHouse
) -> None:
    events.moved = {"/old/sse": "/new/sse"}
    events.endpoint = "messages?session_id={session}"
    assert await works(new_house(f"{events.origin}/old/sse").guest())
    assert events.paths[:3] == ["/old/sse", "/new/sse", "/new/messages?session_id=s0"]


async def test_no_redirect_is_followed_out_of_the_origin(events: SseServer, guest: Guest) -> None:
    async with RawServer() as other:
        events.moved = {"/sse": other.url()}
        reason, dispatched, _ = await failure_of(guest)
        assert (reason, dispatched) == ("redirect", False)
        events.moved = {"/messages": other.url()}
        reason, dispatched, _ = await failure_of(guest)
        assert (reason, dispatched) == ("redirect", False)
        assert not other.accepted


# --- what is shown


async def test_credentials_and_names_go_with_the_stream_and_with_every_post(
    events: SseServer, new_house: NewHouse
) -> None:
    events.token = "the-token"
    house = new_house(
        events.url,
        credentials=FixedHeader(name="Authorization", value="Bearer the-token"),
        identity=IdentityHeaders(context="X-Context", subject="X-Subject", issuer="X-Issuer"),
    )
    assert await works(house.guest(somebody("alice")))
    for headers in events.gets + events.posts:
        assert headers["x-context"] == "context-of-alice"
        assert headers["x-subject"] == "alice"
        assert headers["x-issuer"] == "https://idp.example.com"


async def test_a_token_that_the_stream_is_refused_for_is_renewed_for_the_next_call(
    events: SseServer, new_house: NewHouse
) -> None:
    async with ExchangeServer() as endpoint:
        endpoint.subjects = {"token-1-of-alice": "alice"}
        guest = new_house(events.url, credentials=exchange(endpoint)).guest(somebody("alice"))
        events.token = "none that was given out yet"
        refused = ("refused", False, "The server refused the gateway's credentials")
        assert await failure_of(guest) == refused
        events.token = None
        assert await works(guest)
        first, second = (headers["authorization"] for headers in events.gets)
        assert first != second
        events.token = "none that was given out yet"
        assert await failure_of(guest) == refused
        events.token = None
        assert await works(guest)
        assert len({headers["authorization"] for headers in events.posts}) == 2
    assert len(events.gets) == 2


async def test_the_server_is_recognised_as_over_http(new_house: NewHouse, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with SseServer(tls=authority.server_context("127.0.0.1")) as server:
        assert await works(new_house(server.url, tls=UpstreamTls(ca_file=authority.file)).guest())
        stranger = new_house(server.url).guest()
        assert await failure_of(stranger) == ("unreachable", False, "The server could not be reached")
