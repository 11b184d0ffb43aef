"""Tokens that were made to be taken for good ones, and why each of them is not."""

import hmac
import json
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from requirements import covers
from taskgate.auth.claims import IssuerSettings, TokenProfile
from taskgate.errors import AuthReason
from unit.auth.tokens import (
    ALGORITHMS,
    CORP,
    ISSUER,
    NOW,
    AnyKey,
    Gate,
    KnownKeys,
    all_keys,
    base64url,
    claims,
    dumped,
    header,
    public,
    public_jwk,
    signed,
    token,
    unsigned,
)


def forged(head: Mapping[str, Any], key: bytes, digest: str = "sha256") -> str:
    """A token that is signed with a public key as if that were a secret."""
    text = f"{base64url(dumped(head))}.{base64url(dumped(claims()))}"
    return f"{text}.{base64url(hmac.digest(key, text.encode(), digest))}"


def spellings_of(algorithm: str) -> list[bytes]:
    """The public key in every form that somebody might take for a shared secret."""
    key = public(algorithm).key
    info = PublicFormat.SubjectPublicKeyInfo
    pem, der = key.public_bytes(Encoding.PEM, info), key.public_bytes(Encoding.DER, info)
    jwk = public_jwk(algorithm)
    return [pem, pem.strip(), der, b64encode(der), json.dumps(jwk).encode(), json.dumps({"keys": [jwk]}).encode(), b""]


# --- algorithms -------------------------------------------------------------------------------------------------------


@covers("T1")
@pytest.mark.parametrize("name", ["none", "None", "nOnE", "NONE", "none ", ""])
@pytest.mark.parametrize("signature", ["", "c2ln"])
async def test_no_token_is_good_without_a_signature(name: str, signature: str) -> None:
    assert await Gate().refused(unsigned(header(alg=name), signature=signature)) == AuthReason.ALG


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_signature_is_not_left_out(algorithm: str) -> None:
    assert await Gate().refused(unsigned(header(algorithm), signature="")) == AuthReason.SIGNATURE


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
@pytest.mark.parametrize("name", ["HS256", "HS384", "HS512"])
async def test_a_public_key_is_no_secret(algorithm: str, name: str) -> None:
    for key in spellings_of(algorithm):
        sent = forged(header(alg=name, kid=algorithm), key, name.replace("HS", "sha"))
        assert await Gate().refused(sent) == AuthReason.ALG
        assert await Gate((CORP, AnyKey(*all_keys()))).refused(sent) == AuthReason.ALG


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
async def test_a_public_key_is_no_secret_under_the_name_of_its_own_algorithm(algorithm: str) -> None:
    for key in spellings_of(algorithm):
        assert await Gate().refused(forged(header(algorithm), key)) == AuthReason.SIGNATURE


async def test_a_shared_secret_among_the_keys_is_not_used() -> None:
    shared = jwt.PyJWK({"kty": "oct", "k": base64url(32 * b"k"), "kid": "ES256"}, "HS256")
    for name in ("HS256", "ES256"):
        sent = forged(header(alg=name), 32 * b"k")
        assert await Gate((CORP, AnyKey(shared))).refused(sent) == AuthReason.ALG


@pytest.mark.parametrize("named", ALGORITHMS)
@pytest.mark.parametrize("used", ALGORITHMS)
async def test_a_key_serves_one_algorithm(named: str, used: str) -> None:
    sent = token(header(named, kid=used), signed_as=used)
    assert named == used or await Gate((CORP, AnyKey(public(used)))).refused(sent) == AuthReason.ALG
    assert named == used or await Gate((CORP, AnyKey(public(named)))).refused(sent) == AuthReason.SIGNATURE
    assert named == used or await Gate().refused(sent) == AuthReason.UNKNOWN_KID


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_an_algorithm_is_taken_only_where_the_operator_names_it(algorithm: str) -> None:
    others = tuple(name for name in ALGORITHMS if name != algorithm)
    gate = Gate((IssuerSettings(name="corp", issuer=ISSUER, algorithms=others), KnownKeys(*all_keys())))
    assert await gate.refused(token(signed_as=algorithm)) == AuthReason.ALG


