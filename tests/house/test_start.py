"""What a start loads. Imports are most of the time that a start takes, and much of the memory that stays."""

import subprocess
import sys

import pytest

_TELL = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
_COMMAND = f"{_TELL}from taskgate.cli import main; main(prog_name='taskgate')"
_GATEWAY = f"""{_TELL}
import asyncio, tempfile
from pathlib import Path
from taskgate.cli import serve
from taskgate.config import for_upstream
from taskgate.wiring.app import Service

async def start():
    config = for_upstream("http://127.0.0.1:9/mcp", "127.0.0.1:0", "127.0.0.1:0", environ={{}})
    service = Service(config, data_directory=Path(folder))
    await service.start()
    await service.close()

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(start())
"""

# Needed for authentication, keys in PEM form, paths of what is removed from arguments, tracing and a shared store; and
# what nothing here needs, wherever it is installed.
_LATER = {"cryptography", "hiredis", "jsonpath", "jwt", "opentelemetry", "redis", "rich", "structlog"}
_MOST = 362
"""Modules of the package that a gateway loads."""


def loaded(code: str, *arguments: str, **environment: str) -> set[str]:
    """The modules that a program has loaded at its end."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, check=True, timeout=60
    )
    return set(ended.stderr.decode().splitlines()[-1].split())


def foreign(modules: set[str]) -> set[str]:
    """The packages among them that are neither ours nor Python's, but for parts in C, which have no name of ours."""
    names = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    return {name for name in names if not name.startswith("_")} - {"taskgate"}


_OF_EACH = ("client_commands", "commands", "exits", "help", "streams")
_DECLARED = {"taskgate", "taskgate.cli", *(f"taskgate.cli.{name}" for name in _OF_EACH)}


@pytest.mark.parametrize(
    ("arguments", "environment", "more"),
    [
        (["--version"], {}, set()),
        (["serve", "--help"], {}, {"taskgate.cli.examples"}),
        ([], {"_TASKGATE_COMPLETE": "bash_complete", "COMP_WORDS": "taskgate serve --", "COMP_CWORD": "2"}, set()),
    ],
    ids=["version", "help", "completion"],
)
def test_a_command_that_needs_no_gateway_loads_none(
    arguments: list[str], environment: dict[str, str], more: set[str]
) -> None:
    modules = loaded(_COMMAND, *arguments, **environment)
    ours = {name for name in modules if name.partition(".")[0] == "taskgate"}
    assert ours == _DECLARED | more
    assert foreign(modules) == {"click"}


def test_a_health_check_loads_no_part_of_the_gateway() -> None:
    """An orchestrator starts one every few seconds."""
    code = _COMMAND.replace(
        "main(", "sys.argv[1:] = ['health', '--admin', '127.0.0.1:1']; main(standalone_mode=False, "
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    modules = set(ended.stderr.decode().splitlines()[-1].split())
    assert "taskgate.cli.remote.health" in modules
    assert foreign(modules) == {"click"}
    beside = {name for name in modules if name.startswith("taskgate.") and not name.startswith("taskgate.cli")}
    # What texts of others look like in a terminal.
    assert beside == {"taskgate.jsontext", "taskgate.jsontext.display"}


def test_a_gateway_loads_only_what_its_configuration_needs() -> None:
    modules = loaded(_GATEWAY)
    assert foreign(modules) & _LATER == set()
    assert len([name for name in modules if name.partition(".")[0] == "taskgate"]) <= _MOST
