"""`CallerSessions` finds the session that is idle for longest, in work that does not grow with the sessions."""

from typing import Any, cast

import pytest

from taskgate.sessions.caller_sessions import CallerSessions


class Session:
    """Counts how often anything asks whether it is in use."""

    asked = 0

    def __init__(self, id: str, last_used: float, *, busy: bool = False) -> None:
        self.id = id
        self.last_used = last_used
        self.busy = busy

    @property
    def is_busy(self) -> bool:
        Session.asked += 1
        return self.busy


def of(*sessions: Session) -> CallerSessions:
    """A caller with these sessions."""
    own = CallerSessions()
    for each in sessions:
        own.add(cast(Any, each))
    return own


def found(own: CallerSessions) -> str | None:
    """The id of the session that is idle for longest, which ends."""
    session = own.idlest()
    if session is None:
        return None
    own.remove(session.id)
    return session.id


def test_sessions_come_by_their_last_use_and_never_while_they_are_in_use() -> None:
    sessions = [Session(name, used) for name, used in (("c", 3), ("a", 1), ("d", 4), ("b", 2))]
    own = of(*sessions, Session("x", 0, busy=True))
    assert found(own) == "a"
    # b is used now, and c is in use.
    sessions[3].last_used = 5
    sessions[0].busy = True
    assert [found(own), found(own), found(own)] == ["d", "b", None]
    sessions[0].busy = False
    assert found(own) == "c"


def test_of_sessions_that_were_used_at_the_same_time_the_first_comes_first() -> None:
    own = of(*(Session(name, 7) for name in "cab"))
    assert [found(own) for _ in range(4)] == ["c", "a", "b", None]


@pytest.mark.parametrize("count", [100, 10_000])
def test_a_place_costs_the_same_for_a_hundred_sessions_and_for_ten_thousand(count: int) -> None:
    own = of(*(Session(str(number), number) for number in range(count)))
    Session.asked = 0
    # As many again open, each in the place of another.
    for number in range(count, 2 * count):
        assert found(own) == str(number - count)
        own.add(cast(Any, Session(str(number), number)))
    assert Session.asked <= 3 * count
