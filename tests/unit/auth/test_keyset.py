"""Of what an issuer publishes only what is fit to verify a signature becomes a key."""

import json
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jwt import PyJWK

from helpers.key_server import signing_key
from taskgate.auth.keyset import MAX_CANDIDATES, MAX_KEYS, KeySet, KeySetRefused

ALGORITHMS = ("ES256", "EdDSA", "PS256", "RS256")
EC = signing_key("EC").jwk("ec")
RSA = signing_key("RSA").jwk("rsa")
ED = signing_key("Ed25519").jwk("ed")


def text(*jwks: object, **members: object) -> bytes:
    return json.dumps({"keys": list(jwks)} | members).encode()


def read(*jwks: object, algorithms: tuple[str, ...] = ALGORITHMS) -> KeySet:
    return KeySet.read(text(*jwks), algorithms)


def is_left_out(jwk: object, *, algorithms: tuple[str, ...] = ALGORITHMS) -> bool:
    """Whether it is no key for anything, and no harm to the key beside it."""
    keys = read(jwk, signing_key("EC", 1).jwk("good", alg="ES256"), algorithms=(*algorithms, "ES256"))
    every = [key for algorithm in (*algorithms, "ES256") for key in keys.find(None, algorithm)]
    return keys.count == 1 and {key.key_id for key in every} == {"good"}


def names(keys: tuple[PyJWK, ...]) -> list[str | None]:
    return [key.key_id for key in keys]


# --- what is found ----------------------------------------------------------------------------------------------------


def test_a_key_set_may_start_with_a_byte_order_mark() -> None:
    assert KeySet.read(b"\xef\xbb\xbf" + text(EC), ALGORITHMS).count == 1


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("EC", "ES256"),
        ("P-384", "ES384"),
        ("P-521", "ES512"),
        ("Ed25519", "EdDSA"),
        *(("RSA", name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    ],
)
@pytest.mark.parametrize("says_so", [True, False])
def test_a_key_verifies_what_its_other_half_has_signed(kind: str, algorithm: str, says_so: bool) -> None:
    pair = signing_key(kind)
    jwk = pair.jwk("k", **({"alg": algorithm} if says_so else {}), use="sig", key_ops=["verify"])
    (key,) = read(jwk, algorithms=(algorithm,)).find("k", algorithm)
    token = jwt.encode({"sub": "me"}, pair.private, algorithm)
    assert jwt.decode(token, key, algorithms=[algorithm])["sub"] == "me"
    assert key.algorithm_name == algorithm


def test_a_key_that_names_no_algorithm_is_bound_to_the_one_that_is_asked_for() -> None:
    keys = read(RSA)
    assert [key.algorithm_name for key in keys.find("rsa", "PS256")] == ["PS256"]
    assert [key.algorithm_name for key in keys.find("rsa", "RS256")] == ["RS256"]


def test_a_key_that_names_an_algorithm_is_for_no_other() -> None:
    keys = read(RSA | {"alg": "RS256"})
    assert len(keys.find("rsa", "RS256")) == 1
    assert keys.find("rsa", "PS256") == ()


def test_a_key_is_built_once() -> None:
    keys = read(EC)
    assert keys.find("ec", "ES256")[0] is keys.find("ec", "ES256")[0] is keys.find(None, "ES256")[0]


def test_no_key_is_found_by_another_name_or_for_another_algorithm() -> None:
    keys = read(EC, RSA, ED)
    assert keys.count == 3
    assert keys.find("EC", "ES256") == ()
    assert keys.find("ec", "RS256") == ()
    assert keys.find("ec", "none") == ()
    assert keys.find("ec", "HS256") == ()


def test_every_key_that_fits_is_found_where_no_name_is_given() -> None:
    nameless = signing_key("EC", 1).jwk()
    keys = read(EC, RSA, nameless)
    assert names(keys.find(None, "ES256")) == ["ec", None]
    assert names(keys.find(None, "RS256")) == ["rsa"]
    assert keys.find(None, "EdDSA") == ()


def test_keys_that_share_a_name_are_all_found() -> None:
    keys = read(signing_key("EC").jwk("k"), signing_key("EC", 1).jwk("k"), signing_key("RSA").jwk("k"))
    assert len(keys.find("k", "ES256")) == 2
    assert len(keys.find("k", "RS256")) == 1


def test_no_token_is_tried_with_more_than_a_few_keys() -> None:
    many = read(*(signing_key("EC", n).jwk("same") for n in range(MAX_CANDIDATES + 1)))
    first = [signing_key("EC", n).private.public_key().public_numbers() for n in range(MAX_CANDIDATES)]
    assert many.count == MAX_CANDIDATES + 1
    for kid in ("same", None):
        assert [key.key.public_numbers() for key in many.find(kid, "ES256")] == first


def test_what_a_set_says_beside_its_keys_is_of_no_matter() -> None:
    assert KeySet.read(text(EC | {"x5u": "https://a/", "x5c": ["?"], "new": 1}, more={}), ALGORITHMS).count == 1


