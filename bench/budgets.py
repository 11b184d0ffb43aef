"""What one usual request may cost the gateway as a program: the table that keeps it fast, row by row.

A change that needs more raises a row in the same commit, and says in a comment why. `make instructions` judges the
instructions, `tests/house/test_system_calls.py` the calls. What a request may cost in functions and objects of the
loop stands in `tests/house/test_budgets.py`, for each pair of eras.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class SystemCalls(NamedTuple):
    """System calls by what they do. Clocks are left out: they are calls of the system only on some machines."""

    socket_reads: int
    socket_writes: int
    wakeups: int
    """Of the event loop, by other threads."""
    file_writes: int
    syncs: int
    polls: int
    """Turns of the event loop, but for those that a timer begins."""
    futexes: int
    others: int


class Budget(NamedTuple):
    """What a kind of request may cost."""

    instructions: float
    """In answers of the anchor, so that builds of Python and of libraries matter little."""
    calls: SystemCalls


ANCHOR: Final = "aiohttp answering a `tasks/get` by itself"
LEEWAY: Final = 1.1
"""Of instructions: counts of the same code on a busy machine differ by some 4 %, and more where threads wait longer."""

PROGRAM: Final[Mapping[str, Budget]] = {
    # A kept connection to a server is polled before it is used, as some servers close it after each answer.
    "plain call, legacy host": Budget(3.7, SystemCalls(2, 2, 1, 1, 0, 6, 12, 2)),
    "plain call, modern host": Budget(4.9, SystemCalls(2, 2, 1, 1, 0, 6, 12, 11)),
    "`tasks/get`, legacy host": Budget(2.4, SystemCalls(1, 1, 1, 1, 0, 5, 12, 1)),
    "`tasks/get`, modern host": Budget(2.7, SystemCalls(1, 1, 1, 1, 0, 5, 12, 1)),
    "a task created, run, stored, and its result fetched": Budget(16.0, SystemCalls(3, 4, 4, 25, 3, 16, 50, 41)),
    "a stream of 20 events and its answer": Budget(14.3, SystemCalls(22, 22, 1, 1, 0, 40, 12, 6)),
}
"""Calls are as they were counted, but for four kinds. When threads run decides on polls and futexes: they have about
twice the most that a busy machine showed. SQLite has two file writes and four others to spare. On 3.11 each look for
the running event loop asks for the number of the process, which is most of the others.
"""
