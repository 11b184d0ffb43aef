"""Plain calls of the initialize era that come to be carried when the gateway ends already."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.auth.context import ANONYMOUS
from taskgate.engine.relay import Asked, Relaying
from taskgate.errors import CutOff
from unit.engine.facts import Facts
from unit.engine.stateless.calling import Talk


class Silent:
    """A server that never answers."""

    def __init__(self) -> None:
        self.was_cancelled = False

    async def relay(self, *_: Any, **__: Any) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


def new_relaying() -> Relaying:
    return Relaying(dialect=None, patience=timedelta(seconds=60), joining=None, audit=Facts())  # type: ignore[arg-type]


async def test_a_call_that_begins_after_the_others_were_given_up_is_cut_off_too() -> None:
    relaying = new_relaying()
    server = Silent()
    host_session: Any = SimpleNamespace(upstream=server, calls={})
    relaying.stop()
    async with bounded():
        with pytest.raises(CutOff):
            await relaying.forward(Talk(), ANONYMOUS, host_session, Asked(1, "tools/list", None, None))
    assert server.was_cancelled
    assert host_session.calls == {}
    relaying.close()
