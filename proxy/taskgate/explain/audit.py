"""The audit log on the command line: `taskgate audit verify`, `ref` and `schema`.

Each gives the text for the operator and an exit status: 0 all is well, 1 the log was changed, 2 it could not be looked
at. What must not live here: what makes a log intact (`telemetry.auditlog.verification`), and the command line itself.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from taskgate.auth.keyfile import KeyFileRefused, read_keys
from taskgate.telemetry.auditlog.chain import parse_line
from taskgate.telemetry.auditlog.formats.digests import task_ref
from taskgate.telemetry.auditlog.formats.schema import schema_text
from taskgate.telemetry.auditlog.signing import KeyRing, SigningKeyError
from taskgate.telemetry.auditlog.sinks import HEAD_SUFFIX, TORN_SUFFIX
from taskgate.telemetry.auditlog.verification import ChainVerdict, ChainVerifier, read_checkpoints
from taskgate.wiring.auditing import read_pem

INTACT: Final = 0
CHANGED: Final = 1
UNUSABLE: Final = 2
_MOST: Final = 50
"""Findings that are told one by one."""
_PEM: Final = b"-----BEGIN"


class ExplainReport(NamedTuple):
    """What to print, and with which status to end."""

    text: str
    status: int


class _Unusable(Exception):
    """Something that was given cannot be used; the text is for the operator."""


def verify(
    files: Sequence[Path], *, checkpoints: Sequence[Path] = (), keys: Sequence[Path] = (), expected: int | None = None
) -> ExplainReport:
    """Whether the files, whatever their order, hold a log as it was written.

    `checkpoints` are outputs of other sinks, `keys` files with keys of either kind, `expected` a number that the last
    line has at least.
    """
    passed_over = [file for file in files if file.name.endswith((HEAD_SUFFIX, TORN_SUFFIX))]
    try:
        ring = _ring(keys)
        witnesses = [witness for file in checkpoints for witness in read_checkpoints(str(file), _lines(file))]
        ordered = sorted((file for file in files if file not in passed_over), key=_first)
        verification = ChainVerifier(ring, witnesses)
        for file in ordered:
            verification.read(str(file), _lines(file))
    except _Unusable as refusal:
        return ExplainReport(f"{refusal}\n", UNUSABLE)
    found = verification.verdict(expected=expected)
    text = "".join(f"{line}\n" for line in (*_told(found), *_passed_over(passed_over), _summary(found, len(ordered))))
    return ExplainReport(text, CHANGED if found.findings else INTACT)


def ref(task: str, key: Path) -> ExplainReport:
    """What stands in the log for the id of a task: one line for each key of the file, the present one first."""
    try:
        current, previous = read_keys(key, of="the audit log")
    except KeyFileRefused as refusal:
        return ExplainReport(f"{key}: {refusal}\n", UNUSABLE)
    keys = [current] if previous is None else [current, previous]
    return ExplainReport("".join(f"{task_ref(each, task)}\n" for each in keys), INTACT)


def schema() -> ExplainReport:
    """The JSON Schema of lines."""
    return ExplainReport(schema_text(), INTACT)


def _told(found: ChainVerdict) -> Iterable[str]:
    yield from map(str, found.findings[:_MOST])
    if len(found.findings) > _MOST:
        yield f"and {len(found.findings) - _MOST} more findings"
    yield from (f"not checked: {doubt}" for doubt in found.doubts)


def _passed_over(files: Sequence[Path]) -> Iterable[str]:
    yield from (f"not read: {file} stands beside a log and is none" for file in files)


def _summary(found: ChainVerdict, files: int) -> str:
    held = "no lines" if found.first is None else f"{found.lines} lines, {found.first} to {found.last} of the chain"
    whose = f" of {', '.join(found.sinks)}" if found.sinks else ""
    what = f"{held}{whose}, in {files} file{'' if files == 1 else 's'}"
    return f"NOT INTACT: {len(found.findings)} findings; {what}" if found.findings else f"intact: {what}"


def _ring(files: Iterable[Path]) -> KeyRing:
    keys: list[bytes] = []
    pems: list[bytes] = []
    for file in files:
        try:
            pem = read_pem(file)
            if _PEM in pem:
                # Read on its own first, so that a refusal is about the file that it belongs to.
                KeyRing(pems=(pem,))
                pems.append(pem)
            else:
                keys += [key for key in read_keys(file, of="the audit log") if key is not None]
        except (KeyFileRefused, SigningKeyError) as refusal:
            raise _Unusable(f"{file}: {refusal}") from None
    return KeyRing(keys=tuple(keys), pems=tuple(pems))


def _first(file: Path) -> int:
    """The number of a file's first line, for their order; a file without one is read first."""
    own = next((parse_line(line.strip()) for line in _lines(file)), None)
    return 0 if own is None else int(own["seq"])


def _lines(file: Path) -> Iterable[bytes]:
    try:
        with file.open("rb") as opened:
            yield from opened
    except OSError as error:
        raise _Unusable(f"{file}: cannot be read: {error.strerror}") from None
