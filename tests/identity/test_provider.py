"""The identity provider does what the other tests with it rely on."""

from typing import Any

import aiohttp
import jwt
import pytest

from helpers.identity_provider import RESOURCE, IdentityProvider, TokenRefused
from helpers.waiting import bounded

OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
ALGORITHMS = ("RS256", "ES256", "EdDSA")


async def answer(url: str) -> tuple[int, str, Any]:
    """Status, media type and what the JSON says."""
    async with bounded(), aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, response.content_type, await response.json(content_type=None)


async def published(provider: IdentityProvider) -> jwt.PyJWKSet:
    """The keys that the provider publishes now."""
    _, _, keys = await answer(f"{provider.issuer}/jwks")
    return jwt.PyJWKSet.from_dict(keys)


async def kids(provider: IdentityProvider) -> set[str | None]:
    return {key.key_id for key in (await published(provider)).keys}


async def verified(provider: IdentityProvider, token: str, *, audience: str = RESOURCE) -> dict[str, Any]:
    """The token's claims, once the published key that it names has verified it."""
    key = (await published(provider))[jwt.get_unverified_header(token)["kid"]]
    return jwt.decode(token, key, algorithms=[key.algorithm_name], audience=audience, issuer=provider.issuer)


@pytest.mark.parametrize("address", [OAUTH, OPENID])
async def test_both_discovery_documents_name_the_issuer_and_its_keys(provider: IdentityProvider, address: str) -> None:
    status, media_type, document = await answer(provider.issuer + address)
    assert (status, media_type) == (200, "application/json")
    assert (document["issuer"], document["jwks_uri"]) == (provider.issuer, f"{provider.issuer}/jwks")


async def test_a_provider_may_answer_openid_discovery_alone(provider_installed: None) -> None:
    async with IdentityProvider(oauth_metadata=False) as provider:
        assert (await answer(provider.issuer + OAUTH))[0] == 404
        assert (await answer(provider.issuer + OPENID))[2]["issuer"] == provider.issuer


async def test_one_public_key_of_each_algorithm_is_published(provider: IdentityProvider) -> None:
    status, media_type, document = await answer(f"{provider.issuer}/jwks")
    keys = document["keys"]
    assert (status, media_type) == (200, "application/jwk-set+json")
    assert [key["alg"] for key in keys] == list(ALGORITHMS)
    assert len({key["kid"] for key in keys}) == 3
    assert all("d" not in key for key in keys)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_token_of_client_credentials_is_an_access_token_for_one_resource(
    provider: IdentityProvider, algorithm: str
) -> None:
    token = await provider.token(scopes=("reports.read", "reports.admin"), algorithm=algorithm)
    header, claims = jwt.get_unverified_header(token), await verified(provider, token)
    assert (header["typ"], header["alg"]) == ("at+jwt", algorithm)
    assert set(claims) == {"iss", "aud", "sub", "client_id", "scope", "jti", "iat", "exp"}
    assert claims["iss"] == provider.issuer
    assert claims["aud"] == RESOURCE
    assert claims["sub"] == claims["client_id"] == "host-a"
    assert claims["scope"] == "reports.read reports.admin"
    assert claims["exp"] - claims["iat"] == 300


@pytest.mark.parametrize("subject", [None, "alice"])
async def test_a_token_is_for_no_other_resource(provider: IdentityProvider, subject: str | None) -> None:
    token = await provider.token(subject=subject, resource="http://127.0.0.1:1/other/mcp")
    with pytest.raises(jwt.InvalidAudienceError):
        await verified(provider, token)
    assert await verified(provider, token, audience="http://127.0.0.1:1/other/mcp")


async def test_one_client_acts_for_two_subjects(provider: IdentityProvider) -> None:
    claims = [await verified(provider, await provider.token(subject=name)) for name in ("alice", "bob")]
    assert [(each["client_id"], each["sub"]) for each in claims] == [("host-a", "alice"), ("host-a", "bob")]
    assert {each["scope"] for each in claims} == {"reports.read reports.run"}


