"""The standard streams of a command: `CommandLine`, the group of all commands, says that it cannot print.

A full disk, a quota or a closed descriptor is found when a command prints. `_Output` tells such an
error from others. A broken pipe is no error to report: its reader wanted no more.
"""

import os
import sys
from contextlib import suppress
from errno import EBADF, EPIPE
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, Final

import click

from taskgate.cli.exits import FAILED
from taskgate.cli.help import HelpfulGroup

_NULL_MODES: Final = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
"""The standard streams by their descriptors, and how the null device replaces a closed one.

Standard output is opened for reading, so that a command that prints fails.
"""


class OutputFailed(OSError):
    """Standard output cannot be written."""


class _Output(FileIO):
    """Standard output, whose errors are OutputFailed."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputFailed(*error.args) from None


class CommandLine(HelpfulGroup):
    """The group of all commands. One that cannot print ends with one line and status 1."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command. Raises SystemExit, as the base class does."""
        _prepare()
        try:
            try:
                return super().main(*args, **options)
            finally:
                # Else the interpreter finds what is left, and reports it in its own words.
                sys.stdout.flush()
        except OutputFailed as error:
            if error.errno != EPIPE:
                reason = "it is closed" if error.errno == EBADF else error.strerror
                with suppress(OSError):
                    click.echo(f"taskgate: cannot write to standard output: {reason}", err=True)
            # What is still in its buffer goes there.
            _open_null(1, os.O_WRONLY)
            sys.exit(FAILED)
        finally:
            try:
                sys.stderr.flush()
            except OSError:
                _open_null(2, os.O_WRONLY)


def _prepare() -> None:
    """Replace standard streams that were closed before the start, and watch standard output."""
    for number, (name, mode) in enumerate(_NULL_MODES.items()):
        if getattr(sys, name) is None:
            # Otherwise a socket or a file gets the number of a standard stream.
            _open_null(number, mode)
            stream = TextIOWrapper(FileIO(number, "w" if number else "r", closefd=False), "utf-8")
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    present = sys.stdout
    if present is sys.__stdout__ and isinstance(present, TextIOWrapper):
        sys.stdout = TextIOWrapper(
            BufferedWriter(_Output(1, "w", closefd=False)),
            encoding=present.encoding,
            errors=present.errors,
            line_buffering=present.line_buffering,
            write_through=present.write_through,
        )


def _open_null(number: int, mode: int) -> None:
    """Make the null device this descriptor."""
    opened = os.open(os.devnull, mode)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
