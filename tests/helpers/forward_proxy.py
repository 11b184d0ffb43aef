"""A forward proxy: it knows names that nobody else does, and writes down what it was asked."""

import asyncio
from typing import Self
from urllib.parse import urlsplit


class ForwardProxy:
    """Listens for the length of a block. `names` has the port on this machine of each name that it knows.

    - `asked`: the first line of each request; `credentials`: the Proxy-Authorization of each, if any.
    - `refuses`: a status that it gives in place of anything else.
    """

    def __init__(self, **names: int) -> None:
        self.names = names
        self.asked: list[str] = []
        self.credentials: list[str | None] = []
        self.refuses: int | None = None
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.address}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            line, *fields = head.decode().split("\r\n")
            self._note(line, fields)
            verb, target, _ = line.split(" ")
            host = target.rpartition(":")[0] if verb == "CONNECT" else urlsplit(target).hostname or ""
            port = self.names.get(host.split(".")[0])
            if self.refuses is not None or port is None:
                status = self.refuses or 502
                writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                return
            answers, upstream = await asyncio.open_connection("127.0.0.1", port)
            if verb == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _both(_copied(reader, upstream), _copied(answers, writer))
            else:
                upstream.write(_in_origin_form(head))
                await _both(self._forward(reader, upstream), _copied(answers, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, upstream):
                if each is not None:
                    each.close()

    def _note(self, line: str, fields: list[str]) -> None:
        self.asked.append(line)
        found = [each.partition(": ")[2] for each in fields if each.lower().startswith("proxy-authorization:")]
        self.credentials.append(found[0] if found else None)

    async def _forward(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        """Pass on the body of the first request, then each later one of the connection."""
        while data := await reader.read(2**16):
            if b" http://" in data.partition(b"\r\n")[0]:
                line, *fields = data.partition(b"\r\n\r\n")[0].decode().split("\r\n")
                self._note(line, fields)
                data = _in_origin_form(data)
            upstream.write(data)
            await upstream.drain()


def _in_origin_form(head: bytes) -> bytes:
    line, _, rest = head.partition(b"\r\n")
    verb, target, version = line.decode().split(" ")
    parts = urlsplit(target)
    return f"{verb} {parts.path}{'?' if parts.query else ''}{parts.query} {version}\r\n".encode() + rest


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()


async def _both(*ways: "asyncio.Future[None] | object") -> None:
    """Until one of the ways ends."""
    tasks = [asyncio.ensure_future(way) for way in ways]  # type: ignore[arg-type]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
