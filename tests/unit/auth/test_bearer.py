"""A request has one bearer token, whose header and claims are parsed strictly before it is verified."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.auth.claims import (
    MAX_DEPTH,
    MAX_NAME,
    MAX_TOKEN,
    IssuerSettings,
    TokenProfile,
    bearer_token,
    check_header,
    is_name,
    parse_token,
)
from taskgate.errors import AuthReason, Unauthenticated
from unit.auth.tokens import ISSUER, base64url, claims, dumped, header, unsigned


def refused(authorization: list[str], query: str = "") -> str:
    with pytest.raises(Unauthenticated) as refusal:
        bearer_token(authorization, query)
    return refusal.value.reason


# --- the request ------------------------------------------------------------------------------------------------------


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


def test_a_token_may_have_32_kib() -> None:
    assert len(bearer_token(["Bearer " + MAX_TOKEN * "a"], "")) == 32 * 1024


@given(st.lists(st.text(max_size=20) | st.text("bearBEAR ,\ta.", max_size=20), max_size=2), st.text(max_size=30))
def test_any_request_has_one_token_or_is_refused(authorization: list[str], query: str) -> None:
    try:
        token = bearer_token(authorization, query)
    except Unauthenticated:
        return
    assert authorization[0].endswith(token)
    assert token.isascii()


# --- names ------------------------------------------------------------------------------------------------------------


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


# --- what an operator takes -------------------------------------------------------------------------------------------


def is_taken(head: dict[str, object], profile: TokenProfile = TokenProfile.GENERIC) -> None:
    check_header(parse_token(unsigned(head)), IssuerSettings(name="corp", issuer=ISSUER, profile=profile))


def refused_kind(head: dict[str, object], profile: TokenProfile = TokenProfile.GENERIC) -> str:
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
    is_taken(header(typ=typ), TokenProfile.RFC9068)


@pytest.mark.parametrize(
    "typ",
    [None, "", 1, True, ["at+jwt"], "id_token", "dpop+jwt", "logout+jwt", "secevent+jwt", "JOSE", "at+jwt ", " at+jwt",
     "application/application/at+jwt", "text/at+jwt", "at+jwt\x00", "at jwt", "application/", "ât+jwt"],
)  # fmt: skip
@pytest.mark.parametrize("profile", list(TokenProfile))
def test_another_kind_of_token_is_refused(typ: object, profile: TokenProfile) -> None:
    assert refused_kind(header(typ=typ), profile) == AuthReason.TYP


@pytest.mark.parametrize("typ", [..., "JWT", "application/jwt"])
def test_an_rfc_9068_issuer_has_no_tokens_of_type_jwt(typ: object) -> None:
    assert refused_kind(header(typ=typ), TokenProfile.RFC9068) == AuthReason.TYP


@pytest.mark.parametrize("algorithm", ["none", "None", "nOnE", "HS256", "ES384", "es256", "ES256 ", "ES256K", ""])
def test_an_algorithm_that_is_not_in_the_list_is_refused(algorithm: str) -> None:
    assert refused_kind(header(alg=algorithm)) == AuthReason.ALG


# --- header and claims ------------------------------------------------------------------------------------------------


def refused_look(token: str) -> str:
    with pytest.raises(Unauthenticated) as refusal:
        parse_token(token)
    assert refusal.value.issuer is None
    return refusal.value.reason


def test_a_token_tells_its_issuer_its_key_and_its_algorithm() -> None:
    seen = parse_token(unsigned())
    assert (seen.issuer, seen.kid, seen.algorithm) == (ISSUER, "ES256", "ES256")
    assert (seen.header, seen.claims) == (header(), claims())


def test_a_token_need_not_name_a_key() -> None:
    assert parse_token(unsigned(header(kid=...))).kid is None


@given(st.binary(max_size=40))
def test_a_signature_is_any_bytes_in_their_one_spelling(signature: bytes) -> None:
    assert parse_token(unsigned(signature=base64url(signature))).issuer == ISSUER


@pytest.mark.parametrize(
    "spelling", ["Yg==", "Yh", "YWJjZ", "YWJjZB", "YWI=", "YWJ", "YW+j", "YW/j", "YW j", "YWJj\n", "YW\u00ebj"]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_another_spelling_of_base64url_is_refused(spelling: str, place: int) -> None:
    parts = unsigned().split(".")
    parts[place] = spelling
    assert refused_look(".".join(parts)) == AuthReason.MALFORMED


@pytest.mark.parametrize("place", [0, 1])
def test_spare_bits_and_padding_do_not_make_a_second_spelling(place: int) -> None:
    texts = [dumped(header()), dumped(claims()), b"signature"]
    texts[place] += b" " * ((1 - len(texts[place])) % 3)
    parts = [base64url(text) for text in texts]
    assert parse_token(".".join(parts)).issuer == ISSUER
    last = parts[place][-1]
    for other in (parts[place][:-1] + chr(ord(last) + 1), parts[place] + "==", parts[place] + "A"):
        assert refused_look(".".join([*parts[:place], other, *parts[place + 1 :]])) == AuthReason.MALFORMED


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "a", "a.b", "....", unsigned() + ".", "." + unsigned(), unsigned() + ".YQ.YQ", " " + unsigned()],
)
def test_what_has_not_three_parts_is_refused(token: str) -> None:
    assert refused_look(token) == AuthReason.MALFORMED


def test_a_token_beyond_32_kib_is_refused_unread() -> None:
    longest = unsigned(payload=claims(sub="a" * 5800))
    longest = longest.rpartition(".")[0] + "."
    longest += "A" * ((MAX_TOKEN - len(longest)) // 4 * 4)
    assert MAX_TOKEN - 4 < len(longest) <= MAX_TOKEN
    assert parse_token(longest).issuer == ISSUER
    assert refused_look(longest + "AAAA") == AuthReason.MALFORMED


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'"iss"',
        b"null",
        b"{",
        b"{}{}",
        b"\xef\xbb\xbf{}",
        b'{"iss":"\xff"}',
        b'{"iss":"\xed\xa0\x80"}',
        b'{"iss":"a","iss":"a"}',
        b'{"iss":"a","\\u0069ss":"b"}',
        b'{"iss":"a","x":{"y":1,"y":1}}',
        b'{"iss":"a","exp":NaN}',
        b'{"iss":"a","exp":-Infinity}',
        b'{"iss":"a","exp":' + 5000 * b"9" + b"}",
        b'{"iss":"a","x":' + MAX_DEPTH * b"[" + MAX_DEPTH * b"]" + b"}",
        b'{"iss":"a","x":' + 2000 * b"[",
        json.dumps({"iss": "a"}).encode("utf-16"),
        json.dumps({"iss": "a"}).encode("utf-16-le"),
        json.dumps({"iss": "a"}).encode("utf-32"),
    ],
)
def test_what_is_not_one_plain_json_object_is_refused(text: bytes) -> None:
    assert refused_look(unsigned(payload=text)) == AuthReason.MALFORMED
    assert (
        refused_look(unsigned(head=text.replace(b"iss", b"alg").replace(b"\\u0069ss", b"\\u0061lg")))
        == AuthReason.MALFORMED
    )


def test_claims_may_nest_as_deep_as_that() -> None:
    deepest = b'{"iss":"a","x":' + (MAX_DEPTH - 1) * b"[" + (MAX_DEPTH - 1) * b"]" + b"}"
    assert parse_token(unsigned(payload=deepest)).issuer == "a"


@pytest.mark.parametrize("name", ["crit", "b64", "jku", "jwk", "x5u", "x5c", "zip", "enc"])
@pytest.mark.parametrize("value", [None, True, False, "", ["exp"], {}])
def test_a_header_that_brings_or_changes_something_is_refused(name: str, value: object) -> None:
    assert refused_look(unsigned(header(**{name: value}))) == AuthReason.MALFORMED


def test_other_headers_are_left_alone() -> None:
    assert parse_token(unsigned(header(x5t="abc", cty="JWT", epk={}))).algorithm == "ES256"


@pytest.mark.parametrize(
    "kid", [None, "", 1, True, ["a"], {}, "a\x00b", "a\nb", "a\u0085", "\ud800", "k" * (MAX_NAME + 1)]
)
def test_a_key_id_that_is_no_name_is_refused(kid: object) -> None:
    assert refused_look(unsigned(header(kid=kid))) == AuthReason.MALFORMED


@pytest.mark.parametrize("algorithm", [..., None, 1, ["ES256"], {"ES256": 1}, True])
def test_a_token_names_its_algorithm(algorithm: object) -> None:
    assert refused_look(unsigned(header(alg=algorithm))) == AuthReason.ALG


@pytest.mark.parametrize("issuer", [..., None, 1, [ISSUER], {ISSUER: 1}, True])
def test_a_token_names_its_issuer(issuer: object) -> None:
    assert refused_look(unsigned(payload=claims(iss=issuer))) == AuthReason.ISSUER


@given(st.text(max_size=60) | st.text("ab._-=/+", max_size=60))
def test_any_text_is_read_or_refused(token: str) -> None:
    with pytest.raises(Unauthenticated):
        parse_token(token)
