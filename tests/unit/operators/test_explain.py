"""Explanations that operators ask for: some are made at once, and more wait."""

import asyncio
from importlib.resources import files
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.auth.claims import MAX_TOKEN
from taskgate.operators.access import ApiError, Operator, Role
from taskgate.operators.explain import MAX_AT_ONCE, CallToExplain, ExplainRoutes
from taskgate.operators.routes import ApiCall, read_body

ASKED = b'{"upstream": "reports", "tool": "report", "token": "the-secret-of-a-caller"}'


def call() -> ApiCall:
    body = read_body(CallToExplain, "application/json", ASKED)
    return ApiCall(operator=Operator("looks", Role.VIEWER), parameters={}, query=None, body=body)


async def test_no_more_than_some_explanations_are_made_at_once() -> None:
    begun, most, end = 0, asyncio.Event(), asyncio.Event()

    async def explain(_call: CallToExplain) -> dict[str, Any]:
        nonlocal begun
        begun += 1
        if begun >= MAX_AT_ONCE:
            most.set()
        await end.wait()
        return {"number": begun}

    [route] = ExplainRoutes(explain).routes()
    async with bounded(), asyncio.TaskGroup() as group:
        answers = [group.create_task(route.handler(call())) for _ in range(MAX_AT_ONCE + 1)]  # type: ignore[arg-type]
        await most.wait()
        assert begun == MAX_AT_ONCE
        end.set()
    assert answers[-1].result().model_dump() == {"number": MAX_AT_ONCE + 1}


async def test_a_waiting_explanation_takes_the_place_of_one_that_failed() -> None:
    async def explain(_call: CallToExplain) -> dict[str, Any]:
        raise ApiError(404, "upstream_not_found", "there is no upstream of that name")

    [route] = ExplainRoutes(explain).routes()
    for _ in range(MAX_AT_ONCE + 1):
        async with bounded():
            with pytest.raises(ApiError, match="no upstream"):
                await route.handler(call())


def test_the_text_of_a_request_does_not_show_the_token() -> None:
    assert "the-secret-of-a-caller" not in repr(call())


def test_the_field_of_the_console_takes_a_token_as_long_as_the_api_does() -> None:
    page = files("taskgate.operators.console").joinpath("index.html").read_text()
    assert f'<input name="token" type="password" maxlength="{MAX_TOKEN}"' in page
