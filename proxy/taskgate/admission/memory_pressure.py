"""The memory pressure of the process, and the requests to refuse under it: `MemoryPressure`.

    pressure = MemoryPressure(limit=memory_limit(), resident=resident)
    pressure.update()                            # several times a second, by `Service`

`Gateway` asks `refuses` for each request. From 80 % of the limit on (level 1), requests are refused
except lists and a few small ones. From 90 % on (level 2), these are refused too, and `ResultReader`
refuses large results of tasks. Pings, polls, results, answers and
cancellations of tasks are served at any level. Notifications and responses are never asked about. A
level ends when memory falls 5 % of the limit below its start.
"""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from logging import getLogger
from pathlib import Path, PurePosixPath
from typing import Final

from taskgate.protocol import vocabulary as words
from taskgate.system.allocator import reclaim

SHED_CALLS: Final = 0.8
SHED_LISTS: Final = 0.9
HYSTERESIS: Final = 0.05
"""How far memory must fall below the start of a level before the level ends, as part of the limit."""
RECLAIM_EVERY: Final = 20
"""Updates under pressure between two collections of garbage at least: 5 s."""
RECLAIM_SHARE: Final = 50
"""How many times as long as a collection the pause behind it is at least."""
_UPDATES_A_SECOND: Final = 4

_ALWAYS_SERVED: Final = frozenset(
    {words.PING, words.TASKS_GET, words.TASKS_CANCEL, words.TASKS_UPDATE, words.TASKS_RESULT, words.SERVER_DISCOVER}
)
_SERVED_AT_LEVEL_1: Final = frozenset(
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
    """The level of the process: 0, 1 from 80 % of `limit`, 2 from 90 %.

    `resident` returns the bytes in use; 0 if they are unknown, so that nothing is ever refused.
    """

    def __init__(self, *, limit: int, resident: Callable[[], int]) -> None:
        self._limit = limit
        self._resident = resident
        self._until_reclaim = 0
        self.level = 0

    def update(self) -> int:
        """Read the bytes in use, set the level, and return the bytes."""
        used = self._resident()
        level = self._level_at(used)
        if level != self.level:
            self._log_change(level, used)
            self.level = level
        self._until_reclaim -= 1
        if level and self._until_reclaim <= 0:
            # What is garbage, or freed memory of the allocator, would count as used for ever.
            self._until_reclaim = max(RECLAIM_EVERY, int(reclaim() * _UPDATES_A_SECOND * RECLAIM_SHARE))
        return used

    def refuses(self, method: str) -> bool:
        """Whether requests of a method are refused now."""
        if not self.level or method in _ALWAYS_SERVED:
            return False
        return self.level > 1 or method not in _SERVED_AT_LEVEL_1

    def _level_at(self, used: int) -> int:
        for level, mark in ((2, SHED_LISTS), (1, SHED_CALLS)):
            if used >= self._limit * (mark - (HYSTERESIS if self.level >= level else 0)):
                return level
        return 0

    def _log_change(self, level: int, used: int) -> None:
        extra = {"resident_bytes": used, "limit_bytes": self._limit, "level": level}
        if level > self.level:
            log.warning("short of memory: new calls are refused with code 503, reason overload", extra=extra)
        else:
            log.info("memory use has fallen: fewer or no calls are refused", extra=extra)


def resident(file: Path = Path("/proc/self/statm")) -> int:
    """The resident bytes of this process; 0 if the system does not report them."""
    try:
        return int(file.read_bytes().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def memory_limit(root: Path = Path("/")) -> int:
    """The lowest memory limit of this process: of its control groups (v1 or v2), its rlimits, or
    the machine.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * resource.getpagesize(), *_cgroup_limits(root)]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits)


def _cgroup_limits(root: Path) -> Iterator[int]:
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _limits_up(root / "sys/fs/cgroup", path, "memory.max")
            elif "memory" in controllers.split(","):
                yield from _limits_up(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")


def _limits_up(mount: Path, path: str, name: str) -> Iterator[int]:
    """The limits of a control group and its ancestors, up to the root of the mounted hierarchy.

    In a container that root may be the process's own group.
    """
    group = PurePosixPath(path)
    for each in (group, *group.parents):
        with suppress(OSError, ValueError):
            # A group without a limit has the text "max".
            yield int((mount / each.relative_to("/") / name).read_text())
