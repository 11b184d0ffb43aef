"""The work of `version` and `completion`: `print_version` and `print_completion`."""

import platform
import sys
from importlib.metadata import version
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from taskgate import __version__
from taskgate.cli.printing import json_text
from taskgate.domain.versions import LEGACY, MODERN

_COMPLETE_VARIABLE: Final = "_TASKGATE_COMPLETE"
"""The variable by which the script asks for completions; click derives it from the program's name."""


def print_version(as_json: bool) -> None:
    """Print the versions of taskgate, Python and aiohttp, and the revisions of the protocol."""
    found = versions()
    if as_json:
        click.echo(json_text(found))
        return
    revisions = found["revisions"]
    click.echo(f"taskgate  {found['taskgate']}")
    click.echo(f"python    {found['python']} ({found['platform']})")
    click.echo(f"aiohttp   {found['aiohttp']}")
    click.echo(f"MCP       {', '.join(revisions['legacy'])} (initialize); {', '.join(revisions['modern'])} (stateless)")


def versions() -> dict[str, Any]:
    """The versions, as `version --json` prints them."""
    return {
        "taskgate": __version__,
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
        "aiohttp": version("aiohttp"),
        "revisions": {"legacy": [*map(str, LEGACY)], "modern": [*map(str, MODERN)]},
    }


def print_completion(shell: str, main: click.Command) -> None:
    """Print the script that completes the commands of `main` in a shell: bash, zsh or fish."""
    made = get_completion_class(shell)
    assert made is not None, "the command offers only shells that click knows"
    click.echo(made(main, {}, "taskgate", _COMPLETE_VARIABLE).source())
