"""A log in a file: lines of one chain, and the names of what stands beside it."""

from collections.abc import Callable
from pathlib import Path

from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN, Chain, ChainHead
from taskgate.telemetry.auditlog.signing import HmacSigner
from taskgate.telemetry.auditlog.sinks import FileSink

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
