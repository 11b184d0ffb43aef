"""The same server as `stub_upstream`, as a program that is spoken to over its standard streams, one message a line.

What lives here is the reading and writing of lines; what the tools come to is the other's. `hold` and `stream` it has
not. Ends with its input.
"""

import asyncio
import os
import sys

import orjson

from bench.catalogue import CATALOGUE
from bench.stub_upstream import INITIALIZED, content_of

_CHUNK = 2**20


class Answering(asyncio.Protocol):
    """Answers the lines of a pipe on another."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended
        self._rest = b""
        self.out: asyncio.WriteTransport | None = None

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        assert self.out is not None
        answers = [answer for line in lines if line and (answer := _answer(orjson.loads(line))) is not None]
        if answers:
            self.out.write(b"\n".join([*answers, b""]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


def _answer(message: dict[str, object]) -> bytes | None:
    if "id" not in message or "method" not in message:
        return None
    result = _result(message)
    number = orjson.dumps(message["id"])
    if result is None:
        return b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"Method not found"}}' % number
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (number, result)


def _result(message: dict[str, object]) -> bytes | None:
    params = message.get("params")
    match message["method"]:
        case "tools/call" if isinstance(params, dict):
            return content_of(params["name"], params.get("arguments") or {})
        case "tools/list":
            return CATALOGUE
        case "ping":
            return b"{}"
        case "initialize":
            return INITIALIZED
        case _:
            return None


async def _serve() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    answering = Answering(ended)
    answering.out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(sys.stdout.fileno(), "wb", 0))
    await loop.connect_read_pipe(lambda: answering, os.fdopen(sys.stdin.fileno(), "rb", _CHUNK))
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
