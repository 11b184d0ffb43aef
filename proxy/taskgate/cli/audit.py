"""The work of the `audit` commands: `verify`, `ref` (the reference of a task) and `schema` (of the lines).

Exit status 0 is success, 1 a changed log, and 2 a log that cannot be verified.
`telemetry.auditlog.verification` has the rules of an intact log.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import click

from taskgate.auth.key_file import KeyFileRefused, read_keys
from taskgate.cli.exits import fail
from taskgate.telemetry.auditlog.chain import KeyRing, SigningKeyError, parse_line
from taskgate.telemetry.auditlog.formats.digests import task_ref
from taskgate.telemetry.auditlog.formats.schema import schema_text
from taskgate.telemetry.auditlog.sinks import HEAD_SUFFIX, TORN_SUFFIX
from taskgate.telemetry.auditlog.verification import ChainVerdict, ChainVerifier, read_checkpoints
from taskgate.wiring.observability import read_pem

CHANGED: Final = 1
UNUSABLE: Final = 2
_MAX_FINDINGS: Final = 50
"""Findings that are listed; the others are counted."""
_PEM: Final = b"-----BEGIN"


class _Unusable(Exception):
    """An input that cannot be used; the text is for the operator."""


def verify_log(
    files: tuple[Path, ...], checkpoints: tuple[Path, ...], keys: tuple[Path, ...], expected: int | None
) -> None:
    """Print what is wrong with the lines of a log, and a summary."""
    skipped = [file for file in files if file.name.endswith((HEAD_SUFFIX, TORN_SUFFIX))]
    try:
        ring = _key_ring(keys)
        witnesses = [witness for file in checkpoints for witness in read_checkpoints(str(file), _lines(file))]
        ordered = sorted((file for file in files if file not in skipped), key=_first_number)
        verification = ChainVerifier(ring, witnesses)
        for file in ordered:
            verification.read(str(file), _lines(file))
    except _Unusable as refusal:
        fail(refusal, UNUSABLE)
    found = verification.verdict(expected=expected)
    click.echo("\n".join((*_findings(found), *_skipped(skipped), _summary(found, len(ordered)))))
    if found.findings:
        sys.exit(CHANGED)


def print_ref(task: str, key: Path) -> None:
    """Print the references of a task id, under each key of a file."""
    try:
        current, previous = read_keys(key, of="the audit log")
    except KeyFileRefused as refusal:
        fail(_Unusable(f"{key}: {refusal}"), UNUSABLE)
    # The reference under the current key comes first.
    for each in (current,) if previous is None else (current, previous):
        click.echo(task_ref(each, task))


def print_line_schema() -> None:
    """Print the JSON Schema of a line."""
    click.echo(schema_text(), nl=False)


def _findings(found: ChainVerdict) -> Iterable[str]:
    yield from map(str, found.findings[:_MAX_FINDINGS])
    if len(found.findings) > _MAX_FINDINGS:
        yield f"and {len(found.findings) - _MAX_FINDINGS} more findings"
    yield from (f"not checked: {doubt}" for doubt in found.doubts)


def _skipped(files: Sequence[Path]) -> Iterable[str]:
    yield from (f"not read: {file} stands beside a log and is none" for file in files)


def _summary(found: ChainVerdict, files: int) -> str:
    held = "no lines" if found.first is None else f"{found.lines} lines, {found.first} to {found.last} of the chain"
    whose = f" of {', '.join(found.sinks)}" if found.sinks else ""
    what = f"{held}{whose}, in {files} file{'' if files == 1 else 's'}"
    return f"NOT INTACT: {len(found.findings)} findings; {what}" if found.findings else f"intact: {what}"


def _key_ring(files: Iterable[Path]) -> KeyRing:
    keys: list[bytes] = []
    pems: list[bytes] = []
    for file in files:
        try:
            pem = read_pem(file)
            if _PEM in pem:
                # Read alone first, so that a refusal names its file.
                KeyRing(pems=(pem,))
                pems.append(pem)
            else:
                keys += [key for key in read_keys(file, of="the audit log") if key is not None]
        except (KeyFileRefused, SigningKeyError) as refusal:
            raise _Unusable(f"{file}: {refusal}") from None
    return KeyRing(keys=tuple(keys), pems=tuple(pems))


def _first_number(file: Path) -> int:
    """Return the number of the first line, which orders the files; 0 for a file without one."""
    own = next((parse_line(line.strip()) for line in _lines(file)), None)
    return 0 if own is None else int(own["seq"])


def _lines(file: Path) -> Iterable[bytes]:
    try:
        with file.open("rb") as opened:
            yield from opened
    except OSError as error:
        raise _Unusable(f"{file}: cannot be read: {error.strerror}") from None
