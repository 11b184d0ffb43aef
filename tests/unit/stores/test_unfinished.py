"""What caps are held against: unfinished tasks by context, each until it expires."""

import pytest

from taskgate.stores.capacity import UnfinishedCounter


def test_each_context_is_counted_by_itself() -> None:
    unfinished = UnfinishedCounter([(b"a", 10), (b"b", 10), (b"a", 10)])
    unfinished.add(b"b", 5)
    unfinished.add(b"c", 7)
    assert [unfinished.count(context, 0) for context in (b"a", b"b", b"c", b"d")] == [2, 2, 1, 0]


def test_what_has_expired_counts_no_more_whatever_the_order_it_came_in() -> None:
    unfinished = UnfinishedCounter()
    for expires in (30, 10, 20, 10):
        unfinished.add(b"a", expires)
    assert [unfinished.count(b"a", now) for now in (0, 9, 10, 19, 20, 29, 30, 31)] == [4, 4, 2, 2, 1, 1, 0, 0]


def test_one_of_several_that_expire_together_is_removed() -> None:
    unfinished = UnfinishedCounter([(b"a", 10), (b"a", 10), (b"a", 20)])
    unfinished.remove(b"a", 10)
    assert [unfinished.count(b"a", now) for now in (9, 10, 20)] == [2, 1, 0]


def test_a_context_can_come_again_after_its_last_task() -> None:
    unfinished = UnfinishedCounter([(b"a", 10)])
    unfinished.remove(b"a", 10)
    assert unfinished.count(b"a", 0) == 0
    unfinished.add(b"a", 20)
    assert unfinished.count(b"a", 0) == 1


@pytest.mark.parametrize(("context", "expires"), [(b"a", 5), (b"a", 15), (b"a", 25), (b"b", 10)])
def test_what_was_never_added_is_passed_over(context: bytes, expires: int) -> None:
    unfinished = UnfinishedCounter([(b"a", 10), (b"a", 20)])
    unfinished.remove(context, expires)
    assert unfinished.count(b"a", 0) == 2
