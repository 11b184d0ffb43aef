"""Plain calls of the legacy era: carried when the gateway ends already, and told of in numbers that grow."""

import asyncio
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from helpers.records import new_peer
from helpers.waiting import bounded
from requirements import covers
from taskgate.admission.callers import principal_of
from taskgate.admission.connected_hosts import ConnectedHosts
from taskgate.auth.context import ANONYMOUS
from taskgate.errors import CutOff
from taskgate.gateway.calls import Calls
from taskgate.gateway.eras import Call, EraAdapter
from taskgate.gateway.legacy import LegacyListener
from taskgate.gateway.listeners import Keepalives, ResponseWaiter
from taskgate.protocol.host_requests import Relay
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import text_progress
from taskgate.system.timer_wheel import TimerWheel
from unit.gateway.modern.calling import Talk

KEEPALIVES = Keepalives(TimerWheel(60), 60)


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


def new_calls() -> Calls:
    nothing: Any = None
    return Calls(
        tasks=nothing,
        polls=nothing,
        coalescer=nothing,
        extensions=nothing,
        live=nothing,
        event_sink=nothing,
        clock=nothing,
        waiter=ResponseWaiter(timedelta(seconds=60)),
        handles=nothing,
        hosts=ConnectedHosts(),
    )


async def test_a_call_that_begins_after_the_others_were_given_up_is_cut_off_too() -> None:
    calls, exchange, dialect = new_calls(), Talk(), LegacyDownstream("1")
    server = Silent()
    host_session: Any = SimpleNamespace(
        upstream=server, calls={}, peer=new_peer(), caller=ANONYMOUS, principal=principal_of(ANONYMOUS)
    )
    listener = LegacyListener(exchange, None, calls.keepalives, dialect, host_session)
    request, no_adapter = Relay(1, "tools/list", None, None), cast(EraAdapter, None)
    call = Call(
        no_adapter, exchange, ANONYMOUS, host_session, request, 1, "tools/list", None, host_session.peer, listener
    )
    call.ends_with_host, call.cancellable = False, host_session.calls
    calls.stop()
    async with bounded():
        with pytest.raises(CutOff):
            await calls.proxy(call)
    assert server.was_cancelled
    assert host_session.calls == {}
    await calls.close()


@covers("L-PROG-1")
def test_what_a_server_says_in_words_is_told_after_signs_of_life_too() -> None:
    talk = Talk()
    listener = LegacyListener(talk, "p", KEEPALIVES, LegacyDownstream("1"), None)  # type: ignore[arg-type]
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
