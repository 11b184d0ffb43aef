"""Requests of carried extensions: whether one crosses to this server, and how long one is held that lasts.

What must not live here: what crosses an upstream (`protocol.extensions`), and how a request is carried.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any

from taskgate.admission.mounts import Mount
from taskgate.admission.streams import OpenStreams
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.versions import Era
from taskgate.errors import UnknownMethod
from taskgate.protocol.envelope import Response
from taskgate.protocol.extensions import Extension


class ExtensionRequests:
    """Holds those that last as long as their hosts listen, within the caps of streams and of the callers' tokens."""

    def __init__(self, *, streams: OpenStreams, clock: Clock) -> None:
        self._streams = streams
        self._clock = clock

    def extension_of(self, mount: Mount, method: str, host: Era, server: Era) -> Extension:
        """The extension that has the method. Raises UnknownMethod where it does not cross between those eras."""
        found = mount.extensions.method(method)
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
        """The server's response; None where the caller's token ended first (X-EXT-32, X-EXT-43).

        Raises TooManyTasks, of streams, and what the work raises.
        """
        lasts = method in extension.streams
        bound = asyncio.timeout(self._left(caller) if lasts else None)
        try:
            with self._streams.of_extension(caller, mount.name) if lasts else nullcontext():
                async with bound:
                    return await work
        except TimeoutError:
            if not bound.expired():
                raise
            return None
        finally:
            work.close()

    def _left(self, caller: AuthContext) -> float | None:
        """Seconds for which something may be given out for the caller's token; None where it has no end."""
        if caller.expires_at is None:
            return None
        return max(0.0, (caller.expires_at - self._clock.wall()).total_seconds())
