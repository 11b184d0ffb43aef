"""Large bodies that a gateway refuses, for hosts of both eras: what is wrong with each, and how each is sent."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from helpers.host.answers import Answer
from helpers.host.host import Host, called

Spoil = Callable[[bytes], bytes]
"""Makes a good call into one that is refused."""
AMID: Final = b'"arguments": {'
_MARK: Final = b"xxxxxxxx"


def _replaced(old: bytes, new: bytes) -> Spoil:
    def spoil(body: bytes) -> bytes:
        assert old in body
        return body.replace(old, new, 1)

    return spoil


def _filled(unit: bytes, *, opened: bytes, closed: bytes) -> Spoil:
    """The same size, of so many units instead of a text."""

    def spoil(body: bytes) -> bytes:
        start = body.index(AMID) + len(AMID)
        end = body.index(b"}", start)
        size = end - start
        many = unit * (size // len(unit))
        return body[:start] + b'"many": ' + opened + many + closed + body[end:]

    return spoil


SPOILT: Final[dict[str, Spoil]] = {
    "cut off": lambda body: body[:-1],
    "bad JSON": _replaced(_MARK, b'xx" xxxx'),
    "bad UTF-8": _replaced(_MARK, b"\xff\xfexxxxxx"),
    "a repeated key": _replaced(AMID, b'"name": "echo", ' + AMID),
    "a key that looks alike": _replaced(AMID, b'"Name": "echo", ' + AMID),
    "too many members": _replaced(AMID, b"".join(b'"m%d": 0, ' % each for each in range(9000)) + AMID),
    "too many values": _filled(b"{},", opened=b"[", closed=b"0]"),
    "too deep": _filled(b"[", opened=b"", closed=b""),
    "a method that is no text": _replaced(b'"method": "tools/call"', b'"method": 7'),
    "another protocol": _replaced(b'"jsonrpc": "2.0"', b'"jsonrpc": "1.0"'),
    "a name that is no text": _replaced(b'"name": "echo"', b'"name": 7'),
    "a tool that is not there": _replaced(b'"name": "echo"', b'"name": "' + b"n" * 300 + b'"'),
    "a method that is not there": _replaced(b'"method": "tools/call"', b'"method": "tools/none"'),
    "a batch": lambda body: b"[" + body + b"]",
    "no batch": lambda body: b"[" + body,
}
"""What is wrong with a call of `echo`, by name."""


def arguments(size: int) -> dict[str, Any]:
    """Arguments of so many bytes."""
    return {"text": "x" * size}


Posted = tuple[bytes, Mapping[str, Any]]
"""A body and the headers that go with it."""


def posted(host: Host, size: int, spoil: Spoil | None = None) -> Posted:
    """A call of `echo` with so many bytes of arguments, which `spoil` makes into something else."""
    message = host.written("tools/call", called("echo", arguments(size)))
    body = json.dumps(message).encode()
    return body if spoil is None else spoil(body), host.routing(message)


async def send(host: Host, size: int, spoil: Spoil | None = None) -> Answer:
    """Send such a call."""
    body, headers = posted(host, size, spoil)
    return await host.post(body, headers=headers)
