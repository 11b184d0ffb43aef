"""Requests that were given up, and what is remembered of them."""

from taskgate.upstream.duplex.outstanding import AbandonedRequests


def test_one_counts_as_at_work_for_a_while_and_as_its_callers_until_it_is_answered() -> None:
    left = AbandonedRequests()
    left.note(1, "s", "alice", 10.0)
    left.note("2", "", "bob", 20.0)
    assert (left.sessions(9.0), left.sessions(10.0), left.sessions(20.0)) == (["s", ""], [""], [])
    assert left.contexts == {"alice", "bob"}
    left.answered(1)
    left.answered(3)
    assert (1 in left, "2" in left) == (False, True)
    assert left.contexts == {"bob"}


def test_of_many_it_is_remembered_whose_they_were() -> None:
    left = AbandonedRequests()
    for id_ in range(2000):
        left.note(id_, "", f"caller {id_}", 0.0)
    for id_ in range(2000):
        left.answered(id_)
    assert left.contexts == {"caller 0", "caller 1"}
