"""The work of `examples`: write the example files that the package carries, `write_examples`."""

from pathlib import Path
from typing import Final

import click

from taskgate.cli.exits import FAILED, fail

_SHARE: Final = Path(__file__).parents[1] / "share"
FILES: Final = (
    "config/*.yaml",
    "config/*.json",
    "openapi.json",
    "prometheus.yml",
    "alerts/*.yml",
    "dashboards/*.json",
    "dashboards/*.yml",
    "provisioning/*.yml",
    "runbooks.md",
    "demo/server.py",
    "systemd/taskgate.service",
    "kubernetes/*/*.yaml",
)
"""Patterns below `share`. In a checkout its folders are links, and have more than is written."""


class _NotWritten(Exception):
    """A file could not be written; the text is for the operator."""


def example_files() -> list[Path]:
    """The files, as paths below `share`, in the order in which they are written."""
    return [file.relative_to(_SHARE) for pattern in FILES for file in sorted(_SHARE.glob(pattern))]


def write_examples(folder: Path, force: bool) -> None:
    """Write the files into `folder`, which is created if it is missing."""
    files = example_files()
    present = [file for file in files if (folder / file).exists()]
    if present and not force:
        raise click.UsageError(f"{folder / present[0]} exists already: give another folder, or --force to replace it.")
    try:
        for file in files:
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((_SHARE / file).read_bytes())
    except OSError as error:
        fail(_NotWritten(f"{folder} cannot be written: {error.strerror}"), FAILED)
    for name, count in _counts(files).items():
        click.echo(f"{folder / name}" + (f"  {count} files" if count > 1 else ""))


def _counts(files: list[Path]) -> dict[str, int]:
    """How many files each name at the top of the folder stands for."""
    counts: dict[str, int] = {}
    for file in files:
        name = str(file) if len(file.parts) == 1 else f"{file.parts[0]}/"
        counts[name] = counts.get(name, 0) + 1
    return counts
