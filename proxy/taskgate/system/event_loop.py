"""The choice of the event loop: `loop_factory`."""

import asyncio
from collections.abc import Callable


class LoopUnavailable(Exception):
    """The event loop is not installed. The text is for the operator."""


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the maker of an event loop: `asyncio`, `uvloop`, or `auto`.

    `auto` means uvloop where it is installed, else asyncio. Raises LoopUnavailable.
    """
    if name == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop  # noqa: PLC0415 - only with the extra
    except ImportError:
        if name == "auto":
            return asyncio.new_event_loop
        raise LoopUnavailable("uvloop is not installed: pip install 'taskgate[uvloop]'") from None
    return uvloop.new_event_loop


def name_of(loop: asyncio.AbstractEventLoop) -> str:
    """Return `asyncio` or `uvloop`."""
    return type(loop).__module__.partition(".")[0]
