"""The command line, called in this process."""

import signal
from pathlib import Path

from click.testing import CliRunner

from taskgate.cli import main


def run(*arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command."""
    # A program that ends blocks signals; this process goes on, and starts others.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        ended = CliRunner(env=environment).invoke(main, [str(each) for each in arguments])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return ended.exit_code, ended.stdout, ended.stderr
