"""The pages of identity providers: their configuration accepts the token that they show, and names its caller.

The products are not at hand. A real OpenID provider signs tokens of the shape that each page shows, under its issuer.
Nothing of a page's configuration is changed but where the keys are.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.identity_provider import IdentityProvider
from house.documents import DOCS, fences
from identity.gateways import exactly, scripted
from taskgate.auth.metadata import metadata_urls
from taskgate.cli import main

PAGES = [DOCS / "how-to" / f"{name}.md" for name in ("keycloak", "entra", "okta", "auth0")]
KUBERNETES = DOCS / "how-to" / "kubernetes.md"
COGNITO = DOCS / "how-to" / "cognito.md"
OTHER_AUDIENCES = ("https://mcp.example.com/orders/mcp", "account", "00000003-0000-0000-c000-000000000000")

Shape = dict[str, dict[str, Any]]


def shown(page: Path, language: str, number: int = 0) -> str:
    """A block of a page in that language. The first is what the page is about, and later ones add to it."""
    return [each.text for each in fences(page) if each.language == language][number]


def configured(page: Path, provider: IdentityProvider, number: int = 0, **issuer: object) -> dict[str, Any]:
    """A configuration of a page, whose keys are the provider's; `issuer` has keys that replace its own."""
    config: dict[str, Any] = YAML(typ="safe").load(shown(page, "yaml", number))
    [written] = config["auth"]["issuers"].values()
    written.pop("jwks_file", None)
    written |= {"jwks_uri": f"{provider.issuer}/jwks", **issuer}
    return config


def token_of(page: Path, *, header: Mapping[str, Any] | None = None, **claims: Any) -> Shape:
    """The token of a page with the times of one that was just issued; None leaves a claim out."""
    shape: Shape = json.loads(shown(page, "json"))
    now = int(datetime.now(UTC).timestamp())
    issued = shape["claims"]["iat"]
    times = {name: now + shape["claims"][name] - issued for name in ("iat", "nbf", "exp") if name in shape["claims"]}
    changed = {**shape["claims"], **times, **claims}
    shape["claims"] = {name: value for name, value in changed.items() if value is not None}
    shape["header"] |= header or {}
    return shape


async def inspected(
    config: Mapping[str, Any], provider: IdentityProvider, shape: Shape, folder: Path
) -> tuple[int, list[str]]:
    """The exit status of `taskgate token inspect` and the lines that it prints."""
    file, token = folder / "taskgate.json", folder / "a.token"
    file.write_text(json.dumps(config))
    token.touch(mode=0o600)
    token.write_text(await provider.token(shape=shape))
    command = ["token", "inspect", "--config", str(file), "--token", str(token)]
    ended = await asyncio.to_thread(CliRunner().invoke, main, command)
    return ended.exit_code, ended.stdout.splitlines()


def refused(lines: list[str]) -> list[str]:
    """The checks that refuse."""
    return [line.split()[0] for line in lines if line.split()[1] == "REFUSED"]


