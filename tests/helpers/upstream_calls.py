"""Calls of tasks, as the runner of tasks gives them to a session with a server."""

from datetime import timedelta
from typing import Any

from taskgate.protocol.messages import Params
from taskgate.upstream.calls import UpstreamCall


def task_call(
    tool: str = "echo", params: Params | str = "{}", within: timedelta = timedelta(seconds=60), **more: Any
) -> UpstreamCall:
    """The call of a task that has so much time for it."""
    found = Params(params) if isinstance(params, str) else params
    return UpstreamCall("tools/call", found, tool, as_task=True, within=within, **more)
