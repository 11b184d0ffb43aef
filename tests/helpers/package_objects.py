"""What of the package is in memory by the account of the collector: objects of its classes, whatever these are."""

import gc
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator
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


def of_the_package(objects: Iterable[Any]) -> "Counter[str]":
    """How many of them there are of each class of the package."""
    classes = map(type, objects)
    return Counter(f"{each.__module__}.{each.__qualname__}" for each in classes if _is_of_the_package(each))


def counted() -> "Counter[str]":
    """What there is now, but for what the tests themselves hold."""
    told.now().emitted.clear()
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


async def expect_no_growth(before: "Counter[str]", calls: int, *, remembered: int = 0) -> None:
    """Wait until none of so many calls since then has left anything: what each leaves is there as often as there were.

    Caches may have a little more. What only a timer knows of is gone once it has run out, for which nobody waits.
    `remembered` is of how many classes each call may leave objects all the same.
    """

    def grown() -> dict[str, int]:
        return {name: more for name, more in (counted() - before).items() if more >= calls}

    try:
        with paced(1000):
            await eventually(lambda: len(grown()) <= remembered, within=5)
    except AssertionError:
        raise AssertionError(f"still there: {grown()}") from None


def bytes_held() -> int:
    """The bytes that the package's own code has asked for since `tracemalloc` began, and that are there still."""
    now = told.now()
    now.emitted.clear()
    now.texts.clear()
    mine = tracemalloc.Filter(inclusive=True, filename_pattern=f"{PACKAGE}/*")
    found = tracemalloc.take_snapshot().filter_traces([mine]).statistics("filename")
    return sum(each.size for each in found)


def _is_of_the_package(kind: type) -> bool:
    module = kind.__module__
    return isinstance(module, str) and module.startswith("taskgate.")
