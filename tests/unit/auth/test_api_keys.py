"""API keys: how one is made and found, whom it stands for, and when it ends."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.manual_clock import ManualClock
from helpers.secrets import noted
from requirements import covers
from taskgate.auth.api_keys import KeyVerifier, is_long_enough, key_digest, new_key
from taskgate.auth.claims import API_KEYS, ApiKeySettings
from taskgate.auth.context import AuthContext, ContextKeys
from taskgate.clock import SystemEntropy
from taskgate.errors import AuthReason, Unauthenticated

Told = list[tuple[str, str, AuthContext | None]]


def made() -> str:
    return noted(new_key(SystemEntropy()))


def entry(key: str, name: str = "ci", subject: str = "ci", **more: object) -> ApiKeySettings:
    return replace(ApiKeySettings(name=name, digest=key_digest(key), subject=subject), **more)


def verifier(*keys: ApiKeySettings, clock: ManualClock | None = None, told: Told | None = None) -> KeyVerifier:
    """The verifier of these keys; `told` gets what it reports, with "again" for a key that was used before."""
    heard: Told = [] if told is None else told

    def listener(issuer: str, reason: str, caller: AuthContext | None = None) -> None:
        heard.append((issuer, reason, caller))

    return KeyVerifier(
        keys,
        bind=ContextKeys(32 * b"k").bind,
        clock=clock or ManualClock(),
        listener=listener,
        on_recall=lambda: heard.append(("", "again", None)),
    )


def read(authorization: Iterable[str] = (), api_keys: Iterable[str] = (), query: str = "") -> str:
    return KeyVerifier.read(tuple(authorization), tuple(api_keys), query)


def refusal(of: KeyVerifier, key: str) -> tuple[str, str]:
    with pytest.raises(Unauthenticated) as refused:
        of.verify(key)
    return refused.value.reason, str(refused.value)


def test_a_new_key_has_256_random_bits_and_its_beginning() -> None:
    keys = {made() for _ in range(100)}
    assert len(keys) == 100
    assert {(key[:4], len(key), is_long_enough(key)) for key in keys} == {("tgk_", 47, True)}


@pytest.mark.parametrize(
    "key", ["tgk_", "tgk_" + 21 * "a", "tgk_" + 129 * "a", "TGK_" + 43 * "a", 47 * "a", "tgk_é" + 43 * "a"]
)
def test_a_text_that_is_too_short_or_of_another_form_is_no_key(key: str) -> None:
    assert not is_long_enough(key)


@covers("A-AUTH-18")
def test_a_key_is_found_by_its_digest_and_stands_for_its_subject() -> None:
    first, second = made(), made()
    keys = verifier(entry(first, "one", "ann", tenant="acme", scopes=frozenset({"a"})), entry(second, "two", "bob"))
    found = keys.verify(first).context
    assert found.identity is not None
    assert (found.identity.subject, found.identity.tenant, found.identity.scopes) == ("ann", "acme", {"a"})
    assert (found.identity.method, found.identity.claims["jti"], found.identity.issuer_name) == (
        "api_key",
        "one",
        API_KEYS,
    )
    # What is shown to a server for a caller: there is no token that could be.
    assert (found.token, found.expires_at) == (None, None)
    assert keys.verify(second).context.key != found.key


@covers("A-AUTH-18")
def test_the_context_depends_on_subject_and_tenant_alone() -> None:
    keys = {name: made() for name in ("one", "two", "three", "four")}
    found = verifier(
        entry(keys["one"], "one", "ann", tenant="acme"),
        entry(
            keys["two"], "two", "ann", tenant="acme", scopes=frozenset({"a"}), expires=datetime(2100, 1, 1, tzinfo=UTC)
        ),
        entry(keys["three"], "three", "ann"),
        entry(keys["four"], "four", "bob", tenant="acme"),
    )
    contexts = [found.verify(key).context.key for key in keys.values()]
    assert contexts[0] == contexts[1]
    assert len(set(contexts)) == 3


@covers("A-AUTH-18")
@given(st.text(max_size=60).map("tgk_".__add__))
def test_any_other_text_is_refused(text: str) -> None:
    expected = "The API key is not accepted: the API key is unknown or was removed: ask the operator for another"
    assert refusal(verifier(entry(made())), text) == (AuthReason.API_KEY, expected)


def test_the_digest_of_a_key_is_no_key() -> None:
    key = made()
    keys = verifier(entry(key))
    assert refusal(keys, key_digest(key))[0] == refusal(keys, f"tgk_{key_digest(key)}")[0] == AuthReason.API_KEY


@covers("A-AUTH-18")
def test_a_key_is_good_until_it_expires() -> None:
    clock, key, told = ManualClock(), made(), Told()
    ends = clock.wall() + timedelta(hours=1)
    keys = verifier(entry(key, expires=ends), clock=clock, told=told)
    found = keys.verify(key)
    assert found.context.expires_at == ends
    clock.advance(timedelta(hours=1) - timedelta(microseconds=1))
    assert found.recall()
    clock.advance(timedelta(microseconds=1))
    assert not found.recall()
    assert refusal(keys, key)[0] == AuthReason.EXPIRED
    assert [each[1] for each in told] == ["ok", "again", "expired"]


def test_the_first_use_of_a_key_is_told_with_its_caller_and_each_later_one_is_counted() -> None:
    key, other, told = made(), made(), Told()
    keys = verifier(entry(key), entry(other, "other", "other"), told=told)
    assert list(keys.contexts()) == []
    context = keys.verify(key).context
    assert keys.verify(key).recall()
    assert told == [(API_KEYS, "ok", context), ("", "again", None), ("", "again", None)]
    assert list(keys.contexts()) == [context]
    assert [keys.is_known(each) for each in (key, other, made())] == [True, True, False]


@covers("A-AUTH-18")
@pytest.mark.parametrize("change", ["removed", "renamed", "scopes", "all"])
def test_a_key_that_is_removed_or_changed_is_revoked_and_others_are_not(change: str) -> None:
    key, other = made(), made()
    before, others = entry(key), entry(other, "other", "other")
    keys = verifier(before, others)
    found, kept = keys.verify(key), keys.verify(other)
    after = {
        "removed": verifier(others),
        "renamed": verifier(replace(before, name="new"), others),
        "scopes": verifier(replace(before, scopes=frozenset({"a"})), others),
        "all": None,
    }[change]
    keys.revoke(after)
    assert (found.is_revoked, found.recall()) == (True, False)
    assert (kept.is_revoked, kept.recall()) == ((True, False) if change == "all" else (False, True))


# --- where a key is --------------------------------------------------------------------------------------------------


def test_a_key_may_be_in_one_header_or_the_same_in_both() -> None:
    key = made()
    assert read([f"Bearer {key}"]) == read(api_keys=[key]) == read([f"bearer {key}"], [key, key]) == key
    assert read(["Bearer a.b.c"]) == "a.b.c"
    assert read(["", ""][:1], [key]) == key


@covers("A-AUTH-18", "A-AUTH-1")
@pytest.mark.parametrize(
    ("authorization", "api_keys", "query", "reason"),
    [
        ((), (), "", "missing"),
        (("Bearer tgk_a",), ("tgk_b",), "", "malformed"),
        (("Bearer a.b.c",), ("tgk_b",), "", "malformed"),
        ((), ("tgk_a", "tgk_b"), "", "malformed"),
        (("Bearer tgk_a", "Bearer tgk_a"), ("tgk_a",), "", "malformed"),
        (("Basic YTpi",), ("tgk_a",), "", "scheme"),
        ((), ("a.b.c",), "", "api_key"),
        (("Bearer a.b.c",), ("a.b.c",), "", "api_key"),
        ((), ("",), "", "api_key"),
        ((), ("tgk_a",), "access_token=tgk_a", "query_token"),
    ],
)
def test_several_credentials_and_what_is_none_are_refused(
    authorization: tuple[str, ...], api_keys: tuple[str, ...], query: str, reason: str
) -> None:
    with pytest.raises(Unauthenticated) as refused:
        read(authorization, api_keys, query)
    assert refused.value.reason == reason
