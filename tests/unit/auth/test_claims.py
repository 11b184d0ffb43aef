"""The claims of a token, by its issuer's rules and the time of day, tell who sent it or why nobody is believed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from taskgate.auth.claims import (
    MAX_AUDIENCES,
    MAX_NAME,
    MAX_SHOWN,
    ContextPartMissing,
    IssuerSettings,
    TokenProfile,
    read_claims,
)
from taskgate.auth.context import CONTEXT_PARTS, Identity
from taskgate.errors import AuthReason, Unauthenticated
from unit.auth.tokens import ISSUER, MOUNT, NOW, claims

FRACTION = EPOCH.timestamp() - NOW
NOT_THE_MOUNT: list[Any] = [
    *("", "other", [], ["other"], [[MOUNT]], [MOUNT, 1], [MOUNT, None], [MOUNT, [MOUNT]], {MOUNT: 1}, {}, 1, 1.5),
    *(True, False, MOUNT + "/", MOUNT[:-1], MOUNT.upper(), MOUNT + "/more", " " + MOUNT, MOUNT + "\x00"),
    *(MOUNT.replace("p", "\u0440"), f"{MOUNT} other", [f"{MOUNT},other"]),
]
NO_TIMES: list[Any] = [
    *("1", str(NOW + 60), True, False, [], {}, [NOW]),
    *(float("nan"), float("inf"), -float("inf"), 1e300, 10**400, -(10**400), 10**12, -(10**12)),
]
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


def test_a_token_tells_who_sent_it() -> None:
    assert read(claims()) == Identity(
        issuer_name="corp",
        issuer=ISSUER,
        subject="alice",
        client_id="desk",
        tenant=None,
        scopes=frozenset({"read", "write"}),
        expires_at=datetime.fromtimestamp(NOW + 330, UTC),
        claims=claims(),
    )


# --- issuer, audience, subject ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "issuer", [..., None, 1, [ISSUER], ISSUER[:-1], ISSUER + "/", ISSUER.upper(), ISSUER + "x", " " + ISSUER]
)
def test_the_issuer_is_the_configured_one_to_the_letter(issuer: object) -> None:
    assert refused(claims(iss=issuer)) == AuthReason.ISSUER


@pytest.mark.parametrize("audience", [MOUNT, [MOUNT], ["other", MOUNT], [MOUNT, MOUNT]])
def test_a_token_is_meant_for_the_mount_that_was_called(audience: object) -> None:
    assert read(claims(aud=audience)).subject == "alice"


@pytest.mark.parametrize("audience", NOT_THE_MOUNT)
def test_a_token_for_something_else_is_refused(audience: object) -> None:
    assert refused(claims(aud=audience)) == AuthReason.AUDIENCE


@pytest.mark.parametrize(
    ("audience", "found"),
    [
        ("other", ("other",)),
        (..., ()),
        (["a", 1, None], ("a", "int", "NoneType")),
        ({MOUNT: 1}, ("dict",)),
        ("x" * 300, ("x" * MAX_SHOWN,)),
        (["x"] * 20, ("x",) * MAX_AUDIENCES),
    ],
)
def test_a_refused_audience_is_shown_with_the_one_that_was_expected(audience: object, found: tuple[str, ...]) -> None:
    with pytest.raises(Unauthenticated) as refusal:
        read(claims(aud=audience), settings(required_claims=()))
    assert (refusal.value.expected, refusal.value.found) == ((MOUNT,), found)


def test_an_operators_audiences_stand_in_for_the_mount() -> None:
    rules = settings(audience=("one", "two"))
    assert read(claims(aud="two"), rules).subject == read(claims(aud=["x", "one"]), rules).subject == "alice"
    assert refused(claims(aud=MOUNT), rules) == AuthReason.AUDIENCE
    assert refused(claims(aud="on"), rules) == AuthReason.AUDIENCE


def test_an_audience_is_asked_for_even_where_the_operator_does_not_require_the_claim() -> None:
    for absent in (..., None):
        assert refused(claims(aud=absent), settings(required_claims=())) == AuthReason.AUDIENCE


@pytest.mark.parametrize("subject", [..., *NO_NAMES])
def test_the_subject_is_a_name(subject: object) -> None:
    assert refused(claims(sub=subject), settings(required_claims=())) == AuthReason.CLAIM


@pytest.mark.parametrize("name", ["iss", "sub", "aud", "exp", "iat"])
@pytest.mark.parametrize("absent", [..., None])
def test_a_required_claim_is_there_and_says_something(name: str, absent: object) -> None:
    assert refused(claims(**{name: absent})) == (AuthReason.ISSUER if name == "iss" else AuthReason.CLAIM)


@pytest.mark.parametrize("value", ["", 0, False, [], "x"])
def test_an_operator_may_require_more_claims_of_any_value(value: object) -> None:
    rules = settings(required_claims=("jti",))
    assert read(claims(jti=value), rules).claims["jti"] == value
    assert refused(claims(), rules) == AuthReason.CLAIM


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize("value", NO_TIMES)
def test_a_time_is_a_number_within_the_years_that_there_are(name: str, value: object) -> None:
    assert refused(claims(**{name: value})) == AuthReason.CLAIM


@pytest.mark.parametrize("name", ["iat", "nbf"])
def test_a_time_that_is_null_is_no_number(name: str) -> None:
    assert refused(claims(**{name: None}), settings(required_claims=())) == AuthReason.CLAIM


def test_a_token_ends_even_where_the_operator_does_not_require_it() -> None:
    assert refused(claims(exp=...), settings(required_claims=())) == AuthReason.CLAIM


def test_a_token_ends_at_its_time_and_the_leeway() -> None:
    assert read(claims(exp=NOW - 29)).expires_at == datetime.fromtimestamp(NOW + 1, UTC)
    assert refused(claims(exp=NOW - 30)) == AuthReason.EXPIRED
    for past in (0, -1, -NOW, 1.5):
        assert refused(claims(exp=past)) == AuthReason.EXPIRED


def test_a_fraction_of_a_second_counts() -> None:
    rules = settings(leeway=timedelta(0))
    assert read(claims(exp=NOW + FRACTION + 0.001), rules).subject == "alice"
    assert refused(claims(exp=NOW + FRACTION), rules) == AuthReason.EXPIRED
    assert read(claims(nbf=NOW + FRACTION), rules).subject == "alice"
    assert refused(claims(nbf=NOW + FRACTION + 0.001), rules) == AuthReason.NOT_YET_VALID


def test_a_token_may_last_nearly_for_ever() -> None:
    assert read(claims(exp=253402300799)).expires_at.year == 9999


@pytest.mark.parametrize("name", ["iat", "nbf"])
def test_a_token_begins_at_its_time_less_the_leeway(name: str) -> None:
    assert read(claims(**{name: NOW + 30})).subject == "alice"
    assert refused(claims(**{name: NOW + 31})) == AuthReason.NOT_YET_VALID
    assert refused(claims(**{name: NOW + 31}, exp=1)) == AuthReason.NOT_YET_VALID
    assert read(claims(**{name: -1})).subject == "alice"


def test_a_token_need_not_tell_when_it_was_made_where_the_operator_does_not_ask() -> None:
    assert read(claims(iat=...), settings(required_claims=())).subject == "alice"


def test_a_token_that_is_too_old_has_ended() -> None:
    rules = settings(max_token_age=timedelta(seconds=60))
    assert read(claims(iat=NOW - 89), rules).expires_at == datetime.fromtimestamp(NOW + 1, UTC)
    assert refused(claims(iat=NOW - 90), rules) == AuthReason.EXPIRED
    assert read(claims(exp=NOW + 5), rules).expires_at == datetime.fromtimestamp(NOW + 35, UTC)


def test_a_token_whose_age_counts_tells_it() -> None:
    rules = settings(max_token_age=timedelta(seconds=60), required_claims=())
    assert refused(claims(iat=...), rules) == AuthReason.CLAIM


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


# --- access tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nonce", "at_hash", "c_hash"])
@pytest.mark.parametrize("value", ["x", "", None])
def test_an_id_token_is_refused(name: str, value: object) -> None:
    assert refused(claims(**{name: value})) == AuthReason.CLAIM
    assert read(claims(**{name: value}), settings(profile=TokenProfile.RFC9068)).subject == "alice"


def test_a_token_that_may_be_of_any_type_has_a_scope_or_a_client() -> None:
    bound = ("iss", "sub")
    assert refused(claims(scope=..., client_id=...), bound=bound) == AuthReason.CLAIM
    assert read(claims(scope=...), bound=bound).client_id == "desk"
    assert read(claims(client_id=...), bound=bound).scopes == {"read", "write"}
    assert read(claims(scope=..., client_id=..., scp=[]), bound=bound).scopes == frozenset()
    assert read(claims(scope=..., client_id=...), settings(profile=TokenProfile.RFC9068), bound).subject == "alice"


# --- client and tenant ------------------------------------------------------------------------------------------------


def test_the_first_claim_that_is_there_names_the_client() -> None:
    assert read(claims(client_id=..., appid="app", azp="party")).client_id == "party"
    assert read(claims(cid="other", client_id="desk")).client_id == "desk"
    assert read(claims(x="mine"), settings(client_id_claims=("x", "client_id"))).client_id == "mine"


@pytest.mark.parametrize("client_id", NO_NAMES)
def test_a_client_that_is_no_name_is_refused_and_no_other_claim_is_tried(client_id: object) -> None:
    payload = claims(client_id=client_id, azp="party")
    for bound in (CONTEXT_PARTS, ("iss", "sub")):
        assert missing(payload, bound=bound) == "auth.issuers.corp.claims.client_id"


def test_a_client_may_be_missing_only_where_it_is_no_part_of_the_context() -> None:
    assert missing(claims(client_id=...)) == "auth.issuers.corp.claims.client_id"
    assert read(claims(client_id=...), bound=("iss", "tenant", "sub")).client_id is None


def test_a_client_that_is_not_mapped_is_none() -> None:
    assert read(claims(), settings(client_id_claims=())).client_id is None


def test_a_tenant_that_is_mapped_is_a_name() -> None:
    rules = settings(tenant_claim="org")
    assert read(claims(org="acme"), rules).tenant == "acme"
    for tenant in (..., *NO_NAMES):
        assert missing(claims(org=tenant), rules) == "auth.issuers.corp.claims.tenant"
        assert missing(claims(org=tenant), rules, ("iss", "sub")) == "auth.issuers.corp.claims.tenant"


def test_a_tenant_that_is_not_mapped_is_none() -> None:
    assert read(claims(tenant="acme")).tenant is None


# --- scopes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "scopes"),
    [
        ("", set()),
        ("a", {"a"}),
        ("a b  a ", {"a", "b"}),
        ("a\tb\u00a0c", {"a\tb\u00a0c"}),
        ([], set()),
        (["a", "", "b c"], {"a", "b c"}),
    ],
)
@pytest.mark.parametrize("name", ["scope", "scp"])
def test_scopes_are_words_between_spaces_or_an_array(name: str, value: object, scopes: set[str]) -> None:
    assert read(claims(**{"scope": ..., name: value})).scopes == scopes


def test_the_first_claim_that_is_there_names_the_scopes() -> None:
    assert read(claims(scope="a", scp=["b"])).scopes == {"a"}
    assert read(claims(scope=...)).scopes == frozenset()


@pytest.mark.parametrize("value", [None, 1, True, {}, {"a": 1}, ["a", 1], [["a"]], [None]])
@pytest.mark.parametrize("name", ["scope", "scp"])
def test_scopes_of_another_type_are_refused(name: str, value: object) -> None:
    assert refused(claims(**{"scope": ..., name: value})) == AuthReason.CLAIM