# --- what is left out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "jwk",
    [
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "o"},
        {"kty": "oct", "kid": "o"},
        RSA | {"k": "AA"},
        RSA | {"kty": "oct"},
        RSA | {"kty": "rsa"},
        RSA | {"kty": ["RSA"]},
        {name: value for name, value in RSA.items() if name != "kty"},
        EC | {"crv": "P-384"},
        EC | {"crv": "secp256k1"},
        EC | {"crv": {}},
        EC | {"x": EC["y"], "y": EC["x"]},
        EC | {"x": 1},
        EC | {"x": EC["x"][:-4]},
        ED | {"crv": "Ed448"},
        ED | {"crv": "X25519"},
        ED | {"x": ""},
        RSA | {"n": None},
        RSA | {"e": 3},
        RSA | {"e": "AQ"},
        RSA | {"e": "Ag"},
        RSA | {"crv": "P-256"},
        EC | {"use": "enc"},
        EC | {"use": ["sig"]},
        EC | {"key_ops": ["sign"]},
        EC | {"key_ops": []},
        EC | {"key_ops": "verify"},
        EC | {"key_ops": {"verify": 1}},
        EC | {"alg": "ES384"},
        EC | {"alg": "RS256"},
        EC | {"alg": "none"},
        EC | {"alg": ["ES256"]},
        RSA | {"alg": "HS256"},
        RSA | {"alg": "RSA-OAEP"},
        EC | {"kid": 7},
        EC | {"kid": ["ec"]},
        None,
        "ec",
        [EC],
        {},
    ],
)
def test_what_is_no_key_for_signatures_is_left_out(jwk: object) -> None:
    assert is_left_out(jwk)


@pytest.mark.parametrize("name", ["d", "p", "q", "dp", "dq", "qi", "oth", "k"])
@pytest.mark.parametrize("jwk", [RSA, EC, ED])
def test_a_key_that_is_not_secret_any_more_is_left_out(jwk: dict[str, Any], name: str) -> None:
    assert is_left_out(jwk | {name: "AQAB"})
    assert is_left_out(jwk | {name: None})


def test_a_short_rsa_key_is_left_out() -> None:
    assert is_left_out(signing_key("RSA-1024").jwk("short"))
    assert is_left_out(signing_key("RSA-2040").jwk("short"))
    assert not is_left_out(RSA)


@pytest.mark.parametrize(("modulus", "exponent"), [("/" * 1370, "AQAB"), (RSA["n"], "AQAAAAAAAAAAAQ")])
def test_an_rsa_key_that_takes_long_to_try_is_left_out(modulus: str, exponent: str) -> None:
    modulus = modulus.replace("/", "_")
    assert is_left_out(RSA | {"n": modulus, "e": exponent})


def test_an_rsa_key_of_8192_bits_is_in() -> None:
    assert not is_left_out(RSA | {"n": "_" * 1366, "e": "AAAAAAEAAQ"})


def test_a_key_for_what_the_operator_does_not_allow_is_left_out() -> None:
    assert is_left_out(RSA, algorithms=("ES256", "EdDSA"))
    assert is_left_out(RSA | {"alg": "RS256"}, algorithms=("PS256",))


# --- what is no key set -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"<html>",
        b"null",
        b"[]",
        b'"keys"',
        b"{}",
        b'{"keys": {}}',
        b'{"keys": null}',
        b'{"keys": []}',
        b'{"keys": [{}]}',
        b'{"Keys": [' + json.dumps(EC).encode() + b"]}",
        json.dumps([EC]).encode(),
        json.dumps(EC).encode(),
        text(RSA | {"alg": "RS512"}),
        text(EC)[:-1],
        text(EC) + b"}",
        text(EC).decode().encode("utf-16"),
        text(EC | {"more": "é"}).replace(b"\\u00e9", b"\xe9"),
        text(EC | {"more": 1.0}).replace(b"1.0", b"NaN"),
        b"[" * 100_000,
    ],
)
def test_what_holds_no_usable_key_is_refused(garbage: bytes) -> None:
    with pytest.raises(KeySetRefused):
        KeySet.read(garbage, ALGORITHMS)


def test_as_many_keys_as_allowed_are_read_and_one_more_is_too_many() -> None:
    assert read(*[EC] * MAX_KEYS).count == MAX_KEYS
    with pytest.raises(KeySetRefused):
        read(*[EC] * (MAX_KEYS + 1))


def test_a_refusal_repeats_nothing() -> None:
    with pytest.raises(KeySetRefused) as refused:
        read(EC | {"kid": "hunter2", "d": "hunter2"})
    assert "hunter2" not in f"{refused.value} {refused.value.problem}"
    assert refused.value.__cause__ is None
    assert refused.value.reason == "key_set"


_anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
_members = st.fixed_dictionaries(
    {},
    optional={
        "kty": st.sampled_from(["RSA", "EC", "OKP", "oct"]) | _anything,
        "crv": st.sampled_from(["P-256", "P-384", "P-521", "Ed25519"]) | _anything,
        "alg": st.sampled_from([*ALGORITHMS, "none"]) | _anything,
        "use": st.just("sig") | _anything,
        "key_ops": st.just(["verify"]) | _anything,
        "kid": st.text(max_size=3) | _anything,
        **{
            name: st.sampled_from([value for jwk in (RSA, EC, ED) if (value := jwk.get(name))])
            | st.binary(max_size=70).map(lambda raw: raw.hex())
            | _anything
            for name in ("n", "e", "x", "y")
        },
    },
)


def never_fails(body: bytes) -> None:
    try:
        keys = KeySet.read(body, ALGORITHMS)
    except KeySetRefused:
        return
    assert 1 <= keys.count <= MAX_KEYS
    assert any(keys.find(None, algorithm) for algorithm in ALGORITHMS)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_to_be_refused(body: bytes) -> None:
    never_fails(body)


@given(_anything | st.fixed_dictionaries({"keys": _anything}))
def test_no_document_does_more_than_to_be_refused(value: object) -> None:
    never_fails(json.dumps(value).encode())


@given(st.lists(_members | st.sampled_from([EC, RSA, ED]).flatmap(lambda jwk: _members.map(lambda more: jwk | more))))
def test_nothing_that_looks_like_a_key_does_more_than_to_be_left_out(jwks: list[object]) -> None:
    never_fails(text(*jwks))
