"""A Post in this process: several of them over one office hear each other as processes over one store do."""

import asyncio
from collections import deque
from datetime import timedelta

from taskgate.errors import StoreUnavailable


class Office:
    """What all posts share; while it is `down`, none of them does anything."""

    def __init__(self) -> None:
        self.posts: list[MemoryPost] = []
        self.parcels: dict[str, bytes] = {}
        self.sent: list[bytes] = []
        self.left: list[bytes] = []
        self.down = False

    def post(self) -> "MemoryPost":
        """One more process; it hears what is said from now on."""
        post = MemoryPost(self)
        self.posts.append(post)
        return post

    def expect_up(self) -> None:
        """Raises StoreUnavailable while it is down."""
        if self.down:
            raise StoreUnavailable("The task store is not available")


class MemoryPost:
    """See Post."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._words: deque[bytes] = deque()
        self._has_words = asyncio.Event()

    async def send(self, word: bytes) -> None:
        """See Post."""
        self._office.expect_up()
        self._office.sent.append(word)
        for post in self._office.posts:
            if post is not self:
                post.deliver(word)

    def deliver(self, word: bytes) -> None:
        """Have it hear a word."""
        self._words.append(word)
        self._has_words.set()

    async def receive(self, *, timeout: timedelta) -> tuple[bytes, ...]:
        """See Post."""
        self._office.expect_up()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._has_words.wait()
        except TimeoutError:
            return ()
        self._office.expect_up()
        words = tuple(self._words)
        self._words.clear()
        self._has_words.clear()
        return words

    async def leave(self, name: str, parcel: bytes, *, keep: timedelta) -> None:
        """See Post; nothing is thrown away."""
        self._office.expect_up()
        self._office.parcels[name] = parcel
        self._office.left.append(parcel)

    async def fetch(self, name: str) -> bytes | None:
        """See Post."""
        self._office.expect_up()
        return self._office.parcels.pop(name, None)
