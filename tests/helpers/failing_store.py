"""A store that fails on demand: for the one fault that no real store shows when a test wants it."""

from typing import Any

from taskgate.errors import StoreUnavailable
from taskgate.stores.base import Store


class FailingStore:
    """Hands everything to `inner`, but raises StoreUnavailable for each operation that `failing` names."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.failing: set[str] = set()
        self.refused: list[str] = []
        """The operations that were refused, in order."""

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)

        async def perform(*args: Any, **kwargs: Any) -> Any:
            if name in self.failing:
                self.refused.append(name)
                raise StoreUnavailable("The store fails, as the test wants")
            return await operation(*args, **kwargs)

        return perform
