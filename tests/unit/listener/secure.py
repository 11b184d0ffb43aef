"""The public listener behind TLS, and hosts that speak it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from helpers.certificates import Authority, put, serial
from helpers.host.raw import RawHost
from helpers.waiting import bounded
from taskgate.listener.tls import TlsSettings
from unit.listener.gate import Gate, opened
from unit.listener.operating import Operated

OFTEN = timedelta(seconds=0.001)


class SecureHost(RawHost):
    """A connection under TLS."""

    @property
    def serial(self) -> int:
        """Of the certificate that the listener has shown."""
        return serial(self.tls.getpeercert(binary_form=True) or b"")

    @property
    def tls(self) -> ssl.SSLObject:
        """What was agreed on."""
        agreed: ssl.SSLObject = self._writer.get_extra_info("ssl_object")
        return agreed

    async def close(self) -> None:
        """Leave, whatever the listener has said last."""
        with suppress(ssl.SSLError):
            await super().close()


@dataclass
class Papers:
    """The files of the listener, and who signs them."""

    authority: Authority
    folder: Path

    @property
    def cert_file(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def key_file(self) -> Path:
        return self.folder / "tls.key"

    def renew(self) -> int:
        """Put a new pair into the files; its serial number."""
        certificate, key = self.authority.pair()
        put(self.key_file, key)
        put(self.cert_file, certificate)
        return serial(certificate)

    def settings(self, **changes: Any) -> TlsSettings:
        """The files are looked at all the time unless said otherwise."""
        files: dict[str, Any] = {"cert_file": self.cert_file, "key_file": self.key_file, "look_interval": OFTEN}
        return TlsSettings(**files | changes)

    @asynccontextmanager
    async def host(
        self, gate: Gate | Operated, context: ssl.SSLContext | None = None, limit: int = 2**20
    ) -> AsyncIterator[Any]:
        """A connection for the length of a block."""
        trust = context or self.authority.trusting()
        async with bounded():
            host = SecureHost(*await asyncio.open_connection(*gate.address, ssl=trust, limit=limit))
        try:
            yield host
        finally:
            await host.close()

    @asynccontextmanager
    async def opened(
        self, script: Any = None, *, tls: dict[str, Any] | None = None, **changes: Any
    ) -> AsyncIterator[Gate]:
        """A listener with these files; `tls` changes its settings."""
        async with opened(script, tls=self.settings(**tls or {}), **changes) as gate:
            yield gate


def papers(folder: Path) -> Papers:
    """With a first pair in the files."""
    made = Papers(Authority(folder), folder)
    made.renew()
    return made