def name_of(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", [*PAGES, KUBERNETES], ids=name_of)
async def test_the_configuration_of_a_page_accepts_its_token_and_derives_the_caller_that_the_page_shows(
    page: Path, provider: IdentityProvider, tmp_path: Path
) -> None:
    status, lines = await inspected(configured(page, provider), provider, token_of(page), tmp_path)
    assert lines[-2:] == shown(page, "text").splitlines()
    assert (status, refused(lines)) == (0, [])
    [typ] = [line for line in lines if line.startswith("typ ")]
    assert typ.endswith(f"found {token_of(page)['header'].get('typ', 'none')}")


@pytest.mark.parametrize("audience", OTHER_AUDIENCES)
@pytest.mark.parametrize("page", [*PAGES, KUBERNETES], ids=name_of)
async def test_the_configuration_of_a_page_refuses_a_token_for_another_audience(
    page: Path, audience: str, provider: IdentityProvider, tmp_path: Path
) -> None:
    status, lines = await inspected(configured(page, provider), provider, token_of(page, aud=audience), tmp_path)
    assert (status, refused(lines), lines[-1]) == (1, ["aud"], "verdict    refused (audience)")


@pytest.mark.parametrize("page", [*PAGES, KUBERNETES], ids=name_of)
async def test_a_gateway_with_the_configuration_of_a_page_serves_its_token_and_no_other(
    page: Path, provider: IdentityProvider
) -> None:
    written = configured(page, provider)
    good = await provider.token(shape=token_of(page))
    bad = await provider.token(shape=token_of(page, aud=OTHER_AUDIENCES[0]))
    async with scripted() as server:
        config = configuration(
            {"reports": server.url},
            auth=written["auth"],
            server={**written["server"], "allowed_hosts": ["127.0.0.1"]},
        )
        async with serve(config) as gateway:
            host = await gateway.greeted(token=good)
            assert (await host.ask("ping", {})).result == {}
            assert (await exactly(gateway, "POST", bad)).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_address_of_the_keys_that_a_page_names_is_one_that_taskgate_tries(page: Path) -> None:
    [named] = set(re.findall(r"keys are at `(\S+)`", page.read_text(encoding="utf-8")))
    [issuer] = YAML(typ="safe").load(shown(page, "yaml"))["auth"]["issuers"].values()
    assert named in metadata_urls(issuer["issuer"])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_row_for_a_line_of_the_configuration_is_about_a_line_that_is_there_or_left_out(page: Path) -> None:
    config = YAML(typ="safe").load(shown(page, "yaml"))
    [issuer] = config["auth"]["issuers"].values()
    lines = {*issuer} - {"claims"} | {f"claims.{name}" for name in issuer["claims"]}
    lines |= {*config["auth"]["protected_resource_metadata"]}
    table = page.read_text(encoding="utf-8").split("| line | reason |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (no )?`([\w.]+)` \|", table, re.MULTILINE)
    assert {name for absent, name in rows if not absent} | {"scopes_supported"} == lines
    assert {name for absent, name in rows if absent} & lines == set()


# --- what single pages say besides -----------------------------------------------------------------------------------

KEYCLOAK, ENTRA, OKTA, AUTH0 = PAGES


@pytest.mark.parametrize(
    ("claims", "check"),
    [
        ({"aud": "account"}, "aud"),
        ({"typ": "ID"}, "kind"),
        ({"typ": "ID", "nonce": "n", "at_hash": "h"}, "kind"),
        ({"sub": None}, "sub"),
        ({"iss": "https://sso.example.com/realms/corp/"}, "iss"),
    ],
    ids=["account", "ID token", "ID token of a login", "no sub", "slash"],
)
async def test_what_the_page_of_keycloak_says_of_refused_tokens_is_so(
    claims: dict[str, Any], check: str, provider: IdentityProvider, tmp_path: Path
) -> None:
    _, lines = await inspected(configured(KEYCLOAK, provider), provider, token_of(KEYCLOAK, **claims), tmp_path)
    assert check in refused(lines)
    assert f"| `{check} REFUSED`" in KEYCLOAK.read_text(encoding="utf-8")


async def test_a_token_of_keycloak_before_25_has_a_nonce_and_the_same_caller(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    shape = token_of(KEYCLOAK, nonce="n-0S6_WzA2Mj", session_state="91d7a4be-03c8-4f6a-8c3b-7e2f5d0a6b44")
    _, lines = await inspected(configured(KEYCLOAK, provider), provider, shape, tmp_path)
    assert lines[-2:] == shown(KEYCLOAK, "text").splitlines()


@pytest.mark.parametrize("profile", ["generic", "rfc9068"])
@pytest.mark.parametrize("typ", ["JWT", "at+jwt"])
async def test_the_type_of_keycloaks_tokens_has_its_profile(
    typ: str, profile: str, provider: IdentityProvider, tmp_path: Path
) -> None:
    shape = token_of(KEYCLOAK, header={"typ": typ})
    _, lines = await inspected(configured(KEYCLOAK, provider, profile=profile), provider, shape, tmp_path)
    assert refused(lines) == (["typ"] if (typ, profile) == ("JWT", "rfc9068") else [])


@pytest.mark.parametrize("organization", [None, ["acme"], ["acme", "corp"], {"acme": {"id": "42c3e46f"}}])
async def test_an_organization_of_keycloak_that_is_no_text_is_no_tenant(
    organization: object, provider: IdentityProvider, tmp_path: Path
) -> None:
    config = configured(KEYCLOAK, provider, claims={"client_id": ["azp"], "tenant": "organization"})
    _, lines = await inspected(config, provider, token_of(KEYCLOAK, organization=organization), tmp_path)
    assert refused(lines) == ["tenant"]
    assert "| `tenant REFUSED`" in KEYCLOAK.read_text(encoding="utf-8")


async def test_the_alias_of_an_organization_of_keycloak_is_the_tenant(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    config = configured(KEYCLOAK, provider, claims={"client_id": ["azp"], "tenant": "organization"})
    _, lines = await inspected(config, provider, token_of(KEYCLOAK, organization="acme"), tmp_path)
    assert refused(lines) == []
    assert ", tenant acme, scopes" in lines[-2]


@pytest.mark.parametrize(("block", "checks"), [(0, ["aud"]), (1, [])])
async def test_a_token_of_cognito_with_an_audience_needs_the_second_configuration_of_its_page(
    block: int, checks: list[str], provider: IdentityProvider, tmp_path: Path
) -> None:
    shape = token_of(COGNITO, aud="https://mcp.example.com/reports/mcp", client_id="of-another-host")
    _, lines = await inspected(configured(COGNITO, provider, block), provider, shape, tmp_path)
    assert refused(lines) == checks


async def test_a_program_of_entra_has_its_roles_as_scopes(provider: IdentityProvider, tmp_path: Path) -> None:
    shape = token_of(ENTRA, scp=None, roles=["Reports.Read.All", "Reports.Run.All"])
    _, lines = await inspected(configured(ENTRA, provider), provider, shape, tmp_path)
    assert lines[-2].endswith("scopes Reports.Read.All Reports.Run.All")


async def test_a_token_of_entras_version_1_is_refused(provider: IdentityProvider, tmp_path: Path) -> None:
    tenant = token_of(ENTRA)["claims"]["tid"]
    client = token_of(ENTRA)["claims"]["azp"]
    shape = token_of(ENTRA, iss=f"https://sts.windows.net/{tenant}/", azp=None, appid=client, ver="1.0")
    _, lines = await inspected(configured(ENTRA, provider), provider, shape, tmp_path)
    assert refused(lines) == ["iss", "client"]


async def test_a_token_of_entra_without_a_tenant_is_refused(provider: IdentityProvider, tmp_path: Path) -> None:
    _, lines = await inspected(configured(ENTRA, provider), provider, token_of(ENTRA, tid=None), tmp_path)
    assert refused(lines) == ["tenant"]


async def test_the_default_server_of_okta_needs_its_audience(provider: IdentityProvider, tmp_path: Path) -> None:
    shape = token_of(OKTA, aud="api://default")
    _, lines = await inspected(configured(OKTA, provider), provider, shape, tmp_path)
    assert refused(lines) == ["aud"]
    config = configured(OKTA, provider, audience=["api://default"])
    _, lines = await inspected(config, provider, shape, tmp_path)
    assert lines[-2:] == shown(OKTA, "text").splitlines()


async def test_auth0s_profile_of_rfc_9068_and_its_organizations_need_the_keys_that_the_page_names(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    client = token_of(AUTH0)["claims"]["azp"]
    shape = token_of(AUTH0, header={"typ": "at+jwt"}, azp=None, client_id=client, org_id="org_7", jti="j")
    _, lines = await inspected(configured(AUTH0, provider), provider, shape, tmp_path)
    assert refused(lines) == ["client"]
    claims = {"client_id": ["client_id"], "scope": ["scope"], "tenant": "org_id"}
    config = configured(AUTH0, provider, profile="rfc9068", claims=claims)
    _, lines = await inspected(config, provider, shape, tmp_path)
    assert refused(lines) == []
    assert f"client_id {client}, tenant org_7, scopes" in lines[-2]


@pytest.mark.parametrize(
    ("claims", "check"),
    [
        ({"aud": ["https://kubernetes.default.svc.cluster.local"]}, "aud"),
        ({"iss": "https://kubernetes.default.svc"}, "iss"),
        ({"iss": "kubernetes/serviceaccount"}, "iss"),
    ],
    ids=["for the API server", "another issuer", "of a Secret"],
)
async def test_what_the_page_of_kubernetes_says_of_refused_tokens_is_so(
    claims: dict[str, Any], check: str, provider: IdentityProvider, tmp_path: Path
) -> None:
    _, lines = await inspected(configured(KUBERNETES, provider), provider, token_of(KUBERNETES, **claims), tmp_path)
    assert refused(lines) == [check]
    assert f"| `{check} REFUSED`" in KUBERNETES.read_text(encoding="utf-8")


async def test_a_service_account_needs_an_issuer_without_clients(provider: IdentityProvider, tmp_path: Path) -> None:
    config = configured(KUBERNETES, provider, claims={})
    _, lines = await inspected(config, provider, token_of(KUBERNETES), tmp_path)
    assert refused(lines) == ["client"]
    assert "| `client REFUSED`" in KUBERNETES.read_text(encoding="utf-8")
