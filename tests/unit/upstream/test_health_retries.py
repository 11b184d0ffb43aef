"""A check that finds no connection is tried again as any request is, and nobody is told of that."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from taskgate.errors import UpstreamFailed
from taskgate.upstream.settings import Retries
from unit.upstream.checking import checks, soon
from unit.upstream.conftest import Caller

NOBODY = "http://127.0.0.1:1/mcp"
BRIEF = timedelta(milliseconds=1)


async def test_only_what_calls_are_tried_again_for_is_told(new_caller_of: Callable[..., Caller]) -> None:
    retries = Retries(attempts=2, backoff=BRIEF, max_backoff=BRIEF)
    caller = new_caller_of(NOBODY, health=soon(), retries=retries)
    caller.upstream.open()
    assert await checks(caller, 2) == [(False, None)] * 2
    assert caller.heard.retried == []
    with pytest.raises(UpstreamFailed):
        await caller.call()
    await caller.upstream.close()
    assert caller.heard.retried == ["connect"]
