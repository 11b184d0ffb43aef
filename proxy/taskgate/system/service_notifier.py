"""Messages to the service manager that started the process: `ServiceNotifier`.

The protocol is that of systemd's `Type=notify`: one datagram for each message, to the Unix socket
that `NOTIFY_SOCKET` names. Without that variable nothing is sent.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from logging import getLogger
from typing import Final, Self

_SEND_WITHIN: Final = 0.5
"""Seconds for a message while the manager's queue is full; the event loop waits for so long."""

log = getLogger("taskgate.system.service_notifier")


class ServiceNotifier:
    """The sender of messages. The watchdog gets a message at each half of `watchdog` seconds after `ready`.

    The messages come from the event loop. A process whose loop hangs sends none, and is restarted.
    """

    def __init__(self, address: str, watchdog: float | None = None) -> None:
        """`address` is a path, `@` and an abstract name, or empty for no manager."""
        self._address = address
        self._watchdog = watchdog
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """The sender to the manager that the variables name; it sends nothing if they name none."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return cls("")
        microseconds = environ.get("WATCHDOG_USEC", "")
        is_for_this = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        has_watchdog = is_for_this and microseconds.isdecimal() and int(microseconds) > 0
        return cls(address, int(microseconds) / 1e6 if has_watchdog else None)

    def ready(self) -> None:
        """The gateway serves, also after a reload. The watchdog gets its messages from now on."""
        self._send("READY=1")
        if self._address and self._watchdog is not None and self._timer is None:
            self._ping(asyncio.get_running_loop(), self._watchdog / 2)

    def reloading(self) -> None:
        """The gateway reads its configuration; `ready` comes next."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The gateway begins to shut down. The watchdog gets its messages until `close`."""
        self._send("STOPPING=1")

    def close(self) -> None:
        """Send nothing more to the watchdog."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ping(self, loop: asyncio.AbstractEventLoop, period: float) -> None:
        self._timer = loop.call_later(period, self._ping, loop, period)
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_SEND_WITHIN)
                sender.sendto(message.encode(), address)
        except OSError as error:
            log.warning("the service manager could not be notified", extra={"reason": error.strerror or str(error)})
