"""Tracing from the outside: a process that lacks what it takes says so, and one that traces ends in time."""

import signal
import socket
import sys
import time
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import serve_process
from helpers.otlp_collector import SERVER, OtlpCollector
from taskgate.cli import main

URL = "http://127.0.0.1:9/mcp"
LACKS = "tracing.exporter: otlp_http needs packages that are not installed: pip install 'taskgate[tracing]'\n"


@pytest.fixture
def without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the packages of the extra were not there."""
    here = "opentelemetry.exporter.otlp.proto.http"
    for name in [name for name in sys.modules if name.startswith(here)] or [here]:
        monkeypatch.setitem(sys.modules, name, None)


def run(command: str, folder: Path, tracing: str) -> tuple[int, str]:
    """Status and standard error of a command on a file with that section."""
    file = write_configuration(folder, URL, tracing=tracing, audit={"enabled": False}, limits={})
    ended = CliRunner().invoke(main, [command, "--config", str(file)])
    return ended.exit_code, ended.stderr


@pytest.mark.usefixtures("without_the_extra")
def test_a_gateway_that_is_to_trace_and_cannot_is_refused(tmp_path: Path) -> None:
    assert run("check", tmp_path, "{enabled: true}") == (2, LACKS)
    assert run("serve", tmp_path, "{enabled: true}") == (1, f"taskgate: {LACKS}")


@pytest.mark.usefixtures("without_the_extra")
def test_nobody_else_needs_it(tmp_path: Path) -> None:
    assert run("check", tmp_path, "{enabled: false}") == (0, "")


async def traced_once(folder: Path, endpoint: str) -> float:
    """Seconds that a gateway needed to end which had served one request, and traced it."""
    async with serve_process(
        folder, URL, tracing=f"{{enabled: true, sample_ratio: 1, endpoint: '{endpoint}'}}"
    ) as gateway:
        async with aiohttp.ClientSession() as http:
            answer = await gateway.host(http).ask("ping")
        assert answer.status == 400, "the request is of no session"
        begun = time.monotonic()
        gateway.ask(signal.SIGINT)
        assert await gateway.exit_status() == 0
        return time.monotonic() - begun


@pytest.mark.program
async def test_what_was_traced_last_is_exported_before_the_end(tmp_path: Path) -> None:
    async with OtlpCollector() as collector:
        await traced_once(tmp_path, collector.url)
    assert collector.only(SERVER, "ping").status == 2


@pytest.mark.program
async def test_a_collector_that_says_nothing_keeps_no_process_from_its_end(tmp_path: Path) -> None:
    """Two seconds for the spans, and what an end takes anyway; its own timeout would be ten."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        assert await traced_once(tmp_path, f"http://127.0.0.1:{listening.getsockname()[1]}") < 8
