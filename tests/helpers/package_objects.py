"""What of the package is in memory by the account of the collector: objects of its classes, whatever these are."""

import gc
import linecache
import tracemalloc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from helpers import told
from helpers.loop_pace import paced
from helpers.waiting import eventually

_FOUND = find_spec("taskgate")
assert _FOUND is not None
assert _FOUND.origin is not None
PACKAGE = Path(_FOUND.origin).parent
OF_CANCELLED_TIMERS = {"Client", "Member", "Request", "RequestContext", "WalkedMember"}
"""What the context of a request is made of: a cancelled timer keeps it until it would have run out."""


def of_the_package(objects: Iterable[Any]) -> "Counter[str]":
    """How many of them there are of each class of the package."""
    classes = map(type, objects)
    return Counter(f"{each.__module__}.{each.__qualname__}" for each in classes if _is_of_the_package(each))


def counted() -> "Counter[str]":
    """What there is now, but for what the tests themselves hold."""
    told.now().forget()
    return of_the_package(gc.get_objects())


@contextmanager
def no_collections() -> Iterator[None]:
    """Collect what there is, and nothing for the length of a block: what is in a cycle stays."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def expect_no_growth(before: "Counter[str]", calls: int, *, remembered: Collection[str] = ()) -> None:
    """Wait until none of so many calls since then has left anything, but for objects of the `remembered` classes.

    Caches may have a little more. All are gone within moments, but those of `OF_CANCELLED_TIMERS`, which are gone once
    all timers have run out.
    """

    async def left_only(allowed: Collection[str], when: str) -> None:
        try:
            await eventually(lambda: not grown(before, calls, remembered=allowed), within=2)
        except AssertionError:
            raise AssertionError(f"there {when}: {grown(before, calls, remembered=allowed)}") from None

    await left_only({*remembered, *OF_CANCELLED_TIMERS}, "still")
    with paced(5000):
        await left_only(remembered, "when timers have run out")


def grown(before: "Counter[str]", times: int, *, remembered: Collection[str] = ()) -> dict[str, int]:
    """What there are at least so many more of than before, but for those classes."""
    counts = (counted() - before).items()
    return {name: more for name, more in counts if more >= times and name.rpartition(".")[2] not in remembered}


def bytes_held() -> int:
    """The bytes that the package's own code has asked for since `tracemalloc` began, and that are there still.

    The heads of hosts are the HTTP library's: its parser asks for them, in the line that feeds it.
    """
    told.now().forget()
    mine = tracemalloc.Filter(inclusive=True, filename_pattern=f"{PACKAGE}/*")
    found = tracemalloc.take_snapshot().filter_traces([mine]).statistics("lineno")
    return sum(each.size for each in found if not _feeds_the_parser(each.traceback[0]))


def _feeds_the_parser(place: tracemalloc.Frame) -> bool:
    is_of_the_listener = place.filename.endswith("/listener/protocol.py")
    return is_of_the_listener and ".feed_data(" in linecache.getline(place.filename, place.lineno)


def _is_of_the_package(kind: type) -> bool:
    module = kind.__module__
    return isinstance(module, str) and module.startswith("taskgate.")
