"""How much work something is, in calls of functions: the same on every machine, so growth shows in it."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(slots=True)
class Calls:
    """Functions that were called on this thread, those of the interpreter included."""

    count: int = 0


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count for the length of the block."""
    made = Calls()

    def enter(_: FrameType, event: str, __: object) -> None:
        if event in ("call", "c_call"):
            made.count += 1

    collects = gc.isenabled()
    # What is left of earlier tests may be collected at any moment, and calls functions then.
    gc.disable()
    sys.setprofile(enter)
    try:
        yield made
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
