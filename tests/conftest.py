"""What every test gets."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from helpers.leaks import no_task_left_behind, nothing_left_behind
from helpers.manual_clock import ManualClock, SeededEntropy
from helpers.shared_store import redis_server, shared_options, shared_server, valkey_server
from helpers.told import MARKER, told
from taskgate.config import reload

__all__ = [
    "clock",
    "entropy",
    "no_task_left_behind",
    "nothing_left_behind",
    "redis_server",
    "shared_options",
    "shared_server",
    "told",
    "valkey_server",
]

# How long one example takes says more about the machine than about the code. "few" is for what no luck may decide,
# "many" for `make fuzz`.
settings.register_profile("taskgate", deadline=None, max_examples=50)
settings.register_profile("many", deadline=None, max_examples=1000)
settings.register_profile("few", deadline=None, max_examples=5, derandomize=True, database=None)
settings.load_profile("taskgate")

# Secrets that tests write are nobody else's, as those of operators have to be.
os.umask(0o027)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known by which a test is not judged by what it tells."""
    config.addinivalue_line("markers", MARKER)


def pytest_collection_finish() -> None:
    """Have what stays to the end, tests and modules, not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def usual_effort() -> Iterator[int]:
    """What fingerprints of configurations cost elsewhere; thousands of gateways that start here do not pay it."""
    with pytest.MonkeyPatch.context() as patch:
        usual = reload.SCRYPT_COST
        patch.setattr(reload, "SCRYPT_COST", 2)
        yield usual


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def entropy() -> SeededEntropy:
    """Chance that is the same in every run."""
    return SeededEntropy()
