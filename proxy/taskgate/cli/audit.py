"""The `audit` commands: `verify`, `ref` (the reference of a task) and `schema` (of the lines)."""

import sys
from pathlib import Path
from typing import NoReturn

import click

from taskgate.cli.exits import AnyFile
from taskgate.explain import audit as audit_commands


@click.group()
def audit() -> None:
    """Verify an audit log, or look something up in it."""


@audit.command()
@click.argument("files", metavar="FILE...", type=AnyFile, nargs=-1, required=True)
@click.option(
    "--checkpoint", "checkpoints", type=AnyFile, multiple=True, help="Output of another sink that holds checkpoints."
)
@click.option(
    "--key", "keys", type=AnyFile, multiple=True, help="File with the key of the log, or a PEM file of its signer."
)
@click.option(
    "--expect-seq",
    "expected",
    metavar="N",
    type=click.IntRange(min=1),
    help="Fail unless the last line has sequence number N or higher.",
)
def verify(
    files: tuple[Path, ...], checkpoints: tuple[Path, ...], keys: tuple[Path, ...], expected: int | None
) -> None:
    """Verify that the lines of a log are complete, in order and unchanged.

    Give all files of one sink, rotated ones too, in any order. Exit status: 0 if no problem was
    found, 1 if a problem was found, 2 if the log could not be verified.
    """
    _end_with(audit_commands.verify(files, checkpoints=checkpoints, keys=keys, expected=expected))


@audit.command()
@click.argument("task", metavar="TASK_ID")
@click.option("--key", type=AnyFile, required=True, help="File with the key of the log.")
def ref(task: str, key: Path) -> None:
    """Print the reference by which a log names a task id."""
    _end_with(audit_commands.ref(task, key))


@audit.command(name="schema")
def schema_of_lines() -> None:
    """Print the JSON Schema of the lines of a log."""
    _end_with(audit_commands.schema())


def _end_with(report: audit_commands.CommandOutput) -> NoReturn:
    click.echo(report.text, nl=False, err=report.status == audit_commands.UNUSABLE)
    sys.exit(report.status)
