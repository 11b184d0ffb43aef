"""A command that cannot write says so in one line, and ends with status 1."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

COMMANDS = {
    "bytes": ("schema",),
    "much text": ("metrics",),
    "help": ("--help",),
    "help of a command": ("audit", "verify", "--help"),
    "a version": ("--version",),
    "a few lines": ("version",),
    "a document": ("audit", "schema"),
}
FULL = Path("/dev/full")


def ended(script: str, command: Sequence[str], **environment: str) -> tuple[int, str]:
    """Status and standard error of a command, with `$@` in a script of a shell."""
    call = ["sh", "-c", script, "sh", sys.executable, "-W", "error", "-m", "taskgate", *command]
    done = subprocess.run(
        call, check=False, stderr=subprocess.PIPE, text=True, timeout=60, env={**os.environ, **environment}
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_full_disk_is_said_in_one_line(command: Sequence[str]) -> None:
    assert ended('"$@" > /dev/full', command) == (
        1,
        "taskgate: cannot write to standard output: No space left on device\n",
    )


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_closed_standard_output_is_said_in_one_line(command: Sequence[str]) -> None:
    assert ended('"$@" >&-', command) == (1, "taskgate: cannot write to standard output: it is closed\n")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_output_without_a_buffer_is_no_other() -> None:
    status, text = ended('"$@" > /dev/full', ("version",), PYTHONUNBUFFERED="1")
    assert (status, text.count("\n"), text.endswith("No space left on device\n")) == (1, 1, True)


def test_a_reader_that_wants_no_more_gets_no_line() -> None:
    assert ended('"$@" | head -c 1 > /dev/null', ("metrics",)) == (0, "")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("script", "status"),
    [
        ('"$@" > /dev/full 2> /dev/full', 1),
        ('"$@" <&- >&- 2>&-', 1),
        ('"$@" > /dev/null 2>&-', 0),
        ('"$@" 2> /dev/full', 0),
    ],
)
def test_where_nothing_can_be_said_the_status_still_tells(script: str, status: int) -> None:
    assert ended(script, ("version",)) == (status, "")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_command_that_fails_does_not_end_with_the_interpreters_status() -> None:
    assert ended('"$@" 2> /dev/full', ("check", "--config", "/nowhere/taskgate.yaml"))[0] in (1, 2)


def test_a_file_gets_the_whole_output(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    assert ended(f'"$@" > {file}', ("schema",)) == (0, "")
    assert file.read_text().rstrip().endswith("}")
