"""Function objects that code makes as it runs: closures and lambdas, which cost an object each time.

A comprehension is none, although CPython 3.11 makes a function of it: later releases do not.
"""

import dis
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")


@contextmanager
def made_functions(folder: Path) -> Iterator[Counter[str]]:
    """Count for the length of a block the functions that code of that folder makes, by their name, on this thread."""
    found: Counter[str] = Counter()

    def enter(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(f"{folder}/") or not _makers(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        return step

    def step(frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode" and (made := _makers(frame.f_code).get(frame.f_lasti)):
            found[f"{Path(frame.f_code.co_filename).stem}:{made}"] += 1
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield found
    finally:
        sys.settrace(before)


@cache
def _makers(code: CodeType) -> dict[int, str]:
    """The functions that code makes, by the place of the instruction."""
    found, name = {}, ""
    for each in dis.get_instructions(code):
        if isinstance(each.argval, CodeType):
            name = each.argval.co_qualname
        if each.opname == "MAKE_FUNCTION" and not name.endswith(COMPREHENSIONS):
            found[each.offset] = name
    return found
