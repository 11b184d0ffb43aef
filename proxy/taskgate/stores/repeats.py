"""Calls that their hosts gave a name, while their records are on their way into a file.

Who comes with the same name waits until it is known whether the first is kept. Belongs to one event loop.
"""

import asyncio


class Repeats:
    """The names of what is on its way."""

    def __init__(self) -> None:
        self._settling: dict[bytes, asyncio.Future[None]] = {}

    def left(self, name: bytes | None) -> None:
        """A record is on its way; one without a name is passed over, here and below."""
        if name is not None:
            self._settling[name] = asyncio.get_running_loop().create_future()

    def arrived(self, name: bytes | None) -> None:
        """It is kept, or will not be."""
        if name is not None:
            self._settling.pop(name).set_result(None)

    async def settle(self, name: bytes) -> None:
        """Wait until nothing of that name is on its way; with no other step between that and the return."""
        while (settling := self._settling.get(name)) is not None:
            # Others wait for it, too.
            await asyncio.shield(settling)
