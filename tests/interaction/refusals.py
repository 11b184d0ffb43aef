"""Requests of the modern era that are refused, and the check that nothing came of them."""

from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.host.answers import Answer
from helpers.modern_schema import TASKS
from helpers.server import ScriptedServer

NEEDED = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
TASK = "A" * 32  # an id that could be one
NAMED: dict[str, dict[str, Any]] = {
    "prompts/get": {"name": "right"},
    "resources/read": {"uri": "right"},
    "tasks/get": {"taskId": TASK},
    "tasks/cancel": {"taskId": TASK},
    "tasks/update": {"taskId": TASK, "inputResponses": {}},
}


def refused(answer: Answer, status: int, code: int) -> dict[str, Any]:
    """The error, once it is known to be that one."""
    assert (answer.status, answer.code) == (status, code), answer.message
    return answer.error


async def expect_nothing_done(gateway: Gateway, server: ScriptedServer) -> None:
    """No server was spoken to, and nothing is stored."""
    assert server.requests == []
    assert await gateway.count("taskgate_tasks_started_total") == 0
