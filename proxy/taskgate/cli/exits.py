"""Exit codes of the commands, and what several of them use: the option type of files, and `load`."""

import os
import sys
from pathlib import Path
from typing import Final, NoReturn

import click

from taskgate import config
from taskgate.config import GatewayConfig

FAILED: Final = 1
"""Exit code: the gateway could not start, or a token was refused."""
WRONG_USE: Final = 2
"""Exit code: the command line or the configuration is wrong."""

AnyFile: Final = click.Path(path_type=Path)


def load(file: Path) -> GatewayConfig:
    """Load a configuration file with the environment of this process; raises ConfigurationError."""
    return config.load(file, os.environ)


def fail(error: Exception, status: int) -> NoReturn:
    """Print an error, and exit."""
    click.echo(f"taskgate: {error}" if status == FAILED else str(error), err=True)
    sys.exit(status)
