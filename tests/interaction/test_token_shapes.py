"""Tokens in the shapes of identity providers: which of them a gateway accepts, and what it says of the others."""

from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from interaction.bare_requests import ask
from requirements import covers

ID_TOKEN: Final = "this is an ID token: an access token is expected"
KEYCLOAK: Final = {"client_id": ["azp"], "scope": ["scope"]}
KUBERNETES: Final = {"client_id": None}
POD: Final = {
    "namespace": "agents",
    "node": {"name": "node-1", "uid": "e1b7"},
    "pod": {"name": "desk-7d4b9c", "uid": "a2c9"},
    "serviceaccount": {"name": "desk", "uid": "f00d"},
    "warnafter": 1795003607,
}
SERVICE_ACCOUNT: Final = {
    "client_id": ...,
    "scope": ...,
    "sub": "system:serviceaccount:agents:desk",
    "kubernetes.io": POD,
    "jti": "0f3c",
}
OF_A_USER: Final = {"client_id": ..., "azp": "desk", "scope": "openid reports.read", "sid": "91d7", "acr": "1"}


class Shape(NamedTuple):
    """A token by its header and claims, for an issuer that maps `mapped`; `refusal` is None where it is accepted."""

    typ: str | None
    mapped: dict[str, Any]
    claims: dict[str, Any]
    refusal: str | None = None


SHAPES: Final = {
    "Keycloak: access token": Shape("JWT", KEYCLOAK, {**OF_A_USER, "typ": "Bearer"}),
    "Keycloak before 25: access token with nonce": Shape("JWT", KEYCLOAK, {**OF_A_USER, "typ": "Bearer", "nonce": "n"}),
    "Keycloak: access token without scopes": Shape("JWT", KEYCLOAK, {**OF_A_USER, "typ": "Bearer", "scope": ...}),
    "Keycloak: ID token": Shape("JWT", KEYCLOAK, {**OF_A_USER, "typ": "ID", "at_hash": "h"}, ID_TOKEN),
    "Keycloak: ID token without hash and nonce": Shape("JWT", KEYCLOAK, {**OF_A_USER, "typ": "ID"}, ID_TOKEN),
    "Keycloak: ID token with nonce": Shape("JWT", KEYCLOAK, {**OF_A_USER, "typ": "ID", "nonce": "n"}, ID_TOKEN),
    "no typ: nonce": Shape("JWT", KEYCLOAK, {**OF_A_USER, "nonce": "n"}, ID_TOKEN),
    "no typ: at_hash": Shape("JWT", KEYCLOAK, {**OF_A_USER, "at_hash": "h"}, ID_TOKEN),
    "another typ: nonce": Shape("JWT", KEYCLOAK, {**OF_A_USER, "typ": "bearer", "nonce": "n"}, ID_TOKEN),
    "a typ that is no text": Shape("JWT", KEYCLOAK, {**OF_A_USER, "typ": ["Bearer"], "nonce": "n"}, ID_TOKEN),
    "Cognito: ID token that says Bearer": Shape(
        None, KEYCLOAK, {**OF_A_USER, "typ": "Bearer", "token_use": "id"}, ID_TOKEN
    ),
    "Kubernetes: service account": Shape(None, KUBERNETES, SERVICE_ACCOUNT),
    "Kubernetes: by an empty list": Shape(None, {"client_id": [], "scope": []}, SERVICE_ACCOUNT),
    "Kubernetes: the client is not mapped to null": Shape(
        None, {}, SERVICE_ACCOUNT, "no client is named by client_id or azp or appid or 1 more"
    ),
    "Kubernetes: with nonce": Shape(None, KUBERNETES, {**SERVICE_ACCOUNT, "nonce": "n"}, ID_TOKEN),
    "Kubernetes: kubernetes.io is no object": Shape(
        None, KUBERNETES, {**SERVICE_ACCOUNT, "kubernetes.io": "agents"}, ID_TOKEN
    ),
    "Kubernetes: secret of before 1.24": Shape(
        None,
        KUBERNETES,
        {**SERVICE_ACCOUNT, "kubernetes.io": ..., "exp": ..., "aud": ...},
        "the token has no aud and no exp",
    ),
    "no client and no scope": Shape(
        "JWT", KUBERNETES, {"client_id": ..., "scope": ..., "auth_time": 1795000000}, ID_TOKEN
    ),
}


@covers("A-AUTH-2")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_a_token_of_a_shape_is_accepted_or_refused_for_its_reason(
    server: ScriptedServer, tmp_path: Path, shape: Shape
) -> None:
    issuer = TokenIssuer(tmp_path, issuer="https://idp.example.com/realms/corp")
    corp = {**issuer.section, "claims": shape.mapped}
    config = guarded({"reports": server.url}, issuer, auth={"issuers": {"corp": corp}})
    async with serve(config) as gateway:
        # Keycloak and Kubernetes list audiences.
        token = issuer.token([gateway.url(), "account"], header_typ=shape.typ, **shape.claims)
        if shape.refusal is None:
            host = await gateway.greeted(token=token)
            assert (await host.ask("ping", {})).result == {}
        else:
            code, headers, _ = await ask(gateway, "POST", authorization=f"Bearer {token}")
            assert (code, headers["WWW-Authenticate"].endswith(f'error_description="{shape.refusal}"')) == (401, True)
