"""The rules for requests of extensions: `ExtensionRequests`.

An extension is a capability with its own methods. The operator lists those that the gateway
forwards (`protocol.extensions`). For each request of an extension, the handlers of both eras first
call `extension_of`, which refuses what is not forwarded to this server. Then they await the
server's response through `hold`. Some methods last as long as the host listens
(`Extension.streams`): they count as open streams, and end with the caller's token.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any

from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.versions import Era
from taskgate.errors import UnknownMethod
from taskgate.protocol.extensions import Extension
from taskgate.protocol.messages import Response


class ExtensionRequests:
    """The check of an extension's method, and the bounds of requests that last."""

    def __init__(self, *, streams: OpenStreams, clock: Clock) -> None:
        self._streams = streams
        self._clock = clock

    def extension_of(self, mount: Mount, method: str, host: Era, server: Era) -> Extension:
        """Return the extension that defines the method.

        Raises UnknownMethod if it is not forwarded between hosts and servers of these eras.
        """
        found = mount.extensions.by_method.get(method)
        if found is None or not found.crosses(host, server):
            raise UnknownMethod("The extension method is not available on this server")
        return found

    async def hold(
        self,
        caller: AuthContext,
        mount: Mount,
        method: str,
        extension: Extension,
        work: Coroutine[Any, Any, Response],
    ) -> Response | None:
        """Await `work`, which forwards the request, and return the server's response.

        A method that lasts (`Extension.streams`) is bounded. It raises TooManyTasks if the caller
        has too many open streams, and yields None if the caller's token expires first (X-EXT-32,
        X-EXT-43). Raises what `work` raises; in any case `work` is closed.
        """
        lasts = method in extension.streams
        bound = asyncio.timeout(self._left(caller) if lasts else None)
        try:
            with self._streams.acquire_extension_stream(caller, mount.name) if lasts else nullcontext():
                async with bound:
                    return await work
        except TimeoutError:
            # Another time limit, within `work`.
            if not bound.expired():
                raise
            return None
        finally:
            work.close()

    def _left(self, caller: AuthContext) -> float | None:
        """Return the seconds until the caller's token expires; None if it does not."""
        if caller.expires_at is None:
            return None
        return max(0.0, (caller.expires_at - self._clock.wall()).total_seconds())
