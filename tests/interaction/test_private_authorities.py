"""Issuers and token endpoints whose certificates are of a private authority, reached directly and through a proxy."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from helpers.certificates import Authority, put
from helpers.exchange_server import ExchangeServer, Terms
from helpers.forward_proxy import ForwardProxy
from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.key_server import KeyServer
from helpers.server import ScriptedServer, result
from helpers.token_issuer import TokenIssuer
from helpers.waiting import eventually
from requirements import covers

NAME = "idp.corp.invalid"
NO_CREDENTIALS = "The gateway could not get credentials for the server"
DONE: dict[str, Any] = {"content": []}
GRANT = Terms(grant_type="client_credentials", audience=None, scopes=())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def proxy() -> AsyncIterator[ForwardProxy]:
    async with ForwardProxy() as proxy:
        yield proxy


def with_issuer(server: ScriptedServer, issuer: str, ca_file: Path | None, **sections: Any) -> GatewayConfig:
    corp = {"issuer": issuer, "ca_file": None if ca_file is None else str(ca_file), "jwks": {"cooldown": "1s"}}
    return configuration({"reports": server.url}, auth={"mode": "required", "issuers": {"corp": corp}}, **sections)


def with_grant(
    server: ScriptedServer, token_url: str, ca_file: Path | None, *, upstream: Any = None, **sections: Any
) -> GatewayConfig:
    client, secret = GRANT.client
    credentials = {
        "mode": "client_credentials",
        "token_url": token_url,
        "ca_file": None if ca_file is None else str(ca_file),
        "client_id": client,
        "client_secret": secret,
    }
    reports = {"path": "/reports/mcp", "url": server.url, "credentials": credentials, **(upstream or {})}
    return configuration({}, upstreams={"reports": reports}, **sections)


@covers("A-AUTH-17")
async def test_keys_of_an_issuer_are_discovered_by_its_own_authority(
    server: ScriptedServer, authority: Authority, tmp_path: Path
) -> None:
    async with KeyServer(authority.server_context("127.0.0.1")) as keys:
        issuer = TokenIssuer(tmp_path, issuer=keys.issuer)
        keys.describe()
        keys.publish(issuer.jwk())
        async with serve(with_issuer(server, keys.issuer, authority.file)) as gateway:
            host = await gateway.greeted(token=issuer.token(gateway.url()))
            assert (await host.ask("ping")).result == {}


async def test_keys_of_an_issuer_are_discovered_by_its_own_authority_through_a_proxy(
    server: ScriptedServer, authority: Authority, proxy: ForwardProxy, tmp_path: Path
) -> None:
    async with KeyServer(authority.server_context(NAME)) as keys:
        proxy.names["idp"] = keys.port
        issuer = TokenIssuer(tmp_path, issuer=f"https://{NAME}")
        keys.describe(issuer=issuer.issuer, jwks_uri=f"{issuer.issuer}/keys")
        keys.publish(issuer.jwk())
        config = with_issuer(server, issuer.issuer, authority.file, egress={"proxy": proxy.url})
        async with serve(config) as gateway:
            host = await gateway.greeted(token=issuer.token(gateway.url()))
            assert (await host.ask("ping")).result == {}
    assert set(proxy.asked) == {f"CONNECT {NAME}:443 HTTP/1.1"}


@covers("A-AUTH-17")
@pytest.mark.parametrize("trusted", [None, "other.pem"])
async def test_an_issuer_that_no_trusted_authority_has_signed_gives_no_keys(
    server: ScriptedServer, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, trusted: str | None
) -> None:
    Authority(tmp_path, "other")
    file = None if trusted is None else tmp_path / trusted
    async with KeyServer(authority.server_context("127.0.0.1")) as keys:
        async with serve(with_issuer(server, keys.issuer, file)):
            await eventually(lambda: failures(caplog) != [])
        assert keys.requests == []
    assert failures(caplog)[0]["reason"] == "tls"


async def test_a_replaced_file_counts_with_the_next_request_to_the_issuer(
    server: ScriptedServer, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "trusted.pem"
    async with KeyServer(authority.server_context("127.0.0.1")) as keys:
        issuer = TokenIssuer(tmp_path, issuer=keys.issuer)
        keys.describe()
        keys.publish(issuer.jwk())
        async with serve(with_issuer(server, keys.issuer, file)) as gateway:
            await eventually(lambda: failures(caplog) != [])
            put(file, authority.file.read_bytes())
            host = await gateway.greeted(token=issuer.token(gateway.url()))
            assert (await host.ask("ping")).result == {}
    [line] = failures(caplog)
    assert (line["reason"], line["file"]) == ("ca_file", str(file))
    assert line["problem"] == "cannot be read: No such file or directory"


async def test_a_token_endpoint_is_trusted_by_its_own_authority(server: ScriptedServer, authority: Authority) -> None:
    server.script["report"] = result(DONE)
    async with ExchangeServer(GRANT, tls=authority.server_context("127.0.0.1")) as endpoint:
        async with serve(with_grant(server, endpoint.url, authority.file)) as gateway:
            assert (await (await gateway.greeted()).call("report")).result == DONE
        assert endpoint.issued


async def test_a_token_endpoint_is_trusted_by_its_own_authority_through_a_proxy(
    server: ScriptedServer, authority: Authority, proxy: ForwardProxy
) -> None:
    server.script["report"] = result(DONE)
    async with ExchangeServer(GRANT, tls=authority.server_context(NAME)) as endpoint:
        place = urlsplit(endpoint.url)
        proxy.names["idp"] = place.port or 0
        config = with_grant(server, f"https://{NAME}{place.path}", authority.file, egress={"proxy": proxy.url})
        async with serve(config) as gateway:
            assert (await (await gateway.greeted()).call("report")).result == DONE
        assert endpoint.issued
    assert set(proxy.asked) == {f"CONNECT {NAME}:443 HTTP/1.1"}


@pytest.mark.parametrize(
    ("trusted", "reason"),
    [
        (None, "tls"),
        ("other.pem", "tls"),
        ("missing.pem", "ca_file credentials.ca_file: cannot be read: No such file or directory"),
        ("other.txt", "ca_file credentials.ca_file: holds no certificate in PEM form"),
    ],
)
async def test_a_token_endpoint_that_is_not_trusted_gets_no_request_and_the_log_says_why(
    server: ScriptedServer,
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    trusted: str | None,
    reason: str,
) -> None:
    Authority(tmp_path, "other")
    (tmp_path / "other.txt").write_text("none\n")
    file = None if trusted is None else tmp_path / trusted
    async with ExchangeServer(GRANT, tls=authority.server_context("127.0.0.1")) as endpoint:
        async with serve(with_grant(server, endpoint.url, file)) as gateway:
            assert (await failed(gateway))["message"] == NO_CREDENTIALS
        assert endpoint.asked == 0
    assert [each.reason for each in refusals(caplog)] == [reason]


async def test_the_authority_of_a_server_is_not_that_of_its_token_endpoint(
    server: ScriptedServer, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with ExchangeServer(GRANT, tls=authority.server_context("127.0.0.1")) as endpoint:
        origin = endpoint.url.removesuffix("/oauth/token")
        upstream = {"url": f"{origin}/mcp", "tls": {"ca_file": str(authority.file)}}
        async with serve(with_grant(server, endpoint.url, None, upstream=upstream)) as gateway:
            assert (await failed(gateway))["message"] == NO_CREDENTIALS
        assert endpoint.asked == 0
    assert [each.reason for each in refusals(caplog)] == ["tls"]


async def failed(gateway: Gateway) -> Any:
    """The error of a handshake."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "desk", "version": "1"}}
    return (await gateway.host().ask("initialize", params)).error


def failures(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the log lines about keys that could not be fetched."""
    return [vars(each) for each in caplog.records if each.msg == "The keys of an issuer could not be fetched"]


def refusals(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """The log lines about tokens that could not be had."""
    return [each for each in caplog.records if each.msg == "could not get credentials for a server"]
