"""The cases of `protocol`: what goes in and what comes out, in the files of this folder."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from helpers.case_files import Case, Judge, Runner, rewrites
from helpers.schema import check_client_message, check_definition, check_server_message
from taskgate.protocol.classify import Route, classify
from taskgate.protocol.extensions import BUILT_IN, EVENTS, UI, ExtensionPolicy
from taskgate.protocol.headers import RequestHeaders
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.upstream import LegacyServerTasks, LegacyUpstream
from taskgate.protocol.messages import Message
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.modern.upstream import ModernUpstream
from unit.protocol.modern.judge import CORE, check, check_task, read

EVENTS_CROSS: Final = ExtensionPolicy(allowed={EVENTS: BUILT_IN[EVENTS], UI: BUILT_IN[UI]})


def classified(
    message: Message,
    headers: RequestHeaders,
    offers_tasks: bool = True,
    strict_names: bool = False,
    extensions: ExtensionPolicy = ExtensionPolicy(),  # noqa: B008 - a value
) -> Route:
    """The era of a message with these headers."""
    return classify(
        message,
        headers.version,
        lambda: headers,
        offers_tasks=offers_tasks,
        strict_names=strict_names,
        extensions=extensions,
    )


SUBJECTS: Final[dict[str, object]] = {
    "LegacyDownstream": LegacyDownstream("0.1.0"),
    "LegacyDownstream lists": LegacyDownstream("0.1.0", lists=True),
    "LegacyServerTasks": LegacyServerTasks(),
    "LegacyUpstream": LegacyUpstream("0.1.0", ExtensionPolicy()),
    "ModernDownstream": ModernDownstream("0.1.0"),
    "ModernUpstream": ModernUpstream("0.1.0", ExtensionPolicy()),
    "ModernUpstream events": ModernUpstream("0.1.0", EVENTS_CROSS),
}
_ANSWERS: Final = {
    "pong": "ping",
    "task_cancelled": "tasks/cancel",
    "task_outcome": "tasks/result",
    "task_page": "tasks/list",
    "task_state": "tasks/get",
    "task_status": None,
    "text_result": "tools/call",
    "welcome": "initialize",
    "withdrawal": None,
}
"""What the messages of legacy hosts answer."""
VALUES: Final[dict[str, Any]] = {
    "@usual": ExtensionPolicy(),
    "@others": ExtensionPolicy(others=True),
    "@events": EVENTS_CROSS,
}


def _answers(method: str | None, *, as_task: bool = False) -> Judge:
    """Judges messages to legacy hosts; None for those that answer no request."""
    return lambda text, _: check_server_message(text, request_method=method, as_task=as_task)


def _fits(*names: str, schema: str = CORE) -> Judge:
    """Judges messages to modern hosts by the definition of what they hold: a result, or parameters."""
    return lambda text, _: check(_held(text), *names, schema=schema)


def _held(text: str) -> Any:
    message = read(text)
    return message.get("result", message)


def _sends(text: str, arguments: Mapping[str, Any]) -> None:
    """Judges messages to legacy servers."""
    check_client_message(text)


JUDGES: Final[dict[str, Judge]] = {
    **{f"legacy.downstream.LegacyDownstream.{name}": _answers(method) for name, method in _ANSWERS.items()},
    "legacy.downstream.LegacyDownstream.task_created": _answers("tools/call", as_task=True),
    "legacy.questions.encode_input_request": _answers("tasks/result"),
    "legacy.questions.encode_progress": _answers(None),
    "legacy.questions.encode_question": _answers(None),
    "legacy.questions.encode_withdrawal": _answers(None),
    "legacy.tasks.create_result": lambda text, _: check_definition(json.loads(text), "CreateTaskResult"),
    "legacy.tasks.list_result": lambda text, _: check_definition(json.loads(text), "ListTasksResult"),
    "legacy.upstream.LegacyUpstream.call": _sends,
    "legacy.upstream.LegacyUpstream.cancel": _sends,
    "legacy.upstream.LegacyUpstream.handshake": _sends,
    "modern.capabilities.declared": lambda found, _: check(found, "ClientCapabilities"),
    "modern.downstream.ModernDownstream.discovery": _fits("DiscoverResult"),
    "modern.downstream.ModernDownstream.progress": _fits("ProgressNotification"),
    "modern.downstream.ModernDownstream.subscription_ended": _fits("SubscriptionsListenResult"),
    "modern.downstream.ModernDownstream.subscription_granted": _fits("SubscriptionsAcknowledgedNotification"),
    "modern.downstream.ModernDownstream.stream_notification": _fits("JSONRPCNotification"),
    "modern.downstream.ModernDownstream.notification": _fits("JSONRPCNotification"),
    "modern.downstream.ModernDownstream.text_result": _fits("CallToolResult"),
    "modern.downstream.ModernDownstream.task_created": lambda text, _: check_task(_held(text), "CreateTaskResult"),
    "modern.downstream.ModernDownstream.task_notification": lambda text, _: check_task(text, "TaskStatusNotification"),
    "modern.rounds.input_responses": lambda text, _: check(text, "InputResponses"),
    "modern.tasks.acknowledgement": lambda text, _: check_task(text, "UpdateTaskResult", "CancelTaskResult"),
    "modern.tasks.create_result": lambda text, _: check_task(text, "CreateTaskResult"),
    "modern.tasks.get_result": lambda text, _: check_task(text, "GetTaskResult"),
    "modern.tasks.task_notification": lambda text, _: check_task(text, "TaskStatusNotification"),
}
"""Functions whose results the published schemas define."""

RUNNER: Final = Runner("protocol", own={"classified": classified}, subjects=SUBJECTS, values=VALUES, judges=JUDGES)


@pytest.mark.parametrize("cases", RUNNER.sections.values(), ids=RUNNER.sections)
def test_each_input_has_its_output(cases: list[Case], request: pytest.FixtureRequest) -> None:
    RUNNER.check(cases, rewrite=rewrites(request))
