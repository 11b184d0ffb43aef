"""A gateway is told to end while connections storm in, or while a part of it hangs: it ends in time."""

import asyncio
import os
import signal
import sqlite3
import ssl
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic

import aiohttp
import pytest
from example.processes import running

from helpers.certificates import Authority, put
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process, serve_process
from helpers.host.host import NEWEST
from helpers.host.raw import post
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded, eventually

pytestmark = [pytest.mark.attack, pytest.mark.alone]

SHUTDOWNS = int(os.environ.get("ATTACK_SHUTDOWNS", "4"))
"""How many there are, half of them under TLS. `make attacks SHUTDOWNS=50` has more than a usual run."""
HOSTS = 60
DELAY_MS, TIMEOUT_MS = 200, 2000
WITHIN = (DELAY_MS + TIMEOUT_MS) / 1000 + 5
"""Seconds between the signal and the end of the process."""
HURRIED_WITHIN = 1.0
"""The same, of a second signal."""

INITIALIZE = (
    f'{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{NEWEST}","capabilities":{{}},'
    f'"clientInfo":{{"name":"storm","version":"1"}}}}}}'
)


@dataclass(slots=True)
class Storm:
    """Hosts that each connect, ask and leave, again and again until they are refused; `ends` counts what each got."""

    address: tuple[str, int]
    tls: ssl.SSLContext | None
    ends: Counter[str] = field(default_factory=Counter)

    async def host(self) -> None:
        """One of them."""
        request = post(INITIALIZE, path="/reports/mcp", host=f"{self.address[0]}:{self.address[1]}")
        while True:
            try:
                reader, writer = await asyncio.open_connection(*self.address, ssl=self.tls)
            except ConnectionRefusedError:
                return
            except (ConnectionError, ssl.SSLError):
                self.ends["reset in the handshake"] += 1
                continue
            try:
                writer.write(request)
                said = await reader.read(65536)
                self.ends[said[:15].decode() or "ended without an answer"] += 1
            except (ConnectionError, ssl.SSLError):
                self.ends["reset"] += 1
            finally:
                writer.transport.abort()


@pytest.mark.timeout(60 + 15 * SHUTDOWNS)
async def test_a_storm_of_new_connections_does_not_hold_a_shutdown_and_all_that_was_accepted_is_answered(
    tmp_path: Path,
) -> None:
    chance, ends, longest = Random(1), Counter[str](), 0.0
    authority = Authority(tmp_path)
    certificate, key = authority.pair()
    put(tmp_path / "tls.key", key)
    put(tmp_path / "tls.crt", certificate)
    papers = f", tls: {{cert_file: {tmp_path}/tls.crt, key_file: {tmp_path}/tls.key}}"
    async with ScriptedServer() as server:
        for number in range(SHUTDOWNS):
            tls = number % 2 == 1
            section = f"drain: {{delay: {DELAY_MS}ms, timeout: {TIMEOUT_MS}ms}}{papers if tls else ''}"
            async with serve_process(tmp_path, server.url, server=f'{{listen: "127.0.0.1:0", {section}}}') as gateway:
                host, _, port = gateway.listen.rpartition(":")
                if number % 4 < 2:
                    # Only then is there a delay, in which all is served.
                    async with aiohttp.ClientSession() as http, http.get(f"http://{gateway.admin}/readyz") as ready:
                        assert ready.status == 200
                storm = Storm((host, int(port)), authority.trusting() if tls else None)
                hosts = [asyncio.create_task(storm.host()) for _ in range(HOSTS)]
                enough = chance.randint(HOSTS, 3 * HOSTS)
                await eventually(lambda storm=storm, enough=enough: storm.ends.total() >= enough)
                asked = monotonic()
                gateway.ask(signal.SIGTERM)
                async with asyncio.timeout(WITHIN):
                    assert await gateway.child.process.wait() == 0
                longest = max(longest, monotonic() - asked)
                async with bounded():
                    await asyncio.gather(*hosts)
                ends += storm.ends
    sys.stdout.write(f"{SHUTDOWNS} shutdowns: {longest:.2f} s at most, {dict(ends)}\n")
    assert set(ends) <= {"HTTP/1.1 200 OK\r", "HTTP/1.1 200 OK", "reset", "reset in the handshake"}, ends
    assert ends["reset"] + ends["reset in the handshake"] < ends.total() / 100


@pytest.mark.parametrize("part", ["runner", "upstream", "audit", "store", "loop", "work", "thread"])
async def test_a_second_signal_ends_the_process_whatever_hangs(tmp_path: Path, part: str) -> None:
    file, program = write_configuration(tmp_path, "http://127.0.0.1:9/mcp"), hanging(part)
    log = tmp_path / "gateway.log"
    async with gateway_process(["--config", file], log=log, program=program) as gateway:
        gateway.ask(signal.SIGTERM)
        await gateway.child.said(rb"hanging" if part == "work" else rb"draining")
        asked = monotonic()
        gateway.ask(signal.SIGTERM)
        async with asyncio.timeout(HURRIED_WITHIN):
            status = await gateway.child.process.wait()
        sys.stdout.write(f"{part}: {monotonic() - asked:.2f} s, status {status}\n")


async def test_a_store_that_takes_nothing_does_not_hold_a_shutdown_with_a_running_task(tmp_path: Path) -> None:
    server_section = '{listen: "127.0.0.1:0", drain: {delay: 0s, timeout: 500ms}}'
    store = f"{{sqlite: {{path: {tmp_path}/taskgate.db, busy_timeout: 100ms}}}}"
    async with ScriptedServer() as server, aiohttp.ClientSession() as http:
        server.script["echo"] = hold = Hold()
        async with serve_process(tmp_path, server.url, server=server_section, store=store) as gateway:
            host = gateway.host(http)
            await host.initialize()
            await host.start("echo")
            async with bounded():
                await hold.begun.wait()
            with closing(sqlite3.connect(tmp_path / "taskgate.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                gateway.ask(signal.SIGTERM)
                assert await gateway.exit_status() == 0


async def test_a_second_signal_ends_a_start_that_hangs(tmp_path: Path) -> None:
    file, log = write_configuration(tmp_path, "http://127.0.0.1:9/mcp"), tmp_path / "gateway.log"
    async with running([*hanging("start"), "serve", "--config", file], log=log) as child, bounded():
        await child.said(rb"hanging")
        child.process.send_signal(signal.SIGTERM)
        # What hangs was cancelled, and goes on.
        await child.said(rb"hanging\s+hanging")
        child.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(HURRIED_WITHIN):
            await child.process.wait()


def hanging(part: str) -> list[str | Path]:
    """The command of a gateway whose part hangs."""
    return [sys.executable, Path(__file__).with_name("hanging_gateway.py"), part]
