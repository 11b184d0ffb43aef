"""How much work something is, in calls of functions: the same on every machine, so growth shows in it."""

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
