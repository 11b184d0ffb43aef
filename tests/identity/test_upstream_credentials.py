"""The gateway's own token for a server, had from a real identity provider: the server can verify what it is shown."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import jwt
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.identity_provider import IdentityProvider
from helpers.server import ScriptedServer
from helpers.waiting import bounded

SERVER = "https://reports.internal/mcp"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


def upstream(server: ScriptedServer, provider: IdentityProvider, **changes: Any) -> dict[str, Any]:
    """As in a file."""
    credentials = {
        "mode": "client_credentials",
        "token_url": provider.token_url,
        "client_id": "taskgate",
        "client_secret": provider.secret_of("taskgate"),
        "resource": SERVER,
        "scopes": ["reports.run"],
    }
    return {"reports": {"path": "/reports/mcp", "url": server.url, "credentials": credentials | changes}}


async def verified(provider: IdentityProvider, token: str) -> dict[str, Any]:
    """What a token says, once the provider's published key has verified it."""
    async with bounded(), aiohttp.ClientSession() as http, http.get(f"{provider.issuer}/jwks") as response:
        keys = jwt.PyJWKSet.from_dict(await response.json(content_type=None))
    key = keys[jwt.get_unverified_header(token)["kid"]]
    return jwt.decode(token, key, algorithms=[key.algorithm_name], audience=SERVER, issuer=provider.issuer)


async def test_a_server_is_shown_a_token_that_it_can_verify(provider: IdentityProvider, server: ScriptedServer) -> None:
    async with serve(configuration({}, upstreams=upstream(server, provider))) as gateway:
        hosts = [await gateway.greeted() for _ in range(2)]
        for host in hosts:
            assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    [shown] = {request.headers["authorization"] for request in server.requests}
    scheme, _, token = shown.partition(" ")
    claims = await verified(provider, token)
    assert scheme == "Bearer"
    assert (claims["client_id"], claims["sub"], claims["scope"]) == ("taskgate", "taskgate", "reports.run")


async def test_tokens_of_hosts_and_the_gateways_own_never_meet(
    provider: IdentityProvider, server: ScriptedServer
) -> None:
    public = "https://gateway.example"
    config = configuration(
        {},
        auth={"mode": "required", "issuers": {"corp": {"issuer": provider.issuer}}},
        server={"public_url": public, "allowed_hosts": ["127.0.0.1"]},
        upstreams=upstream(server, provider),
    )
    async with serve(config) as gateway:
        token = await provider.token(subject="alice", resource=f"{public}/reports/mcp")
        host = await gateway.greeted(token=token)
        task = await host.start("echo")
        assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result
    [shown] = {request.headers["authorization"] for request in server.requests}
    assert token not in str(server.requests)
    assert (await verified(provider, shown.removeprefix("Bearer ")))["sub"] == "taskgate"


@pytest.mark.parametrize(
    "wrong", [{"client_secret": "another secret"}, {"client_id": "nobody"}, {"client_id": "host-a"}]
)
async def test_a_provider_that_refuses_leaves_the_server_alone(
    provider: IdentityProvider, server: ScriptedServer, wrong: dict[str, Any]
) -> None:
    async with serve(configuration({}, upstreams=upstream(server, provider, **wrong))) as gateway:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
        answer = await gateway.host().ask("initialize", params)
    assert (answer.status, answer.code) == (200, -32603)
    assert answer.error["message"] == "The gateway could not get credentials for the server"
    assert server.requests == []
