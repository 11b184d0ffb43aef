"""The check of a written log: `ChainVerifier` reads it and gives a `ChainVerdict`.

It finds lines that were changed, removed, inserted or reordered. A *finding* is a proven fault. A
*doubt* is what could not be checked. Checkpoints from the output of another sink
(`ExternalCheckpoint`) show what was cut off at the end.

A chain has one sequence of numbers, from 1. The gateway writes `audit.chain_started` at each start,
in each new file and after lost lines. Such a line continues the chain: only the very first one has
number 1. `cli.audit` reads the files of one log in order, then asks for the verdict.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from taskgate.telemetry.auditlog.chain import (
    CHAIN_STARTED,
    CHECKPOINT,
    GENESIS,
    SIGNED_EVENTS,
    ChainHead,
    KeyRing,
    digest_of,
    parse_line,
    split_signature,
)
from taskgate.telemetry.auditlog.formats.redaction import printable


class ExternalCheckpoint(NamedTuple):
    """A checkpoint in the output of another sink: the head of a chain, signed.

    `place` is where it was found. `sink` and `node` name the chain. `signed` is the text that the
    signature covers.
    """

    place: str
    sink: str
    node: str
    head: ChainHead
    signed: bytes
    key: str
    signature: str


def read_checkpoints(name: str, lines: Iterable[bytes]) -> Iterator[ExternalCheckpoint]:
    """The checkpoints among the lines of a file; other lines are skipped."""
    for number, line in enumerate(map(bytes.strip, lines), 1):
        parsed = parse_line(line) if CHECKPOINT.encode() in line else None
        if parsed is None or parsed["event"] != CHECKPOINT:
            continue
        data, signed = parsed.get("data"), split_signature(line)
        if not isinstance(data, dict) or signed is None or not isinstance(data.get("seq"), int):
            continue
        head = ChainHead(data["seq"], str(data.get("head")))
        yield ExternalCheckpoint(f"{name}:{number}", str(data.get("sink")), str(parsed.get("node")), head, *signed)


_MAX_KEY_ID: Final = 32


class ChainFinding(NamedTuple):
    """A proven fault, and its place: a file and a line number, or "the log".

    `says` continues a sentence that begins with the place.
    """

    place: str
    says: str

    def __str__(self) -> str:
        return f"{self.place}: {self.says}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainVerdict:
    """The result. `first` and `last` are numbers of lines in the chain, None without lines.

    `lines` counts all lines read, also unreadable ones. `doubts` say what could not be checked.
    `sinks` are the sinks that the log names, each with its node.
    """

    lines: int
    first: int | None
    last: int | None
    findings: tuple[ChainFinding, ...]
    doubts: tuple[str, ...]
    sinks: tuple[str, ...] = ()


class _Line(NamedTuple):
    place: str
    head: ChainHead


class ChainVerifier:
    """The reader of the files of one log in their order, which then gives a verdict.

    - `_wanted`: the numbers of the lines that checkpoints confirm.
    - `_seen`: the digests of these lines in the log, by number. A number may occur twice.
    - `_sinks`, `_nodes`: the names in the log, to find the checkpoints that are about it.
    - `_started`: the sinks with their nodes, as text for the verdict, in order.
    - `_first`: the number of the first line; `_last`: the last line.
    - `_last_signed`: the number of the last line with a valid signature.
    - `_unchained`: the number of lines without a link (`prev`).
    - `_unchecked`: the number of signatures that no key was given for, by key.
    """

    def __init__(self, ring: KeyRing, checkpoints: Iterable[ExternalCheckpoint] = ()) -> None:
        """`ring` may be empty; `checkpoints` are from the output of other sinks."""
        self._ring = ring
        self._checkpoints = tuple(checkpoints)
        self._wanted = frozenset(each.head.seq for each in self._checkpoints)
        self._seen: dict[int, set[str]] = {}
        self._sinks: set[str] = set()
        self._nodes: set[str] = set()
        self._started: dict[str, None] = {}
        self._findings: list[ChainFinding] = []
        self._doubts: list[str] = []
        self._last: _Line | None = None
        self._first: int | None = None
        self._lines = 0
        self._last_signed: int | None = None
        self._unchained = 0
        self._unchecked: Counter[str] = Counter()

    def read(self, name: str, lines: Iterable[bytes]) -> None:
        """Check the lines of a file, each with its newline."""
        for number, line in enumerate(lines, 1):
            place = f"{name}:{number}"
            if not line.endswith(b"\n"):
                self._add_finding(place, "is incomplete: it has no newline")
            self._check(place, line.removesuffix(b"\n"))

    def verdict(self, *, expected: int | None = None) -> ChainVerdict:
        """The verdict on all lines read.

        `expected` is the least number that the last line must have.
        """
        last = None if self._last is None else self._last.head.seq
        findings, doubts = list(self._findings), list(self._doubts)
        if last is None:
            # Also if no line could be read.
            findings.append(ChainFinding("the log", "has no lines"))
        elif expected is not None and last < expected:
            findings.append(ChainFinding("the log", f"ends with line {last}, but must have at least {expected}"))
        if self._unchained:
            # Only a chained log has a key or checkpoints. Without them, this one may never have been
            # chained.
            unchained = ChainFinding(
                "the log", f"{self._unchained} lines are not chained: anyone could have written them"
            )
            if self._ring or self._checkpoints:
                findings.append(unchained)
            else:
                doubts.append(unchained.says)
        self._compare_checkpoints(last or 0, findings, doubts)
        doubts += self._unproven(last or 0, has_end=expected is not None or bool(self._checkpoints))
        return ChainVerdict(
            lines=self._lines,
            first=self._first,
            last=last,
            findings=tuple(findings),
            doubts=tuple(doubts),
            sinks=tuple(self._started),
        )

    # --- each line -----------------------------------------------------------------------------------------------

    def _check(self, place: str, line: bytes) -> None:
        self._lines += 1
        parsed = parse_line(line)
        if parsed is None:
            self._add_finding(place, "is not an audit log line")
            return
        # None is the `prev` of a log that is not chained.
        seq, prev = parsed["seq"], parsed.get("prev")
        self._check_link(place, parsed, prev)
        if prev is None:
            self._unchained += 1
        elif parsed["event"] in SIGNED_EVENTS or _has_signature(parsed):
            self._check_signature(place, line, seq)
        head = ChainHead(seq, digest_of(line))
        if seq in self._wanted:
            self._seen.setdefault(seq, set()).add(head.digest)
        self._nodes.add(str(parsed.get("node")))
        if parsed["event"] == CHAIN_STARTED:
            sink = str(parsed["data"].get("sink")) if isinstance(parsed.get("data"), dict) else ""
            self._sinks.add(sink)
            self._started[f"{printable(sink)} on {printable(str(parsed.get('node')))}"] = None
        self._last = _Line(place, head)

    def _check_link(self, place: str, parsed: dict[str, Any], prev: object) -> None:
        """Check the number and the link of a line against the line before it."""
        seq, starts, last = parsed["seq"], parsed["event"] == CHAIN_STARTED, self._last
        if last is None:
            self._check_start(place, seq, starts, prev)
        elif seq == 1 and starts and prev in (GENESIS, None):
            # A later start has a higher number, and is checked as any other line.
            self._add_finding(place, "starts another chain: lines may be missing before it")
        elif seq > last.head.seq + 1:
            self._add_finding(place, f"lines {last.head.seq + 1} to {seq - 1} of the chain are missing before it")
        elif seq <= last.head.seq:
            self._add_finding(place, f"is line {seq} of the chain, but line {last.head.seq + 1} is expected here")
        elif prev is not None and prev != last.head.digest:
            self._add_finding(last.place, "was changed, or the line after it was")

    def _check_start(self, place: str, seq: int, starts: bool, prev: object) -> None:
        """Check the first line: it must start a chain, or continue one at the start of a file."""
        self._first = seq
        if not starts:
            self._add_finding(place, "does not start a chain: lines before it are missing")
        elif seq == 1 and prev not in (GENESIS, None):
            self._add_finding(place, "is the first line of the chain, but links to an earlier line")
        elif seq > 1:
            # The older files may have been removed by the operator.
            self._doubts.append(f"lines 1 to {seq - 1} of the chain are not in these files")

    def _check_signature(self, place: str, line: bytes, seq: int) -> None:
        """Check the signature of a line that must have one, or has one."""
        signed = split_signature(line)
        if signed is None:
            self._add_finding(place, "has no signature, or is not in its canonical form")
            return
        text, key, signature = signed
        if not self._ring:
            self._unchecked[_key_name(key)] += 1
        elif not self._ring.has(key):
            # A forger can sign with another key.
            self._add_finding(place, f"is signed with key {_key_name(key)}, which is not among the given keys")
        elif self._ring.is_valid(key, text, signature):
            self._last_signed = seq
        else:
            self._add_finding(place, "has an invalid signature")

    def _add_finding(self, place: str, says: str) -> None:
        self._findings.append(ChainFinding(place, says))

    # --- the whole log -------------------------------------------------------------------------------------------

    def _compare_checkpoints(self, last: int, findings: list[ChainFinding], doubts: list[str]) -> None:
        """Compare the log with the checkpoints of other sinks."""
        about = [each for each in self._checkpoints if each.sink in self._sinks and each.node in self._nodes]
        early = 0
        for each in about:
            seq, digest = each.head
            if not self._is_genuine(each, findings):
                continue
            if seq > last:
                findings.append(ChainFinding(each.place, f"confirms line {seq}, but the log ends with line {last}"))
            elif seq < (self._first or 0):
                early += 1
            elif digest not in self._seen.get(seq, ()):
                findings.append(ChainFinding(each.place, f"confirms another line {seq} than the log has"))
        if early:
            doubts.append(f"{early} checkpoints cover lines that are not in these files")
        if self._checkpoints and not about:
            # Another log, for example of another sink, may be an intact chain too.
            findings.append(ChainFinding("the log", "is not covered by the given checkpoints"))

    def _is_genuine(self, checkpoint: ExternalCheckpoint, findings: list[ChainFinding]) -> bool:
        """Whether a checkpoint has a valid signature; else adds a finding. True without any key."""
        if not self._ring:
            return True
        if not self._ring.has(checkpoint.key):
            findings.append(
                ChainFinding(
                    checkpoint.place,
                    f"is signed with key {_key_name(checkpoint.key)}, which is not among the given keys",
                )
            )
            return False
        if not self._ring.is_valid(checkpoint.key, checkpoint.signed, checkpoint.signature):
            findings.append(ChainFinding(checkpoint.place, "has an invalid signature"))
            return False
        return True

    def _unproven(self, last: int, *, has_end: bool) -> list[str]:
        """The doubts about signatures and the end. `has_end` is whether something shows the end."""
        found = []
        unchecked = ", ".join(f"{count} with key {key}" for key, count in self._unchecked.items())
        if unchecked:
            found.append(
                f"signatures, because no key was given ({unchecked}): "
                "anyone who can write the files could have rewritten the whole log"
            )
        elif self._ring and self._lines > self._unchained and (self._last_signed or 0) < last:
            found.append(
                f"lines {(self._last_signed or 0) + 1} to {last}, after the last signature: "
                "anyone who can write the files could have changed or added them"
            )
        if self._lines and not has_end:
            found.append("whether lines were cut off at the end: give --checkpoint or --expect-seq")
        return found


def _key_name(key: str) -> str:
    """A printable id of a key: a forged line may have any text there."""
    return str(printable(key, _MAX_KEY_ID))


def _has_signature(parsed: dict[str, Any]) -> bool:
    return isinstance(parsed.get("data"), dict) and "signature" in parsed["data"]
