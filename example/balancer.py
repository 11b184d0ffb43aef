"""A load balancer that is as small as one can be: `python example/balancer.py LISTEN BACKEND...`.

Each connection goes to the next backend in turn, and where that refuses it, to the one after that; then bytes pass both
ways until either side has had enough. It knows nothing of HTTP: whose answer ends its connection ends it here as well.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from addresses import Address, parse_address

LISTENS = rb"Balancing at (\S+)\n"
PIECE = 64 * 1024


class NoBackend(Exception):
    """None of them takes connections."""


class Balancer:
    """Takes connections in turn to whoever takes them."""

    def __init__(self, backends: Sequence[Address]) -> None:
        self._backends = backends
        self._turn = count()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its last."""
        try:
            from_backend, to_backend = await self._connected()
        except NoBackend:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(pass_on(reader, to_backend))
                both.create_task(pass_on(from_backend, writer))
        finally:
            for end in (writer, to_backend):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        first = next(self._turn)
        for number in range(len(self._backends)):
            backend = self._backends[(first + number) % len(self._backends)]
            with suppress(OSError):
                return await asyncio.open_connection(backend.host, backend.port)
        raise NoBackend


async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Carry bytes one way to their end, and tell the other side of it."""
    with suppress(OSError):
        while piece := await source.read(PIECE):
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof() and not sink.is_closing():
            sink.write_eof()
            return
    # Broken rather than ended: so is the other side then.
    sink.transport.abort()


async def balance(listen: Address, backends: Sequence[Address]) -> None:
    """Balance until cancelled."""
    server = await asyncio.start_server(Balancer(backends).carry, listen.host, listen.port)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"Balancing at {host}:{port}", flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Read the addresses, and balance until a signal."""
    listen, *backends = [parse_address("address", each) for each in sys.argv[1:]]
    with suppress(KeyboardInterrupt):
        asyncio.run(balance(listen, backends))


if __name__ == "__main__":
    main()
