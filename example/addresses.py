"""Addresses that taskgate's listeners are to have, and whether they can be had."""

import asyncio
import socket
from dataclasses import dataclass


class AddressUnusable(Exception):
    """An address is none, or is taken; the text says so to a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(name: str, value: str) -> Address:
    """Reads HOST:PORT; `name` is what the refusal calls it. Raises AddressUnusable."""
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise AddressUnusable(f"{name}={value}: this should be HOST:PORT")
    return Address(host=host, port=int(port))


def free_addresses() -> tuple[Address, Address]:
    """Two different ports of loopback that nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        first, second = (Address(host="127.0.0.1", port=held.getsockname()[1]) for held in (one, other))
    return first, second


def refuse_taken(*addresses: Address) -> None:
    """Raises AddressUnusable if one of them cannot be listened on now."""
    for address in addresses:
        try:
            socket.create_server((address.host, address.port)).close()
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while")[0]
            raise AddressUnusable(
                f"cannot listen on {address} ({reason}): is another program, or another `make run`, there?\n"
                "End it, or choose other ports: make run LISTEN=127.0.0.1:8090 ADMIN=127.0.0.1:9474"
            ) from error


async def is_ready(admin: Address) -> bool:
    """Whether /readyz at this address answers 200 within two seconds."""
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(admin.host, admin.port)
            try:
                writer.write(f"GET /readyz HTTP/1.0\r\nHost: {admin}\r\n\r\n".encode())
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    except OSError:  # a timeout is one too
        return False
