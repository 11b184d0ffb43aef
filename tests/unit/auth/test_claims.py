"""The claims of a token, by its issuer's rules and the time of day, tell who sent it or why nobody is believed."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from taskgate.auth.claims import (
    MAX_NAME,
    ContextPartMissing,
    IssuerSettings,
    read_claims,
)
from taskgate.auth.context import CONTEXT_PARTS, Identity
from taskgate.auth.metadata import challenge
from taskgate.errors import AuthReason, Unauthenticated
from unit.auth.tokens import ISSUER, MOUNT, NOW, claims

FRACTION = EPOCH.timestamp() - NOW
NO_NAMES: list[Any] = ["", None, 1, True, ["a"], {}, "a\x00b", "a\nb", "\x85", "\ud800", "x" * (MAX_NAME + 1)]


def settings(**changes: Any) -> IssuerSettings:
    return IssuerSettings(**{"name": "corp", "issuer": ISSUER, **changes})


def read(
    payload: dict[str, Any], rules: IssuerSettings | None = None, bound: tuple[str, ...] = CONTEXT_PARTS
) -> Identity:
    return read_claims(payload, rules or settings(), audience=MOUNT, now=EPOCH, bound=bound)


def refused(
    payload: dict[str, Any], rules: IssuerSettings | None = None, bound: tuple[str, ...] = CONTEXT_PARTS
) -> str:
    with pytest.raises(Unauthenticated) as refusal:
        read(payload, rules, bound)
    assert refusal.value.issuer == "corp"
    return refusal.value.reason


def missing(
    payload: dict[str, Any], rules: IssuerSettings | None = None, bound: tuple[str, ...] = CONTEXT_PARTS
) -> str:
    with pytest.raises(ContextPartMissing) as refusal:
        read(payload, rules, bound)
    assert (refusal.value.reason, refusal.value.issuer) == (AuthReason.CLAIM, "corp")
    return refusal.value.setting


# --- issuer, audience, subject ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", [..., *NO_NAMES])
def test_the_subject_is_a_name(subject: object) -> None:
    assert refused(claims(sub=subject), settings(required_claims=())) == AuthReason.CLAIM


@given(st.text() | st.lists(st.text(), max_size=6), st.text())
def test_what_a_refusal_tells_of_a_claim_is_short_and_neither_ends_nor_begins_a_parameter(
    audience: object, tenant: str
) -> None:
    for rules in (settings(audience=("no audience of theirs",)), settings(audience=(f"no {tenant}", "other"))):
        with pytest.raises(Unauthenticated) as refusal:
            read(claims(aud=audience), rules)
        told = refusal.value.detail
        assert told is not None
        assert told.isascii()
        assert told.isprintable()
        assert not set('"\\=,<>') & set(told)
        assert len(told) < 1000


def test_a_planted_parameter_is_no_parameter_of_the_challenge() -> None:
    planted = 'x", resource_metadata="https://evil.example/", scope="admin'
    with pytest.raises(Unauthenticated) as refusal:
        read(claims(aud=planted))
    assert refusal.value.detail is not None
    header = challenge("https://good.example/", token_sent=True, detail=refusal.value.detail)
    assert re.findall(r'resource_metadata=(?:"([^"]+)"|([^\s,]+))', header) == [("https://good.example/", "")]
    assert re.findall("scope=", header) == []


# --- times ------------------------------------------------------------------------------------------------------------


def test_a_token_that_is_too_old_has_ended() -> None:
    rules = settings(max_token_age=timedelta(seconds=60))
    assert read(claims(iat=NOW - 89), rules).expires_at == datetime.fromtimestamp(NOW + 1, UTC)
    assert refused(claims(iat=NOW - 90), rules) == AuthReason.EXPIRED
    assert read(claims(exp=NOW + 5), rules).expires_at == datetime.fromtimestamp(NOW + 35, UTC)


@given(st.integers(-100, 100), st.integers(-100, 100), st.integers(-100, 100), st.integers(0, 60))
def test_a_token_is_good_between_its_times(exp: int, nbf: int, iat: int, leeway: int) -> None:
    rules = settings(leeway=timedelta(seconds=leeway))
    payload = claims(exp=NOW + exp, nbf=NOW + nbf, iat=NOW + iat)
    if max(nbf, iat) > FRACTION + leeway:
        assert refused(payload, rules) == AuthReason.NOT_YET_VALID
    elif exp + leeway <= FRACTION:
        assert refused(payload, rules) == AuthReason.EXPIRED
    else:
        assert read(payload, rules).subject == "alice"


# --- client and tenant ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_id", NO_NAMES)
def test_a_client_that_is_no_name_is_refused_and_no_other_claim_is_tried(client_id: object) -> None:
    payload = claims(client_id=client_id, azp="party")
    for bound in (CONTEXT_PARTS, ("iss", "sub")):
        assert missing(payload, bound=bound) == "auth.issuers.corp.claims.client_id"


def test_a_tenant_that_is_mapped_is_a_name() -> None:
    rules = settings(tenant_claim="org")
    assert read(claims(org="acme"), rules).tenant == "acme"
    for tenant in (..., *NO_NAMES):
        assert missing(claims(org=tenant), rules) == "auth.issuers.corp.claims.tenant"
        assert missing(claims(org=tenant), rules, ("iss", "sub")) == "auth.issuers.corp.claims.tenant"
