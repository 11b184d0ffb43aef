"""A request has one bearer token, in its place, and the operator says which kinds of token are taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.auth.bearer import MAX_NAME, MAX_TOKEN, check_header, is_name, look_at, token_of
from taskgate.auth.settings import IssuerSettings, Profile
from taskgate.errors import AuthReason, Unauthenticated
from unit.auth.tokens import ISSUER, header, unsigned


def refused(authorization: list[str], query: str = "") -> str:
    with pytest.raises(Unauthenticated) as refusal:
        token_of(authorization, query)
    return refusal.value.reason


# --- the request -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_is_the_same_in_any_case(scheme: str) -> None:
    assert token_of([f"{scheme} a.b.c"], "") == "a.b.c"


def test_several_spaces_may_stand_before_the_token() -> None:
    assert token_of(["Bearer    a.b.c"], "") == "a.b.c"


def test_nothing_sent_is_told_apart_from_something_wrong() -> None:
    for nothing in ([], [""], [" \t"]):
        with pytest.raises(Unauthenticated) as refusal:
            token_of(nothing, "")
        assert (refusal.value.reason, refusal.value.token_sent) == (AuthReason.MISSING, False)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("Basic YTpi", AuthReason.SCHEME),
        ("DPoP a.b.c", AuthReason.SCHEME),
        ("a.b.c", AuthReason.SCHEME),
        ("Bearera.b.c", AuthReason.SCHEME),
        ("Bearer\ta.b.c", AuthReason.SCHEME),
        ("Bearer\u00a0a.b.c", AuthReason.SCHEME),
        (" Bearer a.b.c", AuthReason.SCHEME),
        ("Basic YTpi, Bearer a.b.c", AuthReason.SCHEME),
        ("Bearer", AuthReason.MALFORMED),
        ("Bearer ", AuthReason.MALFORMED),
        ("Bearer \ta.b.c", AuthReason.MALFORMED),
        ("Bearer a.b.c ", AuthReason.MALFORMED),
        ("Bearer a.b .c", AuthReason.MALFORMED),
        ("Bearer a.b\t.c", AuthReason.MALFORMED),
        ("Bearer a.b.c\n", AuthReason.MALFORMED),
        ("Bearer a.b.c, Bearer a.b.c", AuthReason.MALFORMED),
        ("Bearer a.b.c,a.b.c", AuthReason.MALFORMED),
        ('Bearer "a.b.c"', AuthReason.MALFORMED),
        ("Bearer =", AuthReason.MALFORMED),
        ("Bearer a.b\u212a.c", AuthReason.MALFORMED),
        ("Bearer a.\udcff.c", AuthReason.MALFORMED),
        ("Bearer " + (MAX_TOKEN + 1) * "a", AuthReason.MALFORMED),
    ],
)
def test_what_is_not_one_bearer_token_is_refused(value: str, reason: AuthReason) -> None:
    assert refused([value]) == reason


def test_a_token_may_have_8_kib() -> None:
    assert len(token_of(["Bearer " + MAX_TOKEN * "a"], "")) == 8192


def test_two_fields_are_refused_even_if_they_are_equal_or_empty() -> None:
    assert refused(["Bearer a.b.c", "Bearer a.b.c"]) == AuthReason.MALFORMED
    assert refused(["Bearer a.b.c", ""]) == AuthReason.MALFORMED


@pytest.mark.parametrize(
    "query",
    [
        "access_token=a.b.c",
        "access_token=",
        "access_token",
        "x=1&access_token=a",
        "x=1;access_token=a",
        "x&&access_token=a&y",
        "ACCESS_TOKEN=a",
        "Access_Token=a",
        "%61ccess_token=a",
        "access%5ftoken=a",
        "access%5Ftoken=a",
        "%41%43%43%45%53%53%5F%54%4F%4B%45%4E=a",
        "+access_token=a",
        "access_token%20=a",
        "access_token%0a=a",
    ],
)
def test_a_token_in_the_query_is_refused_whatever_else_was_sent(query: str) -> None:
    for authorization in ([], ["Bearer a.b.c"], ["Basic YTpi"], ["Bearer a", "Bearer b"]):
        assert refused(authorization, query) == AuthReason.QUERY_TOKEN


@pytest.mark.parametrize(
    "query", ["", "x=access_token", "token=a", "access_token_hint=a", "%ff=a", "&", "access%255Ftoken"]
)
def test_other_queries_do_no_harm(query: str) -> None:
    assert token_of(["Bearer a.b.c"], query) == "a.b.c"


@given(st.lists(st.text(max_size=20) | st.text("bearBEAR ,\ta.", max_size=20), max_size=2), st.text(max_size=30))
def test_any_request_has_one_token_or_is_refused(authorization: list[str], query: str) -> None:
    try:
        token = token_of(authorization, query)
    except Unauthenticated:
        return
    assert authorization[0].endswith(token)
    assert token.isascii()


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "a:b", "Zoë", "日本", "a b", "\u202e", "x" * MAX_NAME])
def test_a_name_is_any_short_text_without_controls(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a\x00",
        "\x1f",
        "a\x7f",
        "\x80",
        "\x9f",
        "\ud800",
        "a\udfff",
        "x" * (MAX_NAME + 1),
        None,
        1,
        True,
        b"a",
        ["a"],
    ],
)
def test_anything_else_is_no_name(value: object) -> None:
    assert not is_name(value)


# --- what an operator takes --------------------------------------------------------------------------------------


def is_taken(head: dict[str, object], profile: Profile = Profile.GENERIC) -> None:
    check_header(look_at(unsigned(head)), IssuerSettings(name="corp", issuer=ISSUER, profile=profile))


def refused_kind(head: dict[str, object], profile: Profile = Profile.GENERIC) -> str:
    with pytest.raises(Unauthenticated) as refusal:
        is_taken(head, profile)
    assert refusal.value.issuer == "corp"
    return refusal.value.reason


@pytest.mark.parametrize(
    "typ", [..., "JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", "Application/AT+jwt", "application/jwt"]
)
def test_a_general_issuer_may_call_its_tokens_jwt_or_nothing(typ: object) -> None:
    is_taken(header(typ=typ))


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "APPLICATION/at+jwt"])
def test_an_rfc_9068_issuer_calls_its_tokens_access_tokens(typ: str) -> None:
    is_taken(header(typ=typ), Profile.RFC9068)


@pytest.mark.parametrize(
    "typ",
    [None, "", 1, True, ["at+jwt"], "id_token", "dpop+jwt", "logout+jwt", "secevent+jwt", "JOSE", "at+jwt ", " at+jwt",
     "application/application/at+jwt", "text/at+jwt", "at+jwt\x00", "at jwt", "application/", "ât+jwt"],
)  # fmt: skip
@pytest.mark.parametrize("profile", list(Profile))
def test_another_kind_of_token_is_refused(typ: object, profile: Profile) -> None:
    assert refused_kind(header(typ=typ), profile) == AuthReason.TYP


@pytest.mark.parametrize("typ", [..., "JWT", "application/jwt"])
def test_an_rfc_9068_issuer_has_no_tokens_of_type_jwt(typ: object) -> None:
    assert refused_kind(header(typ=typ), Profile.RFC9068) == AuthReason.TYP


@pytest.mark.parametrize("algorithm", ["none", "None", "nOnE", "HS256", "ES384", "es256", "ES256 ", "ES256K", ""])
def test_an_algorithm_that_is_not_in_the_list_is_refused(algorithm: str) -> None:
    assert refused_kind(header(alg=algorithm)) == AuthReason.ALG
