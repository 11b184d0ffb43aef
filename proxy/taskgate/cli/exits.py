"""The end of a command in an error: `fail`, with the exit status."""

import sys
from collections.abc import Callable
from typing import Final, NoReturn

import click

FAILED: Final = 1
"""Exit status: the gateway could not start, or a token was refused."""
WRONG_USE: Final = 2
"""Exit status: the command line or the configuration is wrong."""
TOOL_FAILED: Final = 3
"""Exit status: the tool itself reported an error."""
INTERRUPTED: Final = 130
"""Exit status: Ctrl-C."""


def fail(error: Exception, status: int, *, hide: Callable[[str], str] = str) -> NoReturn:
    """Print an error, and exit. `hide` masks secrets of the configuration in its text."""
    text = hide(str(error))
    click.echo(f"taskgate: {text}" if status == FAILED else text, err=True)
    sys.exit(status)
