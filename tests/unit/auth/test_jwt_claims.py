"""Good signatures under claims that are not good, and any token at all."""

from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from requirements import covers
from taskgate.errors import AuthReason, KeysUnavailable, Unauthenticated
from unit.auth.tokens import (
    CORP,
    ISSUER,
    MOUNT,
    NOW,
    Gate,
    KnownKeys,
    base64url,
    claims,
    dumped,
    header,
    signed,
    token,
)

LOOK_ALIKES = [
    *("", ISSUER[:-1], ISSUER + "/", ISSUER + "evil", "x" + ISSUER, ISSUER.upper(), ISSUER.title(), " " + ISSUER),
    *(ISSUER + "\x00", ISSUER + "?", ISSUER + "#", ISSUER.replace("https", "http"), ISSUER.replace("com", "com:443")),
    *(ISSUER.replace("e", "\u0435"), ISSUER.replace("/idp", "/\u200bidp"), ISSUER.replace("idp", "%69dp")),
]
GOOD = dumped(claims())

# --- claims -----------------------------------------------------------------------------------------------------------


@covers("T2")
@pytest.mark.parametrize("issuer", LOOK_ALIKES)
async def test_an_issuer_that_looks_alike_is_another(issuer: str) -> None:
    gate = Gate()
    assert await gate.refused(token(payload=claims(iss=issuer))) == AuthReason.ISSUER
    assert gate.keys.asked == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        *[({"iss": value}, AuthReason.ISSUER) for value in ([ISSUER], {ISSUER: 1}, 1, True, None, ...)],
        *[({"aud": value}, AuthReason.AUDIENCE) for value in ([[MOUNT]], {MOUNT: MOUNT}, 1, True, [], [MOUNT, 1], "")],
        *[({"aud": value}, AuthReason.AUDIENCE) for value in (MOUNT[:-1], MOUNT + "/", MOUNT.upper(), MOUNT + "\x00")],
        *[({"aud": value}, AuthReason.AUDIENCE) for value in (f"{MOUNT},{MOUNT}", f"x {MOUNT}", [MOUNT + "/x"])],
        *[({"exp": value}, AuthReason.CLAIM) for value in (str(NOW + 60), True, [NOW + 60], {}, None, ..., 10**18)],
        *[({"exp": value}, AuthReason.EXPIRED) for value in (0, -1, -0.5, NOW - 31)],
        *[({"nbf": value}, AuthReason.CLAIM) for value in ("0", True, None, [], 10**300)],
        *[({"nbf": value}, AuthReason.NOT_YET_VALID) for value in (NOW + 31, NOW + 31.5, 253402300799)],
        *[({"iat": value}, AuthReason.CLAIM) for value in ("0", True, None, ...)],
        ({"iat": NOW + 31}, AuthReason.NOT_YET_VALID),
        *[({"sub": value}, AuthReason.CLAIM) for value in ("a\x00", "a\nb", "\ud800", "", 1, True, ["a"], None, ...)],
        ({"sub": 1025 * "a"}, AuthReason.CLAIM),
        *[({"client_id": value}, AuthReason.CLAIM) for value in ("", "a\x00", 1, ["desk"], None, ...)],
        *[({"scope": value}, AuthReason.CLAIM) for value in (1, {"read": True}, [["read"]], None, True)],
        *[({name: "x"}, AuthReason.CLAIM) for name in ("nonce", "at_hash", "c_hash")],
    ],
)
async def test_a_claim_of_the_wrong_kind_or_value_is_refused(changes: dict[str, Any], reason: AuthReason) -> None:
    assert await Gate().refused(token(payload=claims(**changes))) == reason


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"1" + 400 * b"0", b"1e15"])
async def test_an_end_outside_of_time_is_refused(number: bytes) -> None:
    endless = GOOD.replace(f'"exp": {NOW + 300}'.encode(), b'"exp": ' + number)
    assert endless != GOOD
    assert await Gate().refused(token(payload=endless)) == AuthReason.CLAIM