async def test_two_clients_act_for_one_subject(provider: IdentityProvider) -> None:
    tokens = [await provider.token(client, subject="alice") for client in ("host-a", "host-b")]
    claims = [await verified(provider, token) for token in tokens]
    assert [(each["client_id"], each["sub"]) for each in claims] == [("host-a", "alice"), ("host-b", "alice")]


async def test_no_two_tokens_are_the_same(provider: IdentityProvider) -> None:
    claims = [await verified(provider, await provider.token()) for _ in range(2)]
    assert claims[0]["jti"] != claims[1]["jti"]


@pytest.mark.parametrize("subject", [None, "alice"])
async def test_scopes_that_nobody_knows_are_left_out(provider: IdentityProvider, subject: str | None) -> None:
    token = await provider.token(subject=subject, scopes=("reports.read", "payroll"))
    assert (await verified(provider, token))["scope"] == "reports.read"
    assert "scope" not in await verified(provider, await provider.token(subject=subject, scopes=()))


@pytest.mark.parametrize("subject", [None, "alice"])
async def test_a_test_says_how_long_a_token_lives(provider: IdentityProvider, subject: str | None) -> None:
    claims = await verified(provider, await provider.token(subject=subject, lifetime=7))
    assert claims["exp"] - claims["iat"] == 7
    with pytest.raises(jwt.ExpiredSignatureError):
        await verified(provider, await provider.token(subject=subject, lifetime=-60))


@pytest.mark.parametrize("subject", [None, "alice"])
async def test_a_token_carries_further_claims(provider: IdentityProvider, subject: str | None) -> None:
    claims = await verified(provider, await provider.token(subject=subject, claims={"tenant": "acme", "groups": ["a"]}))
    assert (claims["tenant"], claims["groups"]) == ("acme", ["a"])


@pytest.mark.parametrize("subject", [None, "alice"])
async def test_a_client_that_is_not_known_gets_no_token(provider: IdentityProvider, subject: str | None) -> None:
    with pytest.raises(TokenRefused, match="invalid_client"):
        await provider.token("host-z", subject=subject)


async def test_after_a_rotation_new_keys_sign_and_the_old_are_gone(own_provider: IdentityProvider) -> None:
    old, before = await own_provider.token(), await kids(own_provider)
    await own_provider.rotate()
    new, after = await own_provider.token(), await kids(own_provider)
    assert len(after) == 3
    assert not before & after
    assert jwt.get_unverified_header(old)["kid"] in before
    assert jwt.get_unverified_header(new)["kid"] in after
    assert await verified(own_provider, new)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_old_keys_stay_published_until_they_are_retired(own_provider: IdentityProvider, algorithm: str) -> None:
    old, before = await own_provider.token(algorithm=algorithm), await kids(own_provider)
    await own_provider.publish_new_keys()
    both = await kids(own_provider)
    new = await own_provider.token(subject="alice", algorithm=algorithm)
    assert before < both
    assert jwt.get_unverified_header(new)["kid"] in both - before
    assert (await verified(own_provider, old))["sub"] == "host-a"
    assert (await verified(own_provider, new))["sub"] == "alice"
    await own_provider.retire_old_keys()
    assert await kids(own_provider) == both - before


async def test_two_providers_are_two_issuers_with_keys_of_their_own(
    provider: IdentityProvider, own_provider: IdentityProvider
) -> None:
    assert provider.issuer != own_provider.issuer
    assert not await kids(provider) & await kids(own_provider)


async def test_at_the_end_of_its_block_a_provider_is_gone(provider_installed: None) -> None:
    async with IdentityProvider() as provider:
        issuer = provider.issuer
        assert (await answer(issuer + OPENID))[0] == 200
    with pytest.raises(aiohttp.ClientConnectorError):
        await answer(issuer + OPENID)
