"""What belongs to a caller belongs to that caller at one mount."""

from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.domain.record import OwnerKey
from unit.auth.identities import identity


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
    rotated = AuthContext(key="new", earlier="old")
    assert rotated.owner("m") == OwnerKey("new", "m")
    assert rotated.owners("m") == (OwnerKey("new", "m"), OwnerKey("old", "m"))


def test_a_context_is_good_until_its_token_ends_and_without_a_token_for_ever() -> None:
    somebody = identity()
    assert AuthContext(key="k", identity=somebody).good_until == somebody.expires_at
    assert ANONYMOUS.good_until is None


def test_neither_a_token_nor_its_claims_are_shown() -> None:
    shown = repr(AuthContext(key="k", identity=identity(secret="planted-1"), token="planted-2"))
    assert "planted" not in shown
