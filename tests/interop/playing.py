"""What the scenes of refusals have in common: steps until one is refused, what it was told, and a wait as that says."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from interop.refusals import DATA, ENDS, FAILED, KINDS, RESULT, SCOPES, STATUS, STATUS_AND_BODY, Kind
from interop.staging import Stage
from interop.stepped import Connected, Told

UNKNOWN = "A" * 32
"""What could be the id of a task."""
LONGEST = 1000
"""Milliseconds that a test waits at most when it is told to."""
MAKERS = tuple(kind for kind in KINDS if kind.makes_tasks)


async def all_play(play: Callable[[Kind], Awaitable[None]], kinds: tuple[Kind, ...] = KINDS) -> None:
    """A scene with each of these hosts, all at once; AssertionError names those with which it went wrong."""
    came = await asyncio.gather(*(play(kind) for kind in kinds), return_exceptions=True)
    wrong = {kind.name: repr(each) for kind, each in zip(kinds, came, strict=True) if each is not None}
    assert wrong == {}


async def until_refused(step: Callable[[], Awaitable[Told]], *, most: int = 25) -> Told:
    """The first answer that is a refusal, in whatever way."""
    for _ in range(most):
        told = await step()
        if {"error", "thrown", "gone"} & told.keys() or told.get("is_error"):
            return told
    raise AssertionError(f"none of {most} was refused")


def refusal(told: Told, reason: str, code: int = 429) -> dict[str, Any]:
    """The data of an error that a host can read, which must have that reason and code."""
    assert "error" in told, told
    error = told["error"]
    assert (error["code"], error["data"]["origin"], error["data"]["reason"]) == (code, "gateway", reason), error
    data: dict[str, Any] = error["data"]
    return data


async def wait_as_told(data: dict[str, Any]) -> None:
    assert 0 < data["retryAfterMs"] <= LONGEST, data
    await asyncio.sleep(data["retryAfterMs"] / 1000)


async def begun(stage: Stage, host: Connected, key: str) -> "asyncio.Task[Told]":
    """A call that runs at the server until it is let go."""
    holding = asyncio.create_task(host.call("hold", key=key))
    await stage.ask(host.kind, "began", key)
    return holding


def word_for(told: Told) -> str:
    """What a host was told, in the words of the table."""
    if "gone" in told:
        return ENDS
    if "error" in told:
        return DATA if (told["error"]["data"] or {}).get("reason") else FAILED
    if "thrown" in told:
        name, text, status = told["thrown"]
        if name == "InsufficientScopeError" and "admin" in text:
            return SCOPES
        assert status in (403, 429), told
        return STATUS_AND_BODY if '"origin":"gateway"' in text else STATUS
    assert told["is_error"], told
    return RESULT
