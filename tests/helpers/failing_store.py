"""Stores that fail or dawdle on demand: for the faults that no real store shows when a test wants them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.base import Store


class FailingStore:
    """Hands everything to `inner`, but raises StoreUnavailable for each operation that `failing` names."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._fails_once: set[str] = set()
        self.failing: set[str] = set()
        self.fails_after: dict[str, str] = {}
        """From an operation to one that fails once, as soon as the first has worked."""
        self.fault: StoreFault | None = None
        """What keeps it from working, while it fails."""
        self.refused: list[str] = []
        """The operations that were refused, in order."""

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)

        async def perform(*args: Any, **kwargs: Any) -> Any:
            if name in self.failing or name in self._fails_once:
                self._fails_once.discard(name)
                self.refused.append(name)
                raise StoreUnavailable("The store fails, as the test wants", fault=self.fault)
            value = await operation(*args, **kwargs)
            if next_one := self.fails_after.pop(name, None):
                self._fails_once.add(next_one)
            return value

        return perform


class HoldingStore:
    """Hands everything to `inner`; an operation can be held up at its beginning for the length of a block."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._held: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}

    @contextmanager
    def holding(self, name: str) -> Iterator[asyncio.Event]:
        """Hold that operation up until the end of the block; the event is set once somebody waits."""
        begun, released = self._held[name] = asyncio.Event(), asyncio.Event()
        try:
            yield begun
        finally:
            del self._held[name]
            released.set()

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)

        async def perform(*args: Any, **kwargs: Any) -> Any:
            if name in self._held:
                begun, released = self._held[name]
                begun.set()
                await released.wait()
            return await operation(*args, **kwargs)

        return perform
