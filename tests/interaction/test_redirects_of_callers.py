"""Servers that send each user to an address of the user's own: no caller's requests go to another's."""

from typing import Any

import pytest
from aiohttp import web

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from requirements import covers

USER = "X-User"
REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}


class RedirectingServer(ScriptedServer):
    """A server whose `/mcp` redirects to `/of/USER`, where it answers. `asked` has users and paths in order."""

    status = 308

    def __init__(self, era: str = "legacy") -> None:
        super().__init__(era)
        self.asked: list[tuple[str, str]] = []

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        user = request.headers.get(USER, "the gateway")
        self.asked.append((user, request.path))
        if request.path == "/mcp":
            return web.Response(status=self.status, headers={"Location": f"/of/{user.replace(' ', '-')}"})
        return await super().serve(request.clone(rel_url="/mcp"))

    def paths(self, user: str) -> list[str]:
        """The paths that were asked for a user."""
        return [path for each, path in self.asked if each == user]


def section(server: Any, era: str, **more: Any) -> dict[str, Any]:
    return {"path": "/reports/mcp", "url": server.url, "protocol_version": REVISIONS[era]} | more


async def call(gateway: Gateway, era: str, issuer: TokenIssuer, user: str) -> Any:
    """A host of the era that has called once."""
    token = issuer.token(gateway.url(), subject=user)
    host: Any = gateway.modern(token=token) if era == "modern" else await gateway.greeted(token=token)
    assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    return host


@covers("T16", "T39")
@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("era", REVISIONS)
async def test_a_redirect_that_one_caller_got_sends_no_other_caller_there(
    issuer: TokenIssuer, era: str, status: int
) -> None:
    async with RedirectingServer(era) as server:
        server.status = status
        upstream = section(server, era, identity_headers={"subject": USER})
        async with serve(guarded({}, issuer, upstreams={"reports": upstream})) as gateway:
            alice = await call(gateway, era, issuer, "alice")
            bob = await call(gateway, era, issuer, "bob")
            for host in (alice, bob, alice):
                assert (await host.call("echo")).result is not None
    assert set(server.paths("alice")) == {"/mcp", "/of/alice"}
    assert set(server.paths("bob")) == {"/mcp", "/of/bob"}


@pytest.mark.parametrize("era", REVISIONS)
async def test_a_permanent_redirect_is_remembered_for_the_caller_that_got_it_and_a_temporary_one_is_not(
    issuer: TokenIssuer, era: str
) -> None:
    async with RedirectingServer(era) as server:
        upstream = section(server, era, identity_headers={"subject": USER})
        async with serve(guarded({}, issuer, upstreams={"reports": upstream})) as gateway:
            alice = await call(gateway, era, issuer, "alice")
            before = len(server.asked)
            assert (await alice.call("echo")).result is not None
            assert server.paths("alice")[before:] == ["/of/alice"]
            server.status = 307
            bob = await call(gateway, era, issuer, "bob")
            before = len(server.paths("bob"))
            assert (await bob.call("echo")).result is not None
            assert server.paths("bob")[before:] == ["/mcp", "/of/bob"]


@covers("T16", "T39")
@pytest.mark.parametrize("era", REVISIONS)
async def test_a_redirect_that_a_health_check_got_sends_no_caller_there(issuer: TokenIssuer, era: str) -> None:
    async with RedirectingServer(era) as server:
        upstream = section(server, era, identity_headers={"subject": USER}, health={"interval": "1s"})
        async with serve(guarded({}, issuer, upstreams={"reports": upstream})) as gateway:
            await eventually(lambda: "/of/the-gateway" in server.paths("the gateway"))
            await call(gateway, era, issuer, "alice")
    assert server.paths("alice")[0] == "/mcp"
    assert set(server.paths("alice")) == {"/mcp", "/of/alice"}


@pytest.mark.parametrize("era", REVISIONS)
async def test_the_search_for_the_era_sends_no_other_caller_where_it_was_redirected(
    issuer: TokenIssuer, era: str
) -> None:
    async with RedirectingServer(era) as server:
        upstream = section(server, era, identity_headers={"subject": USER}, protocol_version="auto")
        async with serve(guarded({}, issuer, upstreams={"reports": upstream})) as gateway:
            await call(gateway, era, issuer, "alice")
            await call(gateway, era, issuer, "bob")
    assert set(server.paths("bob")) == {"/mcp", "/of/bob"}


async def test_sessions_of_a_server_that_cannot_tell_callers_apart_have_redirects_of_their_own() -> None:
    async with RedirectingServer() as server, serve(configuration({"reports": server.url})) as gateway:
        first, second = await gateway.greeted(), await gateway.greeted()
        for host in (first, second, first):
            assert (await host.call("echo")).result is not None
        opened = [path for _, path in server.asked if path == "/mcp"]
    assert len(opened) == 2
