"""What is refused as memory runs short, how that ends, and where the limit is read."""

import os
import resource as limits
import weakref
from pathlib import Path

import pytest

from helpers.package_objects import no_collections
from requirements import covers
from taskgate.admission.memory_pressure import MemoryPressure, memory_limit, resident

BEGINS = ("initialize", "tools/call", "resources/read", "prompts/get", "subscriptions/listen", "completion/complete")
LISTS = ("tools/list", "tasks/list", "prompts/list", "resources/list", "resources/templates/list")
LAST = ("tasks/get", "tasks/cancel", "tasks/result", "tasks/update", "ping", "server/discover")


class Reader:
    """Tells what a test says that is used, of 1,000 bytes."""

    def __init__(self) -> None:
        self.used = 0
        self.pressure = MemoryPressure(limit=1000, resident=lambda: self.used)

    def at(self, used: int) -> int:
        """The level once so much is used."""
        self.used = used
        self.pressure.update()
        return self.pressure.level


def refused(pressure: MemoryPressure) -> set[str]:
    return {method for method in (*BEGINS, *LISTS, *LAST) if pressure.refuses(method)}


def test_what_begins_something_is_refused_first_then_lists_and_the_rest_never() -> None:
    process = Reader()
    for used, expected in ((799, set()), (800, set(BEGINS)), (899, set(BEGINS)), (900, {*BEGINS, *LISTS})):
        process.at(used)
        assert refused(process.pressure) == expected, used


def test_a_level_is_left_well_below_where_it_began() -> None:
    process = Reader()
    assert [process.at(used) for used in (900, 850, 849, 751, 749, 799)] == [2, 2, 1, 1, 0, 0]


def test_levels_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    process = Reader()
    with caplog.at_level("INFO", logger="taskgate.memory"):
        for used in (800, 810, 800, 700, 700):
            process.at(used)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


class Part:
    """One of two objects that refer to each other."""

    other: "Part"


def cycle() -> "weakref.ref[Part]":
    """Garbage that only a collection finds."""
    one, other = Part(), Part()
    one.other, other.other = other, one
    return weakref.ref(one)


@covers("T57")
def test_garbage_is_collected_when_a_level_begins_and_again_while_it_lasts() -> None:
    process = Reader()
    with no_collections():
        first = cycle()
        process.at(799)
        assert first() is not None, "there is no level"
        process.at(800)
        assert first() is None
        second = cycle()
        updates = 0
        # It comes and goes, which collects no more often.
        while second() is not None:
            process.at(700 if updates % 2 else 900)
            updates += 1
        assert 10 < updates < 1000, "one collection in some seconds"


def test_what_is_used_is_read_from_the_system(tmp_path: Path) -> None:
    assert resident() > 2**20
    assert resident(tmp_path / "none") == 0
    (tmp_path / "odd").write_text("1")
    assert resident(tmp_path / "odd") == 0


def groups(root: Path, lines: str, **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)
    for path, text in files.items():
        file = root / "sys/fs/cgroup" / path.replace("__", "/").replace("_of_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_the_limit_is_that_of_the_own_group_or_of_one_above(tmp_path: Path) -> None:
    two = groups(tmp_path / "2", "0::/pod/one\n", pod__one__memory_of_max="max\n", pod__memory_of_max="4096\n")
    assert memory_limit(two) == 4096
    own = groups(tmp_path / "3", "0::/pod\n", pod__memory_of_max="2048\n", memory_of_max="4096\n")
    assert memory_limit(own) == 2048


def test_the_first_version_of_groups_is_read_too_also_from_within_a_container(tmp_path: Path) -> None:
    lines = "5:cpu:/x\n4:memory:/docker/abc\n"
    one = groups(tmp_path, lines, memory__memory_of_limit_in_bytes="8192\n")
    assert memory_limit(one) == 8192


def test_without_groups_the_limit_is_that_of_the_process_or_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * limits.getpagesize()
    assert memory_limit(tmp_path) <= machine
    monkeypatch.setattr(limits, "getrlimit", lambda _: (4096, limits.RLIM_INFINITY))
    assert memory_limit(tmp_path) == 4096
    monkeypatch.setattr(limits, "getrlimit", lambda _: (limits.RLIM_INFINITY, limits.RLIM_INFINITY))
    assert memory_limit(tmp_path) == machine
