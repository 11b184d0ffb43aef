"""The same parts are the same auth context; other parts, or another deployment key, are another."""

from base64 import urlsafe_b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.auth.binding import PARTS, ContextKeys
from taskgate.auth.context import ANONYMOUS, Identity
from unit.auth.tokens import identity

KEY = b"a deployment key of 32 bytes ..."
OLD_KEY = b"the deployment key that was used"
PART_FIELDS = {"iss": "issuer", "tenant": "tenant", "sub": "subject", "client_id": "client_id"}

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.text(
    'a:,"[]\\nul', min_size=1, max_size=8
)
parts = st.tuples(texts, st.none() | texts, texts, st.none() | texts)


Parts = tuple[str, str | None, str, str | None]


def whose(issuer: str, tenant: str | None, subject: str, client_id: str | None) -> Identity:
    return identity(issuer=issuer, tenant=tenant, subject=subject, client_id=client_id)


def key_of(somebody: Identity, bind: tuple[str, ...] = PARTS) -> str:
    return ContextKeys(KEY, bind=bind).bind(somebody, None).key


def test_a_reference_is_the_first_132_bits_of_the_keyed_digest() -> None:
    # printf '["i","t","s","c"]' | openssl dgst -sha256 -hmac "$KEY" -binary | head -c 17 | base64
    bound = ContextKeys(KEY).bind(whose("i", "t", "s", "c"), None)
    assert bound.key == "8mgvW5Xczw7LMwfKMFrYWo"


@covers("T7")
@given(parts, parts)
def test_contexts_are_equal_if_and_only_if_all_parts_are(one: Parts, other: Parts) -> None:
    assert key_of(whose(*one)) == key_of(whose(*one))
    assert (key_of(whose(*one)) == key_of(whose(*other))) is (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a:b", None, "c", None), ("a", None, "b:c", None)),
        (("a", "b", "c", None), ("a", None, "b", "c")),
        (("a", "null", "c", None), ("a", None, "c", None)),
        (("a", None, "c", "d"), ("a", "d", "c", None)),
        (('a","b', None, "c", None), ("a", "b", "c", None)),
        (("a", None, "\\u0065", None), ("a", None, "e", None)),
        (("a", None, "\u00e9", None), ("a", None, "e\u0301", None)),
        (("a", None, "\ufb01", None), ("a", None, "fi", None)),
        (("a", None, "\u0430", None), ("a", None, "a", None)),
        (("a", None, "Alice", None), ("a", None, "alice", None)),
        (("a", None, "alice ", None), ("a", None, "alice", None)),
        (("a", None, "ß", None), ("a", None, "ss", None)),
        (("a", None, "s", "s"), ("a", None, "s", None)),
    ],
)
def test_what_looks_alike_is_not_the_same(one: Parts, other: Parts) -> None:
    assert key_of(whose(*one)) != key_of(whose(*other))


@pytest.mark.parametrize("part", PARTS)
def test_a_part_counts_unless_it_is_left_out(part: str) -> None:
    without = tuple(name for name in PARTS if name != part)
    changed = identity(tenant="t"), identity(**{"tenant": "t", PART_FIELDS[part]: "other"})
    assert len({key_of(one) for one in changed}) == 2
    assert len({key_of(one, without) for one in changed}) == 1


def test_a_part_that_is_left_out_is_null_and_not_skipped() -> None:
    assert key_of(identity(), ("iss", "sub")) == key_of(identity(client_id=None))
    assert key_of(identity(client_id=None, tenant="t")) != key_of(identity(client_id="t"))


def test_the_order_in_which_parts_are_named_does_not_matter() -> None:
    assert key_of(identity(), PARTS) == key_of(identity(), PARTS[::-1])


def test_nothing_else_counts() -> None:
    refreshed = identity(scopes=frozenset({"other"}), claims={"jti": "other"}, issuer_name="renamed")
    assert key_of(refreshed) == key_of(identity())


@given(parts)
def test_a_reference_is_22_letters_and_never_that_of_everybody(somebody: Parts) -> None:
    key = key_of(whose(*somebody))
    assert len(key) == 22
    assert len(urlsafe_b64decode(key + "==")) == 16
    assert key != ANONYMOUS.key


def test_a_context_carries_who_it_is_and_what_was_sent() -> None:
    bound = ContextKeys(KEY).bind(identity(), "a.b.c")
    assert (bound.identity, bound.token, bound.earlier) == (identity(), "a.b.c", None)


def test_under_a_new_key_what_was_bound_before_is_still_found() -> None:
    before = ContextKeys(OLD_KEY).bind(identity(), None)
    after = ContextKeys(KEY, OLD_KEY).bind(identity(), None)
    assert after.earlier == before.key
    assert after.key == key_of(identity()) != before.key


def test_the_keys_are_not_shown() -> None:
    assert "deployment key" not in repr(ContextKeys(KEY, OLD_KEY))


@pytest.mark.parametrize("bind", [(), ("tenant",), ("client_id", "tenant"), ("iss", "jti"), ("iss", "sub", "scope")])
def test_parts_that_would_mix_callers_or_lose_them_are_refused(bind: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="auth context"):
        ContextKeys(KEY, bind=bind)


@pytest.mark.parametrize("bind", [("iss",), ("sub",), ("sub", "client_id"), PARTS])
def test_parts_with_an_issuer_or_a_subject_are_taken(bind: tuple[str, ...]) -> None:
    assert key_of(identity(), bind)


@pytest.mark.parametrize(("current", "previous"), [(b"", None), (KEY[:-1], None), (KEY, b""), (KEY, KEY[:-1])])
def test_a_key_that_is_too_short_is_refused(current: bytes, previous: bytes | None) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        ContextKeys(current, previous)
