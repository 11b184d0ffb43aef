"""The service manager is told over a real socket what the gateway does; without one nothing is sent."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.waiting import bounded
from taskgate.system.service_notifier import ServiceNotifier


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path}/notify" if request.param == "path" else f"@taskgate-{uuid4()}"


@pytest.fixture
def manager_socket(address: str) -> Iterator[socket.socket]:
    """The socket on which a service manager hears."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        bound.setblocking(False)
        yield bound


async def heard(manager_socket: socket.socket) -> str:
    async with bounded():
        return (await asyncio.get_running_loop().sock_recv(manager_socket, 4096)).decode()


async def test_start_reload_and_stop_are_messages_of_their_own(address: str, manager_socket: socket.socket) -> None:
    notifier = ServiceNotifier.from_environment({"NOTIFY_SOCKET": address})
    notifier.ready()
    assert await heard(manager_socket) == "READY=1"
    before = time.monotonic_ns() // 1000
    notifier.reloading()
    state, when = (await heard(manager_socket)).split("\n")
    assert (state, when.partition("=")[0]) == ("RELOADING=1", "MONOTONIC_USEC")
    assert before <= int(when.partition("=")[2]) <= time.monotonic_ns() // 1000
    notifier.stopping()
    assert await heard(manager_socket) == "STOPPING=1"
    notifier.close()


async def test_the_watchdog_is_notified_from_the_start_to_the_end(address: str, manager_socket: socket.socket) -> None:
    notifier = ServiceNotifier.from_environment(
        {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(os.getpid())}
    )
    loop = asyncio.get_running_loop()
    begun = loop.time()
    notifier.ready()
    assert [await heard(manager_socket) for _ in range(4)] == ["READY=1", *["WATCHDOG=1"] * 3]
    assert loop.time() - begun >= 0.019
    notifier.ready()
    notifier.stopping()
    notifier.close()
    left = [await heard(manager_socket) for _ in range(2)]
    assert left == ["READY=1", "STOPPING=1"]
    beyond = loop.create_future()
    loop.call_later(0.03, beyond.set_result, None)
    async with bounded():
        await beyond
    with pytest.raises(BlockingIOError):
        manager_socket.recv(1)


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9000", "WATCHDOG_PID": "1"}]
)
async def test_a_watchdog_that_is_not_of_this_process_gets_nothing(
    watchdog: dict[str, str], address: str, manager_socket: socket.socket
) -> None:
    notifier = ServiceNotifier.from_environment({"NOTIFY_SOCKET": address, **watchdog})
    notifier.ready()
    loop = asyncio.get_running_loop()
    beyond = loop.create_future()
    loop.call_later(0.02, beyond.set_result, None)
    async with bounded():
        await beyond
    assert await heard(manager_socket) == "READY=1"
    with pytest.raises(BlockingIOError):
        manager_socket.recv(1)


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
async def test_nothing_is_sent_without_a_socket(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(socket, "socket", made.append)
    notifier = ServiceNotifier.from_environment({**environ, "WATCHDOG_USEC": "1"})
    notifier.ready()
    notifier.reloading()
    notifier.stopping()
    notifier.close()
    assert made == []


async def test_a_manager_that_is_gone_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notifier = ServiceNotifier.from_environment({"NOTIFY_SOCKET": f"{tmp_path}/gone"})
    with caplog.at_level(logging.WARNING):
        notifier.ready()
    assert caplog.messages == ["the service manager could not be notified"]
