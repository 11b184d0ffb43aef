"""Audit logs in files: settings, events and verdicts for tests, and a disk that fails on demand."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from helpers.manual_clock import ManualClock
from helpers.waiting import PATIENCE, bounded
from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN, Chain, ChainHead, HmacSigner, KeyRing
from taskgate.telemetry.auditlog.formats.renderer import native_part
from taskgate.telemetry.auditlog.log import AuditLog
from taskgate.telemetry.auditlog.settings import AuditSettings, SinkSettings
from taskgate.telemetry.auditlog.sinks import FileSink
from taskgate.telemetry.auditlog.verification import ChainVerdict, ChainVerifier, read_checkpoints
from taskgate.telemetry.events import Event, GatewayPhaseChanged
from taskgate.telemetry.request_context import current
from taskgate.telemetry.ring import EventRing
from unit.telemetry.auditlog.audit_cases import Ended, ended

KEY: Final = b"k" * 32
RING: Final = KeyRing(keys=(KEY,))

_Kind = TypeVar("_Kind")


class Heard(EventRing):
    """A ring that remembers what the log itself emits."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(self.clock)
        self.emitted: list[Any] = []

    def emit(self, event: Event) -> None:
        self.emitted.append(event)

    def tell(self, event: Event | Ended) -> None:
        """Emit an event of the gateway."""
        super().emit(ended(current(), event) if isinstance(event, Ended) else event)

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        return [event for event in self.emitted if isinstance(event, kind)]


class ToldLog(AuditLog):
    """A log on a manual clock; `emit` tells it of an event of the gateway."""

    def __init__(self, wanted: AuditSettings, heard: Heard | None = None, **how: Any) -> None:
        heard = heard or Heard()
        self.clock = heard.clock
        super().__init__(wanted, event_sink=heard, clock=heard.clock, block_of=str, **how)
        self.emit, self._ring = heard.tell, heard

    def depths(self) -> dict[tuple[str], int]:
        self._ring.fold()
        return super().depths()

    async def open(self) -> None:
        self._ring.start()
        await super().open()

    async def close(self) -> None:
        await super().close()
        self._ring.stop()


class ScriptedOs:
    """The module `os` for a sink, whose `write` and `ftruncate` fail on demand; `write` waits for `gate`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.is_held_up = False
        self.writes: list[int] = []
        self.syncs = 0
        self.room: int | None = None
        self.fails_to_cut = False
        self.fails_for: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, fd: int, text: bytes) -> int:
        self.is_held_up = not self.gate.is_set()
        assert self.gate.wait(PATIENCE)
        if self.fails_for == os.fstat(fd).st_ino:
            raise OSError(errno.EIO, "Input/output error")
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            text = text[: self.room]
            self.room -= len(text)
        self.writes.append(len(text))
        return os.write(fd, text)

    def ftruncate(self, fd: int, length: int) -> None:
        if self.fails_to_cut:
            raise OSError(errno.EIO, "Input/output error")
        os.ftruncate(fd, length)

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        os.fdatasync(fd)


def settings(*sinks: SinkSettings, **changes: Any) -> AuditSettings:
    """Those of a log with these sinks."""
    return AuditSettings(**{"sinks": sinks, "key": KEY, "node": "gw-1", **changes})


def to_file(folder: Path, **changes: Any) -> SinkSettings:
    """A sink in a file of the folder."""
    return SinkSettings(**{"name": "file", "path": folder / "audit.jsonl", **changes})


@asynccontextmanager
async def opened(wanted: AuditSettings, heard: Heard | None = None, **how: Any) -> AsyncIterator[ToldLog]:
    """A log that is open for a block."""
    log = ToldLog(wanted, heard, **how)
    async with bounded():
        await log.open()
    try:
        yield log
    finally:
        async with bounded():
            await log.close()


async def keep(wanted: AuditSettings, emitted: Iterable[Event], **how: Any) -> None:
    """Open a log, have it told, and close it."""
    async with opened(wanted, **how) as log:
        for event in emitted:
            log.emit(event)


def moved(*phases: str) -> list[Event]:
    """Events that are one line each, and nobody's."""
    return [GatewayPhaseChanged(phase, "1.0", 7) for phase in phases]


def many(count: int) -> list[Event]:
    """So many of them."""
    return moved(*(["started"] * count))


def own_lines(file: Path) -> list[dict[str, Any]]:
    """What is ours of each line of a file, whatever the format."""
    owns = [native_part(orjson.loads(line)) for line in file.read_bytes().splitlines()]
    assert all(own is not None for own in owns)
    return [own for own in owns if own is not None]


def names(file: Path) -> list[str]:
    """The events of a file's lines."""
    return [own["event"] for own in own_lines(file)]


def verified(
    *files: Path, ring: KeyRing = RING, elsewhere: Iterable[Path] = (), expected: int | None = None
) -> ChainVerdict:
    """The verdict on files, in their order."""
    witnesses = [each for file in elsewhere for each in read_checkpoints(file.name, file.read_bytes().splitlines())]
    verification = ChainVerifier(ring, witnesses)
    for file in files:
        verification.read(file.name, file.read_bytes().splitlines(keepends=True))
    return verification.verdict(expected=expected)


def found_in(*files: Path, **how: Any) -> list[str]:
    """What is wrong with files."""
    return [str(finding) for finding in verified(*files, **how).findings]


async def turns(predicate: Callable[[], object]) -> None:
    """Wait until it is true, a few milliseconds at a time: another thread is at work."""
    async with bounded():
        while not predicate():
            await asyncio.sleep(0.001)


async def fill(log: AuditLog, system: ScriptedOs, count: int) -> None:
    """Have so many lines wait, behind a write that does not end."""
    system.gate.clear()
    for event in many(count):
        log.emit(event)
    await asyncio.sleep(0)


async def switch(log: AuditLog, wanted: AuditSettings) -> None:
    """Have other settings."""
    async with bounded():
        log.switch(await log.prepare(wanted))


# --- lines of one chain ----------------------------------------------------------------------------------------------


Sinks = Callable[..., FileSink]


class Lines:
    """Lines of one chain, one after the other."""

    def __init__(self) -> None:
        self.chain = Chain(EMPTY_CHAIN, HmacSigner(b"k" * 32))

    def __call__(self, count: int = 1) -> bytes:
        return b"".join(self.chain.add({"v": 1, "event": "task.created", "data": {}}) for _ in range(count))

    @property
    def head(self) -> ChainHead:
        return self.chain.head


def write_and_close(sink: FileSink, payload: bytes, head: ChainHead) -> None:
    """As a process that ends well."""
    sink.open()
    sink.put(payload)
    sink.sync(head)
    sink.close()


def beside(path: Path, suffix: str) -> Path:
    """What stands beside a file, with this behind its name."""
    return path.with_name(path.name + suffix)


def aside(path: Path) -> list[str]:
    """The names of what was put aside."""
    return sorted(each.name for each in path.parent.iterdir() if each.name.startswith(f"{path.name}.0"))
