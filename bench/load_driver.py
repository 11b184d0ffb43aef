"""The benchmark's end of the load process: orders go out, counted answers come back."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.failures import BenchFailed
from bench.host import AUTHORIZATION, PATH, Heads
from bench.processes import Program

Body = tuple[str, str]  # a JSON-RPC message before and after its id


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one run went; times in seconds."""

    count: int
    seconds: float
    load_cpu: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrage:
    """What is sent over how many connections, and what every answer must contain (`times` 0: at least once).

    A connection sends one of the bodies, or with `in_turn` those that fall to it one after the other. Where there are
    `tokens`, each request brings the next of them, in place of the one that the sessions have; a request that finds
    none left brings none. With `to_results` each request creates a task, which is looked at once and whose result is
    waited for.
    """

    port: int
    connections: int
    sessions: Sequence[Heads]
    bodies: Sequence[Body]
    marker: str
    times: int = 0
    in_turn: bool = False
    to_results: bool = False
    tokens: Sequence[str] = ()


def body(method: str, params: dict[str, Any]) -> Body:
    """A message with a gap where the id goes."""
    rest = json.dumps({"method": method, "params": params}, separators=(",", ":"))
    return '{"jsonrpc":"2.0","id":', "," + rest[1:]


def _start(*fields: str) -> str:
    return "".join(f"{line}\r\n" for line in (f"POST {PATH} HTTP/1.1", *fields))


def _head(port: int, heads: Heads) -> str:
    lines = [
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        *(f"{name}: {value}" for name, value in heads.items()),
    ]
    return "".join(f"{line}\r\n" for line in lines)


class Load:
    """Connections held by the load process, one fleet at a time."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def open(self, barrage: Barrage) -> None:
        """Open the connections."""
        left_out = AUTHORIZATION if barrage.tokens else ""
        sessions = [{name: heads[name] for name in heads if name != left_out} for heads in barrage.sessions]
        self._tell(
            {
                "do": "open",
                "host": "127.0.0.1",
                "port": barrage.port,
                "connections": barrage.connections,
                "heads": [_head(barrage.port, heads) for heads in sessions],
                "start": _start(),
                "starts": [_start(f"{AUTHORIZATION}: Bearer {token}") for token in barrage.tokens],
                "bodies": barrage.bodies,
                "marker": barrage.marker,
                "times": barrage.times,
                "in_turn": barrage.in_turn,
                "to_results": barrage.to_results,
            }
        )
        self._hear()

    def begin(self, count: int, rate: float = 0.0) -> None:
        """Start sending `count` requests; `rate` a second, or as fast as answers come."""
        self._tell({"do": "run", "count": count, "rate": rate})

    def finish(self) -> Run:
        """Wait for the end of what `begin` started. `BenchFailed` if a single answer was wrong."""
        told = self._hear()
        wrong, complaints = told.pop("wrong"), told.pop("complaints")
        if wrong:
            raise BenchFailed(f"{wrong} of {told['count']} answers were wrong:\n" + "\n".join(complaints))
        return Run(**told)

    def run(self, count: int, rate: float = 0.0) -> Run:
        """`begin` and `finish`."""
        self.begin(count, rate)
        return self.finish()

    def close(self) -> None:
        """Drop the connections."""
        self._tell({"do": "close"})
        self._hear()

    def _tell(self, order: dict[str, Any]) -> None:
        assert self._program.popen.stdin is not None
        self._program.popen.stdin.write(json.dumps(order).encode() + b"\n")
        self._program.popen.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._program.popen.stdout is not None
        line = self._program.popen.stdout.readline()
        if not line:
            self._program.popen.wait()
            raise BenchFailed(f"the load ended:\n{self._program.last_words()}")
        told: dict[str, Any] = json.loads(line)
        return told
