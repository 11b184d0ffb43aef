"""Ports of this machine for what a test starts itself and must be told where to listen."""

import contextlib
import itertools
import os
import random
import socket

# Whose turn it is among the processes that run tests side by side: each has ports of its own.
_LANE = os.environ.get("LANE") or os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
_PORTS = range(10_000 + int(_LANE) % 16, 32_000, 16)
# All of them before any of them again: who is given one may not listen there before the next is given.
_ports = itertools.cycle(random.SystemRandom().sample(_PORTS, len(_PORTS)))


def free_port() -> int:
    """A port that nobody listens on just now, and that no outgoing connection is given while nobody does.

    Nor does any test that runs beside this one get it.
    """
    while True:
        port = next(_ports)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def listening_socket() -> socket.socket:
    """A socket that listens at such a port: while it does not, nobody else does in its place."""
    while True:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", next(_ports)))
