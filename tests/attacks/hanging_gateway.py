"""taskgate, one part of which hangs as the process ends: `hanging_gateway.py PART serve …`.

What hangs stands in for a disk, a server or a library that does: the part is replaced, whatever it would do.
"""

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from taskgate.cli import main
from taskgate.lifecycle.runner import Runner
from taskgate.stores.sqlite.store import SqliteStore
from taskgate.telemetry.auditlog.log import AuditLog
from taskgate.wiring.app import Service
from taskgate.wiring.upstreams import UpstreamRegistry


def tell() -> None:
    """Say that something hangs now."""
    sys.stdout.write("hanging\n")
    sys.stdout.flush()


async def wait_for_ever(*_: Any, **__: Any) -> None:
    """What nothing ends but its cancellation."""
    await asyncio.Event().wait()


async def heed_nothing(*_: Any, **__: Any) -> NoReturn:
    """What nothing ends."""
    while True:
        tell()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def hold_the_loop(*_: Any, **__: Any) -> None:
    """What keeps the loop from doing anything, and waits."""
    time.sleep(3600)


async def hold_the_loop_with_work(*_: Any, **__: Any) -> None:
    """What keeps the loop from doing anything, and the processor busy below Python."""
    tell()
    re.match(r"(a+)+$", "a" * 64 + "b")


async def leave_a_thread(*_: Any, **__: Any) -> None:
    """What is over, but for a thread that the interpreter waits for."""
    threading.Thread(target=time.sleep, args=(3600,)).start()


PARTS: dict[str, tuple[type[Any], str, Callable[..., Any]]] = {
    "start": (Service, "_open", heed_nothing),
    "runner": (Runner, "stop", heed_nothing),
    "upstream": (UpstreamRegistry, "close", heed_nothing),
    "audit": (AuditLog, "close", wait_for_ever),
    "store": (SqliteStore, "close", wait_for_ever),
    "loop": (SqliteStore, "close", hold_the_loop),
    "work": (Service, "drain", hold_the_loop_with_work),
    "thread": (SqliteStore, "close", leave_a_thread),
}


if __name__ == "__main__":
    kind, name, hang = PARTS[sys.argv.pop(1)]
    setattr(kind, name, hang)
    main()
