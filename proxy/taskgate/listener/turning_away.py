"""Having the system take no new connections, while those that are being made still come to be.

Closing a socket that listens resets every connection that the system has made for it and nobody has taken up: their
hosts have sent a request by then, perhaps. So before it is closed it is made deaf: what begins a connection is dropped,
the peer tries again after a second, and is refused. What must not live here: when that is done (`listener`).
"""

import ctypes
import socket
import struct
from typing import Final, NamedTuple


class _Step(NamedTuple):
    """One instruction of a socket filter (linux/filter.h): what to do, where to go if true and if not, with what."""

    code: int
    if_true: int
    if_false: int
    operand: int


_FLAGS: Final = 13
"""Where the flags are in the head of TCP."""
_SYN, _ACK = 0x02, 0x10
_DEAF: Final = (
    _Step(0x30, 0, 0, _FLAGS),  # load that byte
    _Step(0x54, 0, 0, _SYN | _ACK),  # of which these count
    _Step(0x15, 0, 1, _SYN),  # what is a SYN and nothing else goes on, all else one further
    _Step(0x06, 0, 0, 0),  # none of it is taken
    _Step(0x06, 0, 0, 0xFFFFFFFF),  # all of it is taken
)
_ATTACH_FILTER: Final = 26
"""SO_ATTACH_FILTER of Linux, which Python has no name for."""


def make_deaf(listening: socket.socket) -> bool:
    """Have no further connection begin; whether the system can do that. Only closing the socket ends it."""
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _DEAF))
    try:
        program = struct.pack("HP", len(_DEAF), ctypes.addressof(steps))
        listening.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
    except OSError:
        return False
    return True
