"""Logs that ended well, verdicts on them, and what somebody without the key could make of them."""

from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple

import orjson

from taskgate.telemetry.auditlog.chain import (
    CHAIN_STARTED,
    CHECKPOINT,
    EMPTY_CHAIN,
    Chain,
    HmacSigner,
    KeyRing,
    canonical,
    digest_of,
)
from taskgate.telemetry.auditlog.events import internal_event
from taskgate.telemetry.auditlog.formats.renderer import Renderer, native_part
from taskgate.telemetry.auditlog.settings import LineOptions
from taskgate.telemetry.auditlog.verification import ChainVerdict, ChainVerifier, read_checkpoints
from unit.telemetry.auditlog.audit_cases import ANSWERED, events_of, new_context

KEY = b"k" * 32
RING = KeyRing(keys=(KEY,))
NOW = datetime(2026, 11, 21, tzinfo=UTC)
FORMATS = ["native", "ocsf", "ecs"]


class Written(NamedTuple):
    """A log that ended well, and what another sink has of it."""

    lines: list[bytes]
    elsewhere: list[bytes]


def write(form: Any = "native", *, count: int = 8, chained: bool = True) -> Written:
    """A log of so many events between its beginning and its last checkpoint, with one more checkpoint halfway."""
    render = Renderer(LineOptions(format=form), key=KEY, node="gw-1")
    signer = HmacSigner(KEY) if chained else None
    chain, other = Chain(EMPTY_CHAIN, signer), Chain(EMPTY_CHAIN, signer)
    (event,) = events_of(ANSWERED, new_context())

    def checkpoint(to: Chain) -> bytes:
        said = {"sink": "file", "seq": chain.head.seq, "head": chain.head.digest}
        return to.add(render(internal_event(CHECKPOINT, NOW, data=said)))

    def started(to: Chain, sink: str) -> bytes:
        return to.add(render(internal_event(CHAIN_STARTED, NOW, data={"sink": sink, "seq": 0, "head": None})))

    lines, elsewhere = [started(chain, "file")], [started(other, "stdout")]
    for number in range(count):
        lines.append(chain.add(render(event._replace(time=event.time + number * 1_000_000))))
        if number in (count // 2, count - 1):
            lines.append(checkpoint(chain))
            elsewhere.append(checkpoint(other))
    return Written(lines, elsewhere)


def judge(
    lines: list[bytes], *, ring: KeyRing = RING, elsewhere: list[bytes] | None = None, expected: int | None = None
) -> ChainVerdict:
    verification = ChainVerifier(ring, read_checkpoints("stdout", elsewhere or []))
    verification.read("log", lines)
    return verification.verdict(expected=expected)


def is_found(lines: list[bytes], **how: Any) -> bool:
    return bool(judge(lines, **how).findings)


def found(lines: list[bytes], **how: Any) -> list[str]:
    return [str(finding) for finding in judge(lines, **how).findings]


def forge(line: bytes, **changes: Any) -> bytes:
    """The same line with other words in it, written as the gateway would."""
    document = orjson.loads(line)
    own = native_part(document)
    assert own is not None
    own.update(changes)
    return canonical(document) + b"\n"


def chain_anew(lines: list[bytes], start: int) -> list[bytes]:
    """What somebody without the key makes of a log: numbers and digests from there on are as they should be."""
    made = lines[:start]
    for number, line in enumerate(lines[start:], start + 1):
        made.append(forge(line, seq=number, prev=digest_of(made[-1][:-1])))
    return made


def rewrite(lines: list[bytes], chance: Random) -> list[bytes]:
    """One line says something else, in good form, and all behind it is chained anew."""
    at = chance.randrange(len(lines))
    changed = [*lines[:at], forge(lines[at], outcome=f"x{chance.random()}"), *lines[at + 1 :]]
    return chain_anew(changed, at + 1) if at + 1 < len(lines) else changed
