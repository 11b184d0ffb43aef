"""Programs of the tests, and what tells whether they run. Each is Python, without anything that takes time to load."""

import os
import sys
from pathlib import Path

ECHO = "for line in sys.stdin: print(line.rstrip(), flush=True)"
"""Says again what it is told."""

COMMANDED = """
for line in sys.stdin:
    try:
        exec(json.loads(line)["do"])
    except KeyError:
        say({"heard": json.loads(line)})
"""
"""Does what it is told."""

_BEFORE = """
import json, os, signal, subprocess, sys, time
def say(message):
    print(json.dumps(message), flush=True)
"""


def program(text: str = COMMANDED) -> tuple[str, ...]:
    """The command that runs it."""
    return (sys.executable, "-I", "-S", "-c", _BEFORE + text)


def runs(pid: int) -> bool:
    """Whether a process is there, and has not ended."""
    return _state(pid)[:1] not in ([], ["Z"])


def is_there(pid: int) -> bool:
    """Whether a process is there, also one that has ended and that nobody waited for."""
    return _state(pid) != []


def children(pid: int | None) -> list[int]:
    """The processes that it is the parent of."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [each for each in pids if _state(each)[1:2] == [str(pid)]]


def _state(pid: int) -> list[str]:
    """State and parent of a process; nothing where there is none."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
