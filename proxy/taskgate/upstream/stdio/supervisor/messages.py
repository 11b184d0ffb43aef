"""Messages between the gateway and the supervisor process: JSON, one object per line.

    {"verb":"start","id":1,"argv":[…],"env":{…},"cwd":null}   to the supervisor, with descriptors
    {"verb":"started","id":1,"pid":4711}                      to the gateway

The three descriptors of a program's standard streams are sent with its `start`, in the same order.
Bytes such as arguments and paths are text with one character per byte. `supervisor_client` and
`program` use this.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

START: Final = "start"
"""To the supervisor: start a program with `argv`, `env` and `cwd` as `id`; three descriptors come
with it."""
END: Final = "end"
"""To the supervisor: SIGTERM after `soft` seconds, SIGKILL after `hard` more, unless program `id`
exits."""
STARTED: Final = "started"
"""To the gateway: the program `id` runs as `pid`."""
FAILED: Final = "failed"
"""To the gateway: the program could not be started, for the reason `errno`; `cwd`: its directory is
the cause."""
EXITED: Final = "exited"
"""To the gateway: the program `id` exited with `status`, the negative of a signal if one killed it."""

STREAMS: Final = 3
"""Descriptors that come with a start."""

Message = dict[str, Any]


def packed(verb: str, **members: Any) -> bytes:
    """Encode one message."""
    return json.dumps({"verb": verb, **members}, separators=(",", ":")).encode() + b"\n"


def to_text(raw: bytes | None) -> str | None:
    """Encode bytes as text."""
    return None if raw is None else raw.decode("latin-1")


def to_bytes(text: str | None) -> bytes | None:
    """Decode the text of `to_text`."""
    return None if text is None else text.encode("latin-1")


def program_of(message: Message) -> tuple[Sequence[bytes], Mapping[bytes, bytes], bytes | None]:
    """Return arguments, environment and directory of a `start` message."""
    argv = [argument.encode("latin-1") for argument in message["argv"]]
    env = {name.encode("latin-1"): value.encode("latin-1") for name, value in message["env"].items()}
    return argv, env, to_bytes(message["cwd"])


class Unpacker:
    """Decoder of messages from a byte stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> list[Message]:
        """Return the messages that are complete now."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [json.loads(line) for line in lines]
