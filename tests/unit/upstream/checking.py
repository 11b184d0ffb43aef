"""Checks that follow on each other as fast as a test wants them to, and what they found."""

from datetime import timedelta
from typing import Any

from helpers.waiting import eventually
from taskgate.upstream.settings import HealthSettings
from unit.upstream.conftest import Caller


def soon(**changes: Any) -> HealthSettings:
    """A health that asks for tools, with the changes that the test wants."""
    fast = {"interval": timedelta(milliseconds=5), "timeout": timedelta(seconds=5), "lists_tools": True}
    return HealthSettings(**(fast | changes))


async def checks(caller: Caller, count: int) -> list[tuple[bool, bool | None]]:
    """The first checks, once so many are over."""
    await eventually(lambda: len(caller.heard.health) >= count)
    return caller.heard.health[:count]
