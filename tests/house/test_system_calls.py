"""A usual request makes no more system calls than its row of `bench/budgets.py` allows, by what they do."""

import os
import shutil
import subprocess
from typing import NoReturn

import pytest
from bench import system_calls
from bench.budgets import PROGRAM, SystemCalls

pytestmark = [pytest.mark.alone, pytest.mark.program, pytest.mark.timeout(300)]


def _missing(what: str) -> NoReturn:
    if os.environ.get("TASKGATE_REQUIRE_ALL") == "1":
        pytest.fail(f"nothing may be missing here, but {what}", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="module")
def counted() -> dict[str, SystemCalls]:
    """The system calls of each kind of request; skips the tests where nothing can be traced."""
    if shutil.which("strace") is None:
        _missing("there is no strace here (Debian: apt-get install --no-install-recommends strace)")
    command = [*system_calls.STRACE, os.devnull, "true"]
    if subprocess.run(command, check=False, capture_output=True, timeout=20).returncode:
        _missing("no program may be traced here")
    return system_calls.measure()


@pytest.mark.parametrize("kind", PROGRAM)
def test_a_usual_request_makes_no_more_system_calls_than_its_row_allows(
    kind: str, counted: dict[str, SystemCalls]
) -> None:
    budget, found = PROGRAM[kind].calls, counted[kind]

    over = [name for name, made, most in zip(SystemCalls._fields, found, budget, strict=True) if made > most]
    assert not over, f"more {', '.join(over)} than {budget}: {found}"
    assert found.socket_reads, "a request was read, so calls were counted"
