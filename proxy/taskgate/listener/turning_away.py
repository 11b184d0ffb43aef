"""A socket filter that stops new TCP connections before a listening socket is closed: `make_deaf`.

Closing a listening socket resets every connection that the system has completed and no process has
accepted; their hosts may have sent a request. So first a filter drops the packets that start a
connection. A peer then tries again after a second, and is refused. `Acceptor.turn_away` uses it.
"""

import ctypes
import socket
import struct
from typing import Final, NamedTuple


class _Step(NamedTuple):
    """One instruction of a socket filter (linux/filter.h): code, jump if true, jump if false,
    operand.
    """

    code: int
    if_true: int
    if_false: int
    operand: int


_FLAGS: Final = 13
"""The offset of the flags in a TCP header."""
_SYN, _ACK = 0x02, 0x10
_DEAF: Final = (
    _Step(0x30, 0, 0, _FLAGS),  # load the flags
    _Step(0x54, 0, 0, _SYN | _ACK),  # keep SYN and ACK
    _Step(0x15, 0, 1, _SYN),  # SYN alone: next instruction; anything else: skip one
    _Step(0x06, 0, 0, 0),  # drop the packet
    _Step(0x06, 0, 0, 0xFFFFFFFF),  # accept the packet
)
_ATTACH_FILTER: Final = 26
"""SO_ATTACH_FILTER of Linux, missing in Python."""


def make_deaf(listening: socket.socket) -> bool:
    """Drop the packets that start new connections, until the socket is closed.

    Returns False if the system has no such filter: then nothing has changed.
    """
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _DEAF))
    try:
        program = struct.pack("HP", len(_DEAF), ctypes.addressof(steps))
        listening.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
    except OSError:
        return False
    return True