# --- any token at all -------------------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))
seconds = st.integers(NOW - 40, NOW + 40) | st.floats(NOW - 40, NOW + 40) | st.sampled_from([NOW + 300, 0])
times = seconds | values | st.just(...)
any_claim: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("iss", st.sampled_from(LOOK_ALIKES)),
    ("sub", st.text() | values | st.just(...)),
    ("aud", st.lists(st.just(MOUNT) | st.text(max_size=3) | values, max_size=3)),
    ("aud", st.sampled_from([MOUNT, ["x", MOUNT], [[MOUNT]], MOUNT + "/", ...]) | values),
    *(("exp", times), ("iat", times), ("nbf", times)),
    *(("client_id", st.text() | values), ("client_id", st.just(...)), ("azp", st.text() | values)),
    *(("scope", st.text() | st.lists(st.text() | values) | values), ("scope", st.just(...))),
    *(("nonce", values), ("jti", values)),
]
any_header: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("alg", st.sampled_from(["EdDSA", "HS256", "none", "es256"]) | values),
    ("kid", st.sampled_from(["ES256", "EdDSA", ...]) | st.text(max_size=3) | values),
    ("typ", st.sampled_from(["JWT", "at+jwt", "AT+JWT", "x", ...]) | values),
    ("crit", values),
]


def some(kinds: list[tuple[str, st.SearchStrategy[Any]]]) -> st.SearchStrategy[dict[str, Any]]:
    """A few changes to what is good."""
    return st.lists(st.one_of(st.tuples(st.just(name), value) for name, value in kinds), max_size=2).map(dict)


def is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and not {"Cc", "Cs"} & {category(letter) for letter in value}


def is_time(value: object) -> bool:
    """A number, and of a year from 1 to 9999."""
    return type(value) in (int, float) and -62135596800 <= value < 253402300800  # type: ignore[operator]


def oracle(head: dict[str, Any], body: dict[str, Any], key: str) -> bool:
    """Whether such a token, signed with the key of that name, is good: written anew from the standards."""
    typ = head.get("typ", "JWT")
    good_head = head.get("alg") == key and head.get("kid", key) == key and "crit" not in head
    good_typ = isinstance(typ, str) and typ in ("JWT", "at+jwt", "AT+JWT")
    audience = body["aud"] if type(body.get("aud")) is list else [body.get("aud")]
    good_aud = MOUNT in audience and {type(one) for one in audience} == {str}
    times = [body[name] for name in ("exp", "iat", "nbf") if name in body]
    good_times = (
        {"exp", "iat"} <= set(body)
        and all(map(is_time, times))
        and body["exp"] > EPOCH.timestamp() - 30
        and max(body["iat"], body.get("nbf", 0)) <= EPOCH.timestamp() + 30
    )
    good_client = is_text(body.get("client_id", body.get("azp")))
    scope = body.get("scope", "")
    good_scope = type(scope) is str or (type(scope) is list and {type(one) for one in scope} <= {str})
    rest = is_text(body.get("sub")) and good_client and good_scope and "nonce" not in body
    return body["iss"] == ISSUER and good_head and good_typ and good_aud and good_times and rest


@given(some(any_header), some(any_claim), st.sampled_from(["ES256"] * 6 + ["EdDSA"]))
async def test_exactly_the_good_tokens_are_taken(head: dict[str, Any], body: dict[str, Any], key: str) -> None:
    sent, gate = token(header(**head), claims(**body), signed_as=key), Gate()
    if oracle(header(**head), claims(**body), key):
        assert (await gate.verify(sent)).token == sent
    else:
        assert await gate.refused(sent)


@given(st.text() | st.binary().map(lambda octets: signed(base64url(octets) + "." + base64url(octets))), st.booleans())
async def test_any_text_is_a_good_token_or_refused(sent: str, unavailable: bool) -> None:
    with pytest.raises((Unauthenticated, KeysUnavailable)):
        await Gate((CORP, KnownKeys(unavailable=unavailable))).verify(sent)


@given(st.data())
async def test_a_good_token_with_one_letter_changed_is_refused(data: st.DataObject) -> None:
    sent = token()
    at = data.draw(st.integers(0, len(sent) - 1))
    other = data.draw(st.characters(max_codepoint=0x17F).filter(lambda letter: letter != sent[at]))
    with pytest.raises(Unauthenticated):
        await Gate().verify(sent[:at] + other + sent[at + 1 :])
