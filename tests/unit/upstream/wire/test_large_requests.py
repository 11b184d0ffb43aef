"""A large request is written in pieces that are views of the bytes that came, as fast as the network takes them."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from taskgate.jsontext.large import JsonChunks
from taskgate.upstream.wire.connection import Connection, ConnectionObserver
from taskgate.upstream.wire.heads import AnswerHeads

HEAD = b"POST /mcp HTTP/1.1\r\n\r\n"
BODY = bytes(range(256)) * 8192


class Nobody:
    def made(self, connection: Connection) -> None: ...

    def keep(self, connection: Connection) -> None: ...

    def forget(self, connection: Connection) -> None: ...

    def lost(self, connection: Connection) -> None: ...


@dataclass(eq=False)
class Network:
    """Takes `room` pieces, then none until it is read."""

    room: int
    connection: Connection | None = None
    written: list[bytes | memoryview] = field(default_factory=list)

    def write(self, data: bytes | memoryview) -> None:
        self.written.append(data)
        if len(self.written) % self.room == 0:
            assert self.connection is not None
            self.connection.pause_writing()

    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize("body", [BODY, JsonChunks([b"{", memoryview(BODY)[1:], b"}"])], ids=["bytes", "chunks"])
@pytest.mark.parametrize("room", [1, 3, 100])
async def test_a_large_request_is_written_whole_and_only_its_first_piece_is_copied(
    body: bytes | JsonChunks, room: int
) -> None:
    loop = asyncio.get_running_loop()
    connection = Connection(loop, cast("ConnectionObserver", Nobody()), AnswerHeads(loop, 8192))
    network = Network(room, connection)
    connection.connection_made(cast("asyncio.Transport", network))
    waiting = connection.ask(HEAD, body, None)
    while len(network.written) % room == 0:
        before = len(network.written)
        connection.resume_writing()
        if len(network.written) == before:
            break
        assert len(network.written) <= before + room
    whole = body if isinstance(body, bytes) else body.encode()
    assert b"".join(network.written) == HEAD + whole
    assert len(network.written) == 9
    assert all(isinstance(piece, memoryview) for piece in network.written[1:-1])
    waiting.cancel()


async def test_a_request_of_small_chunks_is_one_write() -> None:
    loop = asyncio.get_running_loop()
    connection = Connection(loop, cast("ConnectionObserver", Nobody()), AnswerHeads(loop, 8192))
    network = Network(100, connection)
    connection.connection_made(cast("asyncio.Transport", network))
    waiting = connection.ask(HEAD, JsonChunks([b"{", memoryview(b'"a":1'), b"}"]), None)
    assert network.written == [HEAD + b'{"a":1}']
    waiting.cancel()
