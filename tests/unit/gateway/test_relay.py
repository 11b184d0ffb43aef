"""Plain calls of the legacy era: carried when the gateway ends already, and told of in numbers that grow."""

import asyncio
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.waiting import bounded
from requirements import covers
from taskgate.auth.context import ANONYMOUS
from taskgate.errors import CutOff
from taskgate.gateway.host_listener import Keepalives
from taskgate.gateway.relay import LegacyCall, PlainCallProxy, _CallForwarder
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import text_progress
from taskgate.system.timer_wheel import TimerWheel
from unit.gateway.modern.calling import Talk

KEEPALIVES = Keepalives(TimerWheel(60), 60, LegacyDownstream("1").progress)


class Silent:
    """A server that never answers."""

    def __init__(self) -> None:
        self.was_cancelled = False

    async def call(self, *_: Any) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


def new_relaying() -> PlainCallProxy:
    dialect = LegacyDownstream("1")
    return PlainCallProxy(dialect=dialect, patience=timedelta(seconds=60), sender=None)  # type: ignore[arg-type]


async def test_a_call_that_begins_after_the_others_were_given_up_is_cut_off_too() -> None:
    relaying = new_relaying()
    server = Silent()
    host_session: Any = SimpleNamespace(upstream=server, calls={})
    relaying.stop()
    async with bounded():
        with pytest.raises(CutOff):
            await relaying.send(
                LegacyCall(
                    exchange=Talk(),
                    caller=ANONYMOUS,
                    session=host_session,
                    id=1,
                    method="tools/list",
                    params=None,
                    progress_token=None,
                )
            )
    assert server.was_cancelled
    assert host_session.calls == {}
    relaying.close()


@covers("L-PROG-1")
def test_what_a_server_says_in_words_is_told_after_signs_of_life_too() -> None:
    talk = Talk()
    listener = _CallForwarder(talk, "p", KEEPALIVES, None, LegacyDownstream("1"))  # type: ignore[arg-type]
    behind = parse(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0}}', max_depth=9)
    assert isinstance(behind, Notification)
    for _ in range(3):
        listener.live()
    for notification in (text_progress(4, "half of it", 1), behind, text_progress(4, "most of it", 2, after=1)):
        listener.on_notification(notification)
    told = [json.loads(message)["params"] for message in talk.said]
    assert [each.get("message") for each in told] == ["Still running"] * 3 + ["half of it", "most of it"]
    numbers = [each["progress"] for each in told]
    assert numbers == sorted(set(numbers))
    assert {each["progressToken"] for each in told} == {"p"}
