"""How near the process is to the end of its memory, and what is refused then: `MemoryPressure`.

    pressure = MemoryPressure(limit=memory_limit(), resident=resident)
    pressure.look()                              # every now and then; a request reads `level` alone

At 80 % of the limit what begins something is refused, at 90 % lists and large results too. Cancels, answers, pings and
looks at tasks are served to the end. A level is left at 5 % less than where it began.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from logging import getLogger
from pathlib import Path, PurePosixPath
from typing import Final

from taskgate.protocol import vocabulary as words

SHED_CALLS: Final = 0.8
SHED_LISTS: Final = 0.9
HYSTERESIS: Final = 0.05
"""How much of the limit must be free beyond a mark before its level is left."""
TRIM_EVERY: Final = 20
"""Looks between two times that freed memory is given back to the system while there is pressure."""

_SERVED_LAST: Final = frozenset(
    {words.PING, words.TASKS_GET, words.TASKS_CANCEL, words.TASKS_UPDATE, words.TASKS_RESULT, words.SERVER_DISCOVER}
)
_LISTS: Final = frozenset(
    {
        words.TASKS_LIST,
        words.TOOLS_LIST,
        words.LOGGING_SET_LEVEL,
        words.RESOURCES_UNSUBSCRIBE,
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    }
)

log = getLogger("taskgate.memory")


class MemoryPressure:
    """The level of one process: 0 is none, 1 beyond 80 % of `limit`, 2 beyond 90 %. `resident` reads what is used."""

    def __init__(self, *, limit: int, resident: Callable[[], int]) -> None:
        self._limit = limit
        self._resident = resident
        self._looks = 0
        self.level = 0

    def look(self) -> None:
        """Read how much is used now, and have the level that belongs to it."""
        used = self._resident()
        level = self._level_at(used)
        if level != self.level:
            self._tell(level, used)
            self.level, self._looks = level, 0
        if level:
            if self._looks % TRIM_EVERY == 0:
                # What was freed is not the system's again by itself, and would count for ever.
                _trim()
            self._looks += 1

    def refuses(self, method: str) -> bool:
        """Whether a request is not served now."""
        if not self.level or method in _SERVED_LAST:
            return False
        return self.level > 1 or method not in _LISTS

    def _level_at(self, used: int) -> int:
        for level, mark in ((2, SHED_LISTS), (1, SHED_CALLS)):
            if used >= self._limit * (mark - (HYSTERESIS if self.level >= level else 0)):
                return level
        return 0

    def _tell(self, level: int, used: int) -> None:
        facts = {"resident_bytes": used, "limit_bytes": self._limit, "level": level}
        if level > self.level:
            log.warning("short of memory: new calls are refused with code 503, reason overload", extra=facts)
        else:
            log.info("memory use has fallen: fewer or no calls are refused", extra=facts)


def resident(file: Path = Path("/proc/self/statm")) -> int:
    """Bytes of this process in memory now; 0 where the system does not tell."""
    try:
        return int(file.read_bytes().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def memory_limit(root: Path = Path("/")) -> int:
    """The most bytes that this process may have: of its control groups (v1 or v2), its own limits, or the machine."""
    limits = [os.sysconf("SC_PHYS_PAGES") * resource.getpagesize(), *_of_groups(root)]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits)


def _of_groups(root: Path) -> Iterator[int]:
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _up(root / "sys/fs/cgroup", path, "memory.max")
            elif "memory" in controllers.split(","):
                yield from _up(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")


def _up(mount: Path, path: str, name: str) -> Iterator[int]:
    """The limits of a group and of those above it; in a container the own group may be the mount itself."""
    group = PurePosixPath(path)
    for each in (group, *group.parents):
        with suppress(OSError, ValueError):
            # A group without a limit says "max", which is no number.
            yield int((mount / each.relative_to("/") / name).read_text())


def _trim() -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
