"""Whole histories of stores that outlive the process, and in which no lease ends with it."""

import pytest
from hypothesis.stateful import rule

from contract.backends import Backend
from contract.test_histories import FEW, Histories
from helpers.shared_store import SharedServer


class Shared(Histories):
    @rule()
    def the_process_starts_again(self) -> None:
        self.runner.run(self.store.close())
        self.store = self.opened()


class InValkey(Shared):
    pass


class InRedis(Shared):
    pass


@pytest.fixture(scope="module")
def valkey_histories(valkey_server: SharedServer) -> None:
    InValkey.backend = Backend("valkey", valkey_server)


@pytest.fixture(scope="module")
def redis_histories(redis_server: SharedServer) -> None:
    InRedis.backend = Backend("redis", redis_server)


@pytest.mark.usefixtures("valkey_histories")
class TestInValkey(InValkey.TestCase):  # type: ignore[misc]
    settings = FEW


@pytest.mark.usefixtures("redis_histories")
class TestInRedis(InRedis.TestCase):  # type: ignore[misc]
    settings = FEW
