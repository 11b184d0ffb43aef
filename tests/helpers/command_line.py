"""The command line, called in this process."""

from pathlib import Path

from click.testing import CliRunner

from taskgate.cli import main


def run(*arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command."""
    ended = CliRunner(env=environment).invoke(main, [str(each) for each in arguments])
    return ended.exit_code, ended.stdout, ended.stderr
