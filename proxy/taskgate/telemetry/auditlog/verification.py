"""The check of a written log: `ChainVerifier`."""

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
    digest_of,
    parse_line,
    split_signature,
)
from taskgate.telemetry.auditlog.formats.redaction import printable
from taskgate.telemetry.auditlog.signing import KeyRing


class ExternalCheckpoint(NamedTuple):
    """What a checkpoint says: how the chain of a sink ended. `signed` and what follows are its own signature."""

    place: str
    sink: str
    node: str
    head: ChainHead
    signed: bytes
    key: str
    signature: str


def read_checkpoints(name: str, lines: Iterable[bytes]) -> Iterator[ExternalCheckpoint]:
    """Every checkpoint among the lines of a file; what is none is passed over."""
    for number, line in enumerate(map(bytes.strip, lines), 1):
        own = parse_line(line) if CHECKPOINT.encode() in line else None
        if own is None or own["event"] != CHECKPOINT:
            continue
        said, signed = own.get("data"), split_signature(line)
        if not isinstance(said, dict) or signed is None or not isinstance(said.get("seq"), int):
            continue
        head = ChainHead(said["seq"], str(said.get("head")))
        yield ExternalCheckpoint(f"{name}:{number}", str(said.get("sink")), str(own.get("node")), head, *signed)


_MAX_KEY_ID: Final = 32


