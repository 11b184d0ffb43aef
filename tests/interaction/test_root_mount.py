"""A server that is mounted at /, alone and beside others."""

import json
from collections.abc import AsyncIterator

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import both_eras
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from interaction.bare_requests import WELL_KNOWN, seen
from requirements import covers


def mounts(server: ScriptedServer) -> dict[str, dict[str, str]]:
    """A server at / and at another path."""
    return {"root": {"path": "/", "url": server.url}, "reports": {"path": "/reports/mcp", "url": server.url}}


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway with a server at / and one beside it."""
    async with serve(configuration({}, upstreams=mounts(server))) as gateway:
        yield gateway


@both_eras
async def test_calls_at_the_root_and_beside_it_go_to_their_servers(gateway: Gateway, era: str) -> None:
    for name in ("root", "reports"):
        host = await gateway.greeted(mount=name, era=era)
        assert (await host.call("echo", {"at": name})).result["structuredContent"] == {"at": name}
        count = "mcp_server_operation_duration_seconds_count"
        assert await gateway.count(count, upstream=name, mcp_method_name="tools/call") == 1


@pytest.mark.parametrize("path", ["//", "/x", "/reports", "/reports/mcp//", "//reports/mcp", "/?/x/", "/.well-known"])
async def test_the_root_is_exactly_one_path(gateway: Gateway, path: str) -> None:
    host = await gateway.greeted(mount="root")
    host.url = f"{gateway.origin}{path}"
    assert (await host.ask("ping")).status == (200 if path.startswith("/?") else 404)


async def test_the_root_can_be_removed_and_comes_back_by_a_reload(gateway: Gateway, server: ScriptedServer) -> None:
    host = await gateway.greeted(mount="root")
    reports = mounts(server)["reports"]
    await gateway.reload(configuration({}, upstreams={"reports": reports}))
    assert (await host.ask("ping")).status == 404
    await gateway.reload(configuration({}, upstreams=mounts(server)))
    assert (await (await gateway.greeted(mount="root")).call("echo", {"a": 1})).result


@covers("A-AUTH-4", "A-AUTH-11")
async def test_the_root_has_the_document_of_the_root(server: ScriptedServer, issuer: TokenIssuer) -> None:
    async with serve(guarded({}, issuer, upstreams=mounts(server))) as gateway:
        documents = {}
        for path in (WELL_KNOWN, f"{WELL_KNOWN}/", f"{WELL_KNOWN}/reports/mcp"):
            code, _, text = await seen(gateway, path)
            documents[path] = (code, json.loads(text)["resource"])
        refusals = [await gateway.host(name).ask("ping") for name in ("root", "reports")]
        for audience in (gateway.origin, f"{gateway.origin}/"):
            host = await gateway.greeted(mount="root", token=issuer.token(audience))
            assert (await host.call("echo", {"a": 1})).result
        wrong = [("reports", gateway.origin), ("root", f"{gateway.origin}//"), ("root", gateway.url("reports"))]
        others = [await gateway.host(name, token=issuer.token(audience)).ask("ping") for name, audience in wrong]
    assert documents == {
        WELL_KNOWN: (200, gateway.origin),
        f"{WELL_KNOWN}/": (200, gateway.origin),
        f"{WELL_KNOWN}/reports/mcp": (200, f"{gateway.origin}/reports/mcp"),
    }
    named = [refusal.headers["WWW-Authenticate"].partition('resource_metadata="')[2] for refusal in refusals]
    assert [name.partition('"')[0] for name in named] == [
        f"{gateway.origin}{WELL_KNOWN}",
        f"{gateway.origin}{WELL_KNOWN}/reports/mcp",
    ]
    assert [other.status for other in others] == [401, 401, 401]
