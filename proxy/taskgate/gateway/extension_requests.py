"""The rules for requests of extensions: `ExtensionRequests`.

An extension is a capability with its own methods. The operator lists those that the gateway
forwards (`protocol.extensions`). Handlers of both eras ask here whether a method may be forwarded
to this server, then send the request within `hold`. Some methods last as long as the host listens;
they count as open streams.
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
    """The check of an extension's method, and the bounds of requests that last as long as their
    host listens. The bounds are the limit of open streams, and the expiry of the caller's token.
    """

    def __init__(self, *, streams: OpenStreams, clock: Clock) -> None:
        self._streams = streams
        self._clock = clock

    def extension_of(self, mount: Mount, method: str, host: Era, server: Era) -> Extension:
        """Return the extension that defines the method.

        Raises UnknownMethod if it is not forwarded between hosts and servers of these eras.
        """
        found = mount.extensions.extension_of(method)
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
        """Await `work`, and return the server's response.

        Returns None if the caller's token expired first (X-EXT-32, X-EXT-43). Only a method that
        lasts has these bounds. Raises TooManyTasks for too many open streams, and what `work`
        raises.
        """
        lasts = method in extension.streams
        bound = asyncio.timeout(self._left(caller) if lasts else None)
        try:
            with self._streams.acquire_extension_stream(caller, mount.name) if lasts else nullcontext():
                async with bound:
                    return await work
        except TimeoutError:
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
