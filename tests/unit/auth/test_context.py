"""An auth context owns tasks by mount, and its key is a digest of the bound parts of an identity."""

from base64 import urlsafe_b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.auth.context import ANONYMOUS, CONTEXT_PARTS, AuthContext, ContextKeys, Identity
from taskgate.domain.record import OwnerKey
from unit.auth.tokens import identity


def test_the_same_caller_owns_different_things_at_different_mounts() -> None:
    caller = AuthContext(key="k")
    assert caller.owner("a") == AuthContext(key="k").owner("a")
    assert caller.owner("a") != caller.owner("b")


def test_different_callers_own_different_things_at_one_mount() -> None:
    assert AuthContext(key="k").owner("a") != AuthContext(key="l").owner("a")


def test_neither_part_of_an_owner_stands_for_the_other() -> None:
    assert AuthContext(key="a").owner("b") != AuthContext(key="b").owner("a")
    assert tuple(AuthContext(key="a").owner("b")) == ("a", "b")


def test_everybody_is_one_context_where_there_is_no_authentication() -> None:
    assert AuthContext(key="anonymous") == ANONYMOUS


def test_what_is_new_belongs_to_the_present_key_and_what_is_old_is_still_found() -> None:
    assert AuthContext(key="new").owners("m") == (OwnerKey("new", "m"),)
    rotated = AuthContext(key="new", previous_key="old")
    assert rotated.owner("m") == OwnerKey("new", "m")
    assert rotated.owners("m") == (OwnerKey("new", "m"), OwnerKey("old", "m"))
    assert rotated.owners("m") is rotated.owners("m")
    assert rotated.owners("n") == (OwnerKey("new", "n"), OwnerKey("old", "n"))


def test_a_context_is_good_until_its_token_ends_and_without_a_token_for_ever() -> None:
    somebody = identity()
    assert AuthContext(key="k", identity=somebody).expires_at == somebody.expires_at
    assert ANONYMOUS.expires_at is None


def test_neither_a_token_nor_its_claims_are_shown() -> None:
    shown = repr(AuthContext(key="k", identity=identity(claims={"secret": "planted-1"}), token="planted-2"))
    assert "planted" not in shown


# --- the key of a context ---------------------------------------------------------------------------------------------


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


def key_of(somebody: Identity, bind: tuple[str, ...] = CONTEXT_PARTS) -> str:
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


@pytest.mark.parametrize("part", CONTEXT_PARTS)
def test_a_part_counts_unless_it_is_left_out(part: str) -> None:
    without = tuple(name for name in CONTEXT_PARTS if name != part)
    changed = identity(tenant="t"), identity(**{"tenant": "t", PART_FIELDS[part]: "other"})
    assert len({key_of(one) for one in changed}) == 2
    assert len({key_of(one, without) for one in changed}) == 1


def test_a_part_that_is_left_out_is_null_and_not_skipped() -> None:
    assert key_of(identity(), ("iss", "sub")) == key_of(identity(client_id=None))
    assert key_of(identity(client_id=None, tenant="t")) != key_of(identity(client_id="t"))


def test_the_order_in_which_parts_are_named_does_not_matter() -> None:
    assert key_of(identity(), CONTEXT_PARTS) == key_of(identity(), CONTEXT_PARTS[::-1])


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
    assert (bound.identity, bound.token, bound.previous_key) == (identity(), "a.b.c", None)


def test_under_a_new_key_what_was_bound_before_is_still_found() -> None:
    before = ContextKeys(OLD_KEY).bind(identity(), None)
    after = ContextKeys(KEY, OLD_KEY).bind(identity(), None)
    assert after.previous_key == before.key
    assert after.key == key_of(identity()) != before.key


def test_the_keys_are_not_shown() -> None:
    assert "deployment key" not in repr(ContextKeys(KEY, OLD_KEY))


@pytest.mark.parametrize("bind", [("iss",), ("sub",), ("sub", "client_id"), CONTEXT_PARTS])
def test_parts_with_an_issuer_or_a_subject_are_taken(bind: tuple[str, ...]) -> None:
    assert key_of(identity(), bind)


# --- the reference of a person ---------------------------------------------------------------------------------------


@covers("T46")
@given(parts, parts)
def test_callers_are_one_person_if_and_only_if_issuer_and_subject_are_equal(one: Parts, other: Parts) -> None:
    subjects = [ContextKeys(KEY).bind(whose(*each), None).subject for each in (one, other)]
    assert (subjects[0] == subjects[1]) is ((one[0], one[2]) == (other[0], other[2]))


@pytest.mark.parametrize("bind", [("iss", "client_id"), ("sub",)])
def test_callers_without_an_issuer_and_a_subject_are_persons_of_their_own(bind: tuple[str, ...]) -> None:
    callers = [ContextKeys(KEY, bind=bind).bind(identity(client_id=name), None) for name in ("one", "other")]
    assert [each.subject for each in callers] == [each.key for each in callers]


def test_without_authentication_all_callers_are_one_person() -> None:
    assert ANONYMOUS.subject == ANONYMOUS.key
