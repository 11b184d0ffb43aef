"""Freed memory is kept under load, and given back once the process is idle."""

import subprocess
import sys

import pytest

from taskgate.system.allocator import BUSY, IDLE_UPDATES, WORTHWHILE, IdleTrim

_KEPT_AND_GIVEN_BACK = """
from threading import Thread
from taskgate.admission.memory_pressure import resident
from taskgate.system.allocator import configure, trim

def take_and_free():
    blocks = [bytearray(b"x" * 2**20) for _ in range(40)]

configure()
before = resident()
for work in (Thread(target=take_and_free), Thread(target=take_and_free)):
    work.start()
    work.join()
take_and_free()
kept = resident()
trim()
print(kept - before, resident() - before)
"""


class DrivenTrim:
    """An `IdleTrim` of a process whose memory and CPU a test tells."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.trims = 0
        self.resident = 100 * WORTHWHILE
        self._trim = IdleTrim(cpu=lambda: self.cpu, start=self._started)
        self._trim.update(self.resident)

    def _started(self) -> None:
        self.trims += 1

    def run(self, updates: int, *, cpu: float = 0.0, left: int | None = None) -> int:
        """Go on for so many updates, with so much work in each; what is left is known after a trim."""
        before = self.trims
        for _ in range(updates):
            self.cpu += cpu
            self._trim.update(self.resident)
            if left is not None and self.trims > before:
                self.resident = left
        return self.trims - before


@pytest.fixture
def process() -> DrivenTrim:
    return DrivenTrim()


def test_what_was_freed_is_given_back_once_when_the_process_is_idle(process: DrivenTrim) -> None:
    process.resident += WORTHWHILE
    assert process.run(IDLE_UPDATES - 2) == 0
    assert process.run(10 * IDLE_UPDATES, left=process.resident - WORTHWHILE) == 1


def test_it_is_kept_while_the_process_works(process: DrivenTrim) -> None:
    process.resident += 4 * WORTHWHILE
    assert process.run(10 * IDLE_UPDATES, cpu=2 * BUSY) == 0
    assert process.run(IDLE_UPDATES - 1, cpu=BUSY / 2) == 0
    assert process.run(1, cpu=BUSY / 2) == 1


def test_it_is_kept_where_it_is_too_little_to_be_worth_it(process: DrivenTrim) -> None:
    process.resident += WORTHWHILE - 1
    assert process.run(10 * IDLE_UPDATES) == 0


def test_memory_in_use_is_looked_through_once(process: DrivenTrim) -> None:
    process.resident += 4 * WORTHWHILE
    assert process.run(10 * IDLE_UPDATES) == 1
    process.resident += WORTHWHILE
    assert process.run(10 * IDLE_UPDATES) == 1


@pytest.mark.program
@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has this allocator")
def test_memory_of_large_blocks_is_kept_and_all_of_it_is_given_back_by_a_trim() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _KEPT_AND_GIVEN_BACK], capture_output=True, check=True, text=True, timeout=60
    )
    kept, left = map(int, ran.stdout.split())
    assert kept > 32 * 2**20
    assert left < 16 * 2**20
