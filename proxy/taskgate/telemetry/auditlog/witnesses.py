"""Checkpoints of a log that were kept elsewhere: in another sink's output, among whatever else that holds."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from taskgate.telemetry.auditlog.chain import CHECKPOINT, Head, read_own, unsigned


class Witness(NamedTuple):
    """What a checkpoint says: how the chain of a sink ended. `signed` and what follows are its own signature."""

    place: str
    sink: str
    node: str
    head: Head
    signed: bytes
    key: str
    signature: str


def witnesses_in(name: str, lines: Iterable[bytes]) -> Iterator[Witness]:
    """Every checkpoint among the lines of a file; what is none is passed over."""
    for number, line in enumerate(map(bytes.strip, lines), 1):
        own = read_own(line) if CHECKPOINT.encode() in line else None
        if own is None or own["event"] != CHECKPOINT:
            continue
        said, signed = own.get("data"), unsigned(line)
        if not isinstance(said, dict) or signed is None or not isinstance(said.get("seq"), int):
            continue
        head = Head(said["seq"], str(said.get("head")))
        yield Witness(f"{name}:{number}", str(said.get("sink")), str(own.get("node")), head, *signed)
