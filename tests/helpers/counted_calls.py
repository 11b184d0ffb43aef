"""How much work something is, in calls of functions: the same on every machine, so growth shows in it.

A coroutine or generator that goes on is not called again.
"""

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType


@dataclass(slots=True)
class Calls:
    """Functions that were called on this thread, those of the interpreter included."""

    entered: Counter[CodeType] = field(default_factory=Counter)
    builtin: int = 0

    @property
    def count(self) -> int:
        """All of them."""
        return self.entered.total() + self.builtin

    def within(self, folder: Path) -> Counter[str]:
        """The functions whose code lies in the folder, by file and name, each with how often it was entered."""
        found: Counter[str] = Counter()
        for code, times in self.entered.items():
            if code.co_filename.startswith(f"{folder}/"):
                found[f"{Path(code.co_filename).relative_to(folder)}:{code.co_qualname}"] += times
        return found


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count for the length of the block."""
    made = Calls()

    def enter(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            if not _goes_on(frame.f_code, frame.f_lasti):
                made.entered[frame.f_code] += 1
        elif event == "c_call":
            made.builtin += 1

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


@cache
def _goes_on(code: CodeType, at: int) -> bool:
    """Whether code is entered there because a coroutine goes on: of RESUME, the argument tells it."""
    return code.co_code[at + 1] & 3 != 0
