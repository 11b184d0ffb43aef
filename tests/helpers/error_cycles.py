"""Errors that only the collector of cycles finds, and the local variables that are the reason."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

_DEPTH = 6
"""References from a local variable to an error at most."""
_NOT_FOLLOWED = (type, ModuleType, FunctionType, CodeType, FrameType, TracebackType)


class ErrorCycles:
    """What the collector finds from now on; it does not run by itself, and frees nothing."""

    def __init__(self) -> None:
        gc.collect()
        # What other tests hold to the end is theirs.
        self._older = {id(each) for each in gc.get_objects()}

    def found(self) -> set[str]:
        """The functions of the package whose frames errors refer to, and by which variables these refer back.

        A function stands alone if none of its variables does.
        """
        gc.collect()
        frames: dict[int, FrameType] = {}
        for each in gc.garbage:
            if type(each) is TracebackType and id(each) not in self._older:
                frame = each.tb_frame
                if frame.f_globals["__name__"].startswith("taskgate."):
                    frames[id(frame)] = frame
        garbage = {id(each): isinstance(each, BaseException) for each in gc.garbage}
        guilty = {text for frame in frames.values() for text in _guilty(frame, garbage)}
        return guilty or set(map(_name, frames.values()))


@contextmanager
def error_cycles() -> Iterator[ErrorCycles]:
    """No collection for the length of a block but those that it asks for."""
    cycles = ErrorCycles()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield cycles
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _guilty(frame: FrameType, garbage: Mapping[int, bool]) -> Iterator[str]:
    for name, value in frame.f_locals.items():
        if _leads_to_error(value, garbage):
            yield f"{_name(frame)} {name}"


def _leads_to_error(start: Any, garbage: Mapping[int, bool]) -> bool:
    """Whether references lead from a value to an error by garbage alone; `garbage` says by id which ones are errors."""
    seen: set[int] = set()
    level = [start]
    for _ in range(_DEPTH):
        level = [each for each in level if id(each) in garbage and id(each) not in seen]
        if any(garbage[id(each)] for each in level):
            return True
        seen |= {id(each) for each in level}
        level = [more for each in level if not isinstance(each, _NOT_FOLLOWED) for more in gc.get_referents(each)]
    return False


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals['__name__'].removeprefix('taskgate.')}:{frame.f_code.co_qualname}"
