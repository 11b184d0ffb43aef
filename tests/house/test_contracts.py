"""The import contracts hold, and each can fail: a statement in the wrong place breaks what it should and no more."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

CHECKOUT = Path(__file__).parents[2]
PACKAGE = Path("proxy", "taskgate")

DOWN = "Imports go down only"
IMPLEMENTATIONS = "Only the composition root names implementations"
ERAS = "The eras know nothing of each other"
NEUTRAL = "What serves both eras names neither"
LEGACY = "The legacy era is spoken by its own code"
MODERN = "The modern era is spoken by its own code"
SDK = "Only the composition root names the OpenTelemetry SDK"
STORES = "Only the opener names stores"
PURE = "Pure floors do no I/O and know no time"
SPEAKERS = "Whoever speaks to a server does not know what moves the messages"
MOVERS = "What moves the messages does not know who speaks"
LINES = "Programs and event streams know nothing of each other"
OPERATORS = "The API of operators knows no HTTP and no store of its own"
NURSERY = "The nursery of programs needs the standard library alone"
CYCLES = "No cycles between siblings"

# Where what statement is added, and the contracts it breaks.
MISTAKES: dict[str, tuple[str, ...]] = {
    "an import upwards": ("domain/policy.py", "import taskgate.protocol.vocabulary", DOWN, CYCLES),
    "a look at a sibling": ("stores/base.py", "import taskgate.upstream.base", DOWN),
    "a floor that nobody planned": ("basement/__init__.py", "", DOWN),
    "an implementation named": ("gateway/pipeline.py", "import taskgate.upstream.client", IMPLEMENTATIONS),
    "an era named": ("gateway/pipeline.py", "import taskgate.protocol.legacy.tasks", NEUTRAL),
    "the other era named": ("gateway/pipeline.py", "import taskgate.protocol.modern.tasks", NEUTRAL),
    "a legacy session that speaks modern": (
        "upstream/legacy/session.py",
        "import taskgate.protocol.modern.upstream",
        MODERN,
    ),
    "a modern session that speaks legacy": (
        "upstream/modern/session.py",
        "import taskgate.protocol.legacy.upstream",
        LEGACY,
    ),
    "an era that looks at the other": (
        "protocol/legacy/tasks.py",
        "import taskgate.protocol.modern.tasks",
        ERAS,
    ),
    "the SDK of tracing named": ("wiring/app.py", "import taskgate.telemetry.opentelemetry.sdk", SDK),
    "a store named": ("gateway/pipeline.py", "import taskgate.stores.memory", STORES),
    "time on a pure floor": ("domain/policy.py", "import time", PURE),
    "a file opened by a codec": ("stores/codec.py", "import sqlite3", PURE),
    "a session that knows its socket": (
        "upstream/legacy/session.py",
        "import taskgate.upstream.wire.dialer",
        SPEAKERS,
    ),
    "a socket that knows its session": ("upstream/wire/dialer.py", "import taskgate.upstream.modern.session", MOVERS),
    "a stream that knows of programs": ("upstream/sse/channel.py", "import taskgate.upstream.stdio.pool", LINES),
    "a library in the nursery": ("upstream/stdio/supervisor/messages.py", "import orjson", NURSERY),
    "a look out of the nursery": ("upstream/stdio/supervisor/messages.py", "import taskgate.errors", NURSERY),
    "HTTP in the API of operators": ("operators/tasks.py", "import aiohttp", OPERATORS),
    "a cycle": ("domain/record.py", "import taskgate.domain.events", CYCLES),
}


def copied_to(place: Path) -> Path:
    """A copy of the package and of its contracts."""
    shutil.copytree(CHECKOUT / PACKAGE, place / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "pyproject.toml", place)
    return place


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, str], str]:
    """What is said of the package as it is."""
    return lint(copied_to(tmp_path_factory.mktemp("untouched")))


def lint(tree: Path) -> tuple[int, dict[str, str], str]:
    """The exit code, the verdict on each contract, and what was printed."""
    # Run where the copy is, so that the copy and not the installed package is what is read.
    command = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    run = subprocess.run(
        [sys.executable, "-c", command, "--config", str(tree / "pyproject.toml"), "--no-cache"],
        cwd=tree / "proxy",
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    verdicts = re.findall(r"^(\S.*\S) (KEPT|BROKEN)\b", run.stdout, re.MULTILINE)
    return run.returncode, dict(verdicts), run.stdout + run.stderr


def test_every_contract_is_kept(untouched: tuple[int, dict[str, str], str]) -> None:
    code, verdicts, output = untouched
    everything = [
        DOWN,
        IMPLEMENTATIONS,
        SDK,
        ERAS,
        NEUTRAL,
        LEGACY,
        MODERN,
        STORES,
        PURE,
        OPERATORS,
        SPEAKERS,
        MOVERS,
        LINES,
        NURSERY,
        CYCLES,
    ]
    assert verdicts == dict.fromkeys(everything, "KEPT"), output
    assert code == 0, output


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_breaks_its_contracts_and_no_other(
    untouched: tuple[int, dict[str, str], str], tmp_path: Path, mistake: tuple[str, ...]
) -> None:
    place, statement, *contracts = mistake
    file = copied_to(tmp_path) / PACKAGE / place
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as source:
        source.write(f"\n{statement}\n")
    code, verdicts, output = lint(tmp_path)
    assert code == 1, output
    assert dict(verdicts.items() - untouched[1].items()) == dict.fromkeys(contracts, "BROKEN"), output
