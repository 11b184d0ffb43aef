"""A server of the legacy era cannot go on with a round: it has none."""

from datetime import timedelta

import pytest

from helpers.server import ScriptedServer
from helpers.upstream_calls import task_call
from taskgate.errors import UpstreamFailed
from taskgate.upstream.calls import NextRound
from unit.upstream.conftest import Caller


async def yes() -> bool:
    raise AssertionError("nothing is to leave")


async def test_a_round_of_a_server_that_was_of_the_other_era_is_refused_and_nothing_sent(
    server: ScriptedServer, caller: Caller
) -> None:
    span = timedelta(seconds=9)
    with pytest.raises(UpstreamFailed, match="rounds") as failed:
        await caller.session.call(
            task_call("echo", "{}", span, resumes=NextRound(None, {}, yes)),
            caller.heard.of_calls,
        )
    assert (failed.value.reason, failed.value.dispatched) == ("refused", True)
    assert server.heard("tools/call") == []
