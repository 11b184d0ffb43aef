"""Commands for the audit log: `taskgate audit verify`, `ref` and `schema`.

Each returns the text for the operator and an exit status. 0 is success, 1 a changed log, and 2 a log
that cannot be verified. `telemetry.auditlog.verification` has the rules of an intact log.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from taskgate.auth.key_file import KeyFileRefused, read_keys
from taskgate.telemetry.auditlog.chain import KeyRing, SigningKeyError, parse_line
from taskgate.telemetry.auditlog.formats.digests import task_ref
from taskgate.telemetry.auditlog.formats.schema import schema_text
from taskgate.telemetry.auditlog.sinks import HEAD_SUFFIX, TORN_SUFFIX
from taskgate.telemetry.auditlog.verification import ChainVerdict, ChainVerifier, read_checkpoints
from taskgate.wiring.observability import read_pem

INTACT: Final = 0
CHANGED: Final = 1
UNUSABLE: Final = 2
_MAX_FINDINGS: Final = 50
"""Findings that are listed; the others are counted."""
_PEM: Final = b"-----BEGIN"


class CommandOutput(NamedTuple):
    """The text to print, and the exit status."""

    text: str
    status: int


class _Unusable(Exception):
    """An input that cannot be used; the text is for the operator."""


def verify(
    files: Sequence[Path], *, checkpoints: Sequence[Path] = (), keys: Sequence[Path] = (), expected: int | None = None
) -> CommandOutput:
    """Verify that the files, in any order, have a log as it was written.

    `checkpoints` are outputs of other sinks, `keys` files with keys of either kind. The last line
    must have the number `expected` or a higher one.
    """
    skipped = [file for file in files if file.name.endswith((HEAD_SUFFIX, TORN_SUFFIX))]
    try:
        ring = _key_ring(keys)
        witnesses = [witness for file in checkpoints for witness in read_checkpoints(str(file), _lines(file))]
        ordered = sorted((file for file in files if file not in skipped), key=_first_number)
        verification = ChainVerifier(ring, witnesses)
        for file in ordered:
            verification.read(str(file), _lines(file))
    except _Unusable as refusal:
        return CommandOutput(f"{refusal}\n", UNUSABLE)
    found = verification.verdict(expected=expected)
    text = "".join(f"{line}\n" for line in (*_findings(found), *_skipped(skipped), _summary(found, len(ordered))))
    return CommandOutput(text, CHANGED if found.findings else INTACT)


def ref(task: str, key: Path) -> CommandOutput:
    """Return the reference of a task id in the log: a line for each key, the current one first."""
    try:
        current, previous = read_keys(key, of="the audit log")
    except KeyFileRefused as refusal:
        return CommandOutput(f"{key}: {refusal}\n", UNUSABLE)
    keys = [current] if previous is None else [current, previous]
    return CommandOutput("".join(f"{task_ref(each, task)}\n" for each in keys), INTACT)


def schema() -> CommandOutput:
    """Return the JSON Schema of lines."""
    return CommandOutput(schema_text(), INTACT)


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
