"""What the gateway and its nursery say to each other: one JSON object a line, over a stream socket between the two.

The descriptors of a program's standard streams travel beside the line that asks to start it, in the same order. Bytes
(arguments, environment, paths) are written as text with one character each. What must not live here: what is done.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

START: Final = "start"
"""To the nursery: start a program, with `argv`, `env` and `cwd`, under `id`; with it come three descriptors."""
END: Final = "end"
"""To the nursery: SIGTERM after `soft` seconds, SIGKILL after `hard` more, unless the program `id` ends before."""
STARTED: Final = "started"
"""To the gateway: the program `id` runs as `pid`."""
FAILED: Final = "failed"
"""To the gateway: it could not be started, for the reason `errno`; `cwd` tells whether its directory is the cause."""
EXITED: Final = "exited"
"""To the gateway: the program `id` ended, with `status`, or by the signal that is its negative."""

STREAMS: Final = 3
"""Descriptors that come with a start."""

Message = dict[str, Any]


def packed(verb: str, **members: Any) -> bytes:
    """One message as it is sent."""
    return json.dumps({"verb": verb, **members}, separators=(",", ":")).encode() + b"\n"


def to_text(raw: bytes | None) -> str | None:
    """Any bytes as text."""
    return None if raw is None else raw.decode("latin-1")


def to_bytes(text: str | None) -> bytes | None:
    """What `to_text` was given."""
    return None if text is None else text.encode("latin-1")


def program_of(message: Message) -> tuple[Sequence[bytes], Mapping[bytes, bytes], bytes | None]:
    """Arguments, environment and directory of a start."""
    argv = [argument.encode("latin-1") for argument in message["argv"]]
    env = {name.encode("latin-1"): value.encode("latin-1") for name, value in message["env"].items()}
    return argv, env, to_bytes(message["cwd"])


class Unpacker:
    """Messages out of bytes as they come."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> list[Message]:
        """The messages that are whole now."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [json.loads(line) for line in lines]