class ChainFinding(NamedTuple):
    """What is wrong, and where: a file and the number of a line in it, or what else was given."""

    place: str
    says: str

    def __str__(self) -> str:
        return f"{self.place}: {self.says}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainVerdict:
    """What was found. `first` and `last` are numbers of lines in the chain, None where there is no line.

    `doubts` is what could not be checked; `sinks` are those that the log says it is of, each with its node.
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
    """Reads the files of one log in their order, then gives a verdict."""

    def __init__(self, ring: KeyRing, witnesses: Iterable[ExternalCheckpoint] = ()) -> None:
        """`ring` may be empty; `witnesses` are checkpoints that were kept elsewhere."""
        self._ring = ring
        self._witnesses = tuple(witnesses)
        self._asked = frozenset(each.head.seq for each in self._witnesses)
        self._seen: dict[int, set[str]] = {}
        self._sinks: set[str] = set()
        self._nodes: set[str] = set()
        self._begun: dict[str, None] = {}
        self._findings: list[ChainFinding] = []
        self._doubts: list[str] = []
        self._last: _Line | None = None
        self._first: int | None = None
        self._lines = 0
        self._vouched: int | None = None
        self._unchained = 0
        self._unchecked: Counter[str] = Counter()

    def read(self, name: str, lines: Iterable[bytes]) -> None:
        """Check the lines of a file, each with its newline."""
        for number, line in enumerate(lines, 1):
            place = f"{name}:{number}"
            if not line.endswith(b"\n"):
                self._find(place, "is not whole: it has no newline")
            self._check(place, line.removesuffix(b"\n"))

    def verdict(self, *, expected: int | None = None) -> ChainVerdict:
        """What was found in all of it. `expected` is the number that the last line has at least."""
        last = None if self._last is None else self._last.head.seq
        findings, doubts = list(self._findings), list(self._doubts)
        if last is None:
            findings.append(ChainFinding("the log", "holds no line"))
        elif expected is not None and last < expected:
            findings.append(ChainFinding("the log", f"ends with line {last}, and had {expected} at least"))
        if self._unchained:
            # Whoever has a key or a checkpoint knows of a chain.
            unchained = ChainFinding("the log", f"{self._unchained} lines are not chained: they could be anybody's")
            if self._ring or self._witnesses:
                findings.append(unchained)
            else:
                doubts.append(unchained.says)
        self._ask_witnesses(last or 0, findings, doubts)
        doubts += self._beyond(last or 0, has_end=expected is not None or bool(self._witnesses))
        return ChainVerdict(
            lines=self._lines,
            first=self._first,
            last=last,
            findings=tuple(findings),
            doubts=tuple(doubts),
            sinks=tuple(self._begun),
        )

    # --- one line after the other --------------------------------------------------------------------------------

    def _check(self, place: str, line: bytes) -> None:
        self._lines += 1
        own = parse_line(line)
        if own is None:
            self._find(place, "is no line of an audit log")
            return
        seq, prev = own["seq"], own.get("prev")
        self._tie(place, own, prev)
        if prev is None:
            self._unchained += 1
        elif own["event"] in SIGNED_EVENTS or _has_signature(own):
            self._check_signature(place, line, seq)
        head = ChainHead(seq, digest_of(line))
        if seq in self._asked:
            self._seen.setdefault(seq, set()).add(head.digest)
        self._nodes.add(str(own.get("node")))
        if own["event"] == CHAIN_STARTED:
            sink = str(own["data"].get("sink")) if isinstance(own.get("data"), dict) else ""
            self._sinks.add(sink)
            self._begun[f"{printable(sink)} on {printable(str(own.get('node')))}"] = None
        self._last = _Line(place, head)

    def _tie(self, place: str, own: dict[str, Any], prev: object) -> None:
        """Whether the line belongs behind the one before it."""
        seq, starts, last = own["seq"], own["event"] == CHAIN_STARTED, self._last
        if last is None:
            self._begin(place, seq, starts, prev)
        elif seq == 1 and starts and prev in (GENESIS, None):
            self._find(place, "begins another chain: what belongs behind the line before it is not known")
        elif seq > last.head.seq + 1:
            self._find(place, f"lines {last.head.seq + 1} to {seq - 1} of the chain are missing before it")
        elif seq <= last.head.seq:
            self._find(place, f"is line {seq} of the chain, and stands where {last.head.seq + 1} belongs")
        elif prev is not None and prev != last.head.digest:
            self._find(last.place, "was changed, or the line behind it was")

    def _begin(self, place: str, seq: int, starts: bool, prev: object) -> None:
        self._first = seq
        if not starts:
            self._find(place, "is no beginning of a chain: lines before it are missing")
        elif seq == 1 and prev not in (GENESIS, None):
            self._find(place, "is the first line of the chain, and tied to another")
        elif seq > 1:
            self._doubts.append(f"lines 1 to {seq - 1} of the chain are not here")

    def _check_signature(self, place: str, line: bytes, seq: int) -> None:
        signed = split_signature(line)
        if signed is None:
            self._find(place, "is not signed as it was written")
            return
        text, key, signature = signed
        if not self._ring:
            self._unchecked[_key_name(key)] += 1
        elif not self._ring.has(key):
            # Anybody has a key of their own.
            self._find(place, f"is signed with key {_key_name(key)}, which was not given")
        elif self._ring.is_valid(key, text, signature):
            self._vouched = seq
        else:
            self._find(place, "has a signature that is not good")

    def _find(self, place: str, says: str) -> None:
        self._findings.append(ChainFinding(place, says))

    # --- all of it -----------------------------------------------------------------------------------------------

    def _ask_witnesses(self, last: int, findings: list[ChainFinding], doubts: list[str]) -> None:
        """What checkpoints that were kept elsewhere say about it."""
        about = [each for each in self._witnesses if each.sink in self._sinks and each.node in self._nodes]
        early = 0
        for each in about:
            seq, digest = each.head
            if not self._counts(each, findings):
                continue
            if seq > last:
                findings.append(ChainFinding(each.place, f"knows of line {seq}; the log ends with {last}"))
            elif seq < (self._first or 0):
                early += 1
            elif digest not in self._seen.get(seq, ()):
                findings.append(ChainFinding(each.place, f"knows line {seq} as another one than the log has"))
        if early:
            doubts.append(f"{early} checkpoints are about lines that are not here")
        if self._witnesses and not about:
            # Another log, such as that of another sink, may be as good a chain.
            findings.append(ChainFinding("the log", "is none that the checkpoints given are about"))

    def _counts(self, witness: ExternalCheckpoint, findings: list[ChainFinding]) -> bool:
        """Whether a checkpoint counts: a forged one does not, and is told."""
        if not self._ring:
            return True
        if not self._ring.has(witness.key):
            findings.append(
                ChainFinding(witness.place, f"is signed with key {_key_name(witness.key)}, which was not given")
            )
            return False
        if not self._ring.is_valid(witness.key, witness.signed, witness.signature):
            findings.append(ChainFinding(witness.place, "has a signature that is not good"))
            return False
        return True

    def _beyond(self, last: int, *, has_end: bool) -> list[str]:
        """What a chain does not show."""
        found = []
        unchecked = ", ".join(f"{count} with key {key}" for key, count in self._unchecked.items())
        if unchecked:
            found.append(
                f"signatures, since no key was given ({unchecked}): "
                "whoever can write the files could have written the log anew"
            )
        elif self._ring and self._lines > self._unchained and (self._vouched or 0) < last:
            found.append(
                f"lines {(self._vouched or 0) + 1} to {last} are behind the last signature: "
                "whoever can write the files could have changed or added them"
            )
        if self._lines and not has_end:
            found.append("lines cut off at the end: give --checkpoint or --expect-seq")
        return found


def _key_name(key: str) -> str:
    """The id of a key, of which whoever wrote the line may have made anything."""
    return str(printable(key, _MAX_KEY_ID))


def _has_signature(own: dict[str, Any]) -> bool:
    return isinstance(own.get("data"), dict) and "signature" in own["data"]
