"""Each store in turn: a new backend adds a name in backends.py and no test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.backends import NAMES, SHARED, Backend
from helpers.shared_store import expect_every_key_to_expire
from taskgate.stores.base import Store

PARAMS = [pytest.param(name, marks=[pytest.mark.program] if name in SHARED else []) for name in NAMES]


@pytest.fixture(scope="session", params=PARAMS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """The kind of store under test."""
    name = request.param
    return Backend(name, request.getfixturevalue(f"{name}_server") if name in SHARED else None)


@pytest.fixture
async def store(backend: Backend, tmp_path: Path) -> AsyncIterator[Store]:
    """An open, empty store; what is left in one that is shared has to expire."""
    options = None if backend.server is None else backend.server.options()
    opened = await backend.open(tmp_path, options)
    yield opened
    await opened.close()
    if backend.server is not None and options is not None:
        expect_every_key_to_expire(backend.server, options)
