"""What belongs to a caller belongs to that caller at one mount."""

from taskgate.auth.context import ANONYMOUS, AuthContext


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
