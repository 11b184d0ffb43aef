"""Stores that fail or dawdle on demand: for the faults that no real store shows when a test wants them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.base import Store


class FailingStore:
    """Hands everything to `inner`, but raises StoreUnavailable for each operation that `failing` names."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self._fails_once: set[str] = set()
        self.failing: set[str] = set()
        self.fails_after: dict[str, str] = {}
        """From an operation to one that fails once, as soon as the first has worked."""
        self.fault: StoreFault | None = None
        """What keeps it from working, while it fails."""
        self.refused: list[str] = []
        """The operations that were refused, in order."""

    def recall(self, *_: object, **__: object) -> None:
        """Nothing, so that each look-up is a `load`."""

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.inner, name)

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
    """Hands everything to `inner`; an operation can be held up for the length of a block, before or once it is done."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self._held: dict[str, Callable[[], Awaitable[None]]] = {}
        self._held_when_done: dict[str, Callable[[], Awaitable[None]]] = {}
        self.running: Counter[str] = Counter()
        """How many of each operation are under way."""

    @contextmanager
    def holding(self, name: str, *, when_done: bool = False) -> Iterator[asyncio.Event]:
        """Hold that operation up until the end of the block; the event is set once somebody waits."""
        begun, released = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            begun.set()
            await released.wait()

        held = self._held_when_done if when_done else self._held
        held[name] = hold
        try:
            yield begun
        finally:
            del held[name]
            released.set()

    def recall(self, *_: object, **__: object) -> None:
        """Nothing, so that each look-up is a `load`."""

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.inner, name)

        async def perform(*args: Any, **kwargs: Any) -> Any:
            self.running[name] += 1
            try:
                if name in self._held:
                    await self._held[name]()
                value = await operation(*args, **kwargs)
                if name in self._held_when_done:
                    await self._held_when_done[name]()
                return value
            finally:
                self.running[name] -= 1

        return perform