@pytest.mark.parametrize("algorithm", ["RS256", "PS256"])
async def test_a_key_that_is_too_short_vouches_for_nothing(algorithm: str) -> None:
    gate = Gate((CORP, AnyKey(public(algorithm, 0, 1024))))
    assert await gate.refused(token(signed_as=algorithm, bits=1024)) == AuthReason.ALG


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_signature_is_over_these_letters_by_this_key(algorithm: str) -> None:
    gate, sent = Gate(), token(signed_as=algorithm)
    text, _, signature = sent.rpartition(".")
    head, _, _ = text.partition(".")
    for other in (
        token(signed_as=algorithm, number=1),
        f"{head}.{base64url(dumped(claims(sub='root')))}.{signature}",
        f"{base64url(dumped(header(algorithm, typ='JWT')))}.{text.partition('.')[2]}.{signature}",
        f"{text}.{signature[4:]}",
        f"{text}.{signature}AAAA",
        f"{text}.{base64url(bytes(64))}",
        f"{text}.{base64url(bytes(256))}",
    ):
        assert await gate.refused(other) == AuthReason.SIGNATURE


async def test_a_signature_of_two_numbers_is_so_many_bytes_and_no_structure() -> None:
    gate, (text, _, signature) = Gate(), token().rpartition(".")
    raw = urlsafe_b64decode(signature + "==")
    pair = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    for other in (
        encode_dss_signature(*pair),
        raw[:-1],
        raw + b"\0",
        b"\0" + raw,
        bytes(1) + raw[:32] + bytes(1) + raw[32:],
    ):
        assert await gate.refused(f"{text}.{base64url(other)}") == AuthReason.SIGNATURE
    assert await gate.verify(f"{text}.{base64url(raw)}")


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kid",
    ["../../../../dev/null", "/dev/null", "file:///dev/null", "https://evil.example.com/keys", "' OR 1=1 --",
     "ES256' --", "$(id)", "es256", " ES256", "*", "k" * 1024, "\u0415S256"],
)  # fmt: skip
async def test_a_key_id_is_looked_up_and_nothing_else(kid: str) -> None:
    gate = Gate()
    assert await gate.refused(token(header(kid=kid))) == AuthReason.UNKNOWN_KID
    assert gate.keys.asked == [(kid, "ES256")]


@pytest.mark.parametrize(
    "kid", ["k" * 1025, "ES256\x00", "a\r\nb", "\ud800", "", None, 0, 1.5, True, ["ES256"], {"a": 1}]
)
async def test_a_key_id_that_is_no_name_is_not_even_looked_up(kid: object) -> None:
    gate = Gate()
    assert await gate.refused(token(header(kid=kid))) == AuthReason.MALFORMED
    assert gate.keys.asked == []


@covers("T3")
@pytest.mark.parametrize(
    "extra",
    [
        {"jwk": public_jwk("ES256", 1)},
        {"jku": "https://evil.example.com/keys"},
        {"x5u": "https://evil.example.com/chain"},
        {"x5c": ["MIIB"]},
        {"crit": ["exp"], "exp": NOW + 60},
        {"crit": []},
        {"crit": ["b64"], "b64": True},
        {"crit": ["b64"], "b64": False},
        {"b64": False},
        {"b64": True},
        {"zip": "DEF"},
        {"enc": "A256GCM"},
    ],
)
async def test_a_header_that_brings_keys_or_changes_the_rules_is_refused(extra: dict[str, Any]) -> None:
    gate = Gate()
    for number in (0, 1):
        assert await gate.refused(token(header(**extra), number=number)) == AuthReason.MALFORMED
    assert gate.keys.asked == []


@pytest.mark.parametrize(
    ("profile", "typ"),
    [
        *[
            (profile, typ)
            for profile in TokenProfile
            for typ in ("dpop+jwt", "logout+jwt", "id_token", "", None, 1, ["JWT"])
        ],
        *[(TokenProfile.RFC9068, typ) for typ in ("JWT", "jwt", "application/jwt", ...)],
    ],
)
async def test_another_kind_of_token_of_the_same_issuer_is_refused(profile: TokenProfile, typ: object) -> None:
    gate = Gate((IssuerSettings(name="corp", issuer=ISSUER, profile=profile), KnownKeys(*all_keys())))
    assert await gate.refused(token(header(typ=typ))) == AuthReason.TYP


