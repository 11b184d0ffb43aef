"""How much work something is, in calls of functions: the same on every machine, so growth shows in it.

A coroutine or generator that goes on is not called again.
"""

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

TESTS = Path(__file__).parents[1]
TURN = "Handle._run"
"""What runs each callback of the event loop of asyncio."""


@dataclass(slots=True)
class Calls:
    """Functions that were called on this thread, those of the interpreter included."""

    entered: Counter[CodeType] = field(default_factory=Counter)
    builtin: int = 0
    generated: Counter[tuple[CodeType, CodeType]] = field(default_factory=Counter)
    """Constructors that named tuples and dataclasses generate, each with the function that called it."""
    turns: list[Counter[CodeType]] = field(default_factory=list)
    """What each callback of the event loop entered, itself included, but for what the tests called."""

    @property
    def count(self) -> int:
        """All of them."""
        return self.entered.total() + self.builtin

    def within(self, folder: Path) -> Counter[str]:
        """The functions whose code lies in the folder, by file and name, each with how often it was entered."""
        found: Counter[str] = Counter()
        for code, times in self.entered.items():
            if _is_of(code, folder):
                found[f"{Path(code.co_filename).relative_to(folder)}:{code.co_qualname}"] += times
        return found

    def of_libraries(self, folder: Path) -> Counter[str]:
        """The functions of neither the folder nor the tests, in those callbacks of the loop that enter the folder."""
        found: Counter[str] = Counter()
        for turn in self.turns:
            if any(_is_of(code, folder) for code in turn):
                for code, times in turn.items():
                    if not _is_of(code, folder) and not _is_of(code, TESTS):
                        found[f"{Path(code.co_filename).name}:{code.co_qualname}"] += times
        return found

    def made_values(self, package: str) -> Counter[str]:
        """The named tuples and objects of frozen dataclasses of the package that were made, by class and maker."""
        classes, found = _generated_constructors(package), Counter[str]()
        for (code, maker), times in self.generated.items():
            if code in classes:
                place = f"{Path(maker.co_filename).stem}:{maker.co_qualname}"
                found[f"{classes[code]} by {place}"] += times
        return found


def _is_of(code: CodeType, folder: Path) -> bool:
    return code.co_filename.startswith(f"{folder}/")


def _generated_constructors(package: str) -> dict[CodeType, str]:
    """The names of the named tuples and frozen dataclasses of a package, by the code that makes one."""
    found: dict[CodeType, str] = {}
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] == package:
            for each in vars(module).values():
                if isinstance(each, type) and hasattr(each, "_fields") and issubclass(each, tuple):
                    found[each.__new__.__code__] = each.__name__
                elif is_dataclass(each) and isinstance(each, type) and each.__dataclass_params__.frozen:  # type: ignore[attr-defined]
                    found[each.__init__.__code__] = each.__name__  # type: ignore[misc]
    return found


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count for the length of the block."""
    made, turn = Calls(), Counter[CodeType]()

    def enter(frame: FrameType, event: str, _: object) -> None:
        nonlocal turn
        if event == "call":
            code = frame.f_code
            if code.co_qualname == TURN:
                made.turns.append(turn := Counter())
            if not _goes_on(code, frame.f_lasti):
                made.entered[code] += 1
                maker = frame.f_back.f_code if frame.f_back is not None else code
                if not _is_of(maker, TESTS):
                    turn[code] += 1
                if code.co_filename == "<string>":
                    made.generated[code, maker] += 1
        elif event == "c_call":
            made.builtin += 1
        elif event == "return" and frame.f_code.co_qualname == TURN:
            turn = Counter()

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