# --- shape ------------------------------------------------------------------------------------------------------------


async def test_a_token_has_one_spelling() -> None:
    gate, sent = Gate(), token(payload=b" " * (-len(dumped(claims())) % 3 + 1) + dumped(claims()))
    head, payload, signature = sent.split(".")
    assert len(payload) % 4 == 2
    spare = payload[:-1] + chr(ord(payload[-1]) + 1)
    for other in (
        *(" " + sent, sent + " ", sent + "\n", "\t" + sent, f"{head}. {payload}.{signature}", sent + "\x00"),
        *(f"{head}.{payload}==.{signature}", f"{sent}==", f"{sent}=", f"{head}.{spare}.{signature}"),
        *(f"{head}.{payload}", f"{sent}.{signature}", f"{sent}.a.b", f".{payload}.{signature}", f"{sent}.", "."),
        *(signed(f"{head}.{spare}"), signed(f"{head}.{payload}=="), signed(f"{head}.{payload}\n"), signed(f"{head}.")),
        *(sent.replace(".", "\uff0e"), sent[:40] + "+" + sent[41:], sent[:40] + "/" + sent[41:], sent + "\ud800"),
    ):
        assert await gate.refused(other) == AuthReason.MALFORMED
    assert await gate.verify(sent)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_signature_has_one_spelling(algorithm: str) -> None:
    gate, sent = Gate(), token(signed_as=algorithm)
    text, _, signature = sent.rpartition(".")
    assert len(signature) % 4 == 2
    for other in (
        *(signature[:-1] + chr(ord(signature[-1]) + 1), f"{signature}==", f"{signature}=", f"{signature}\n"),
        *(f"{signature[:9]}{junk}{signature[9:]}" for junk in ("!", "!!!!", "\n", " ", "=", "\u00e4")),
    ):
        assert await gate.refused(f"{text}.{other}") == AuthReason.MALFORMED
    assert await gate.verify(sent)


async def test_an_encrypted_and_a_nested_token_are_refused() -> None:
    gate = Gate()
    assert await gate.refused(token() + ".YQ.YQ") == AuthReason.MALFORMED
    assert await gate.refused(token(header(cty="JWT"), token().encode())) == AuthReason.MALFORMED


@pytest.mark.parametrize("size", [32 * 1024, 100_000, 10_000_000])
async def test_a_token_beyond_32_kib_is_refused(size: int) -> None:
    assert await Gate().refused(token(payload=claims(x="x" * size))) == AuthReason.MALFORMED


GOOD = dumped(claims())


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(claims()).encode("utf-16"),
        json.dumps(claims()).encode("utf-16-be"),
        json.dumps(claims()).encode("utf-32"),
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"alice", b"\xff"),
        GOOD.replace(b"alice", b"\xed\xa0\x80"),
        GOOD[:-1] + b', "sub": "root"}',
        GOOD[:-1] + b', "sub": "alice"}',
        GOOD[:-1] + b', "s\\u0075b": "root"}',
        GOOD[:-1] + b', "x": {"sub": 1, "sub": 2}}',
        GOOD[:-1] + b', "x": NaN}',
        GOOD[:-1] + b', "x": ' + 6000 * b"1" + b"}",
        GOOD[:-1] + b', "x": ' + 1500 * b"[" + 1500 * b"]" + b"}",
        GOOD[:-1] + b', "x": ' + 1000 * b'{"a":' + b"1" + 1000 * b"}" + b"}",
        GOOD[:-1] + b",}",
        GOOD + GOOD,
        b"[" + GOOD + b"]",
        b'"' + b64encode(GOOD) + b'"',
        b"",
    ],
)
async def test_claims_that_could_be_read_in_two_ways_are_refused(text: bytes) -> None:
    assert await Gate().refused(token(payload=text)) == AuthReason.MALFORMED


@pytest.mark.parametrize("again", [b'"alg": "ES256"', b'"alg": "none"', b'"kid": "ES256"', b'"\\u0061lg": "none"'])
async def test_a_header_that_could_be_read_in_two_ways_is_refused(again: bytes) -> None:
    sent = token(dumped(header())[:-1] + b", " + again + b"}")
    assert await Gate().refused(sent) == AuthReason.MALFORMED
