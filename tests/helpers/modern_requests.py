"""The published schemas as judges of what the gateway says to servers of the modern era, and the rules besides."""

from typing import Any, Final

from helpers.modern_schema import (
    CAPABILITIES,
    CLIENT,
    EXTENSION,
    RELATED,
    TASKS,
    check,
    definitions,
    expect,
    has,
)
from helpers.schema import is_of_extension

_OF_TASKS: Final = {
    "tasks/get": "GetTaskRequest",
    "tasks/update": "UpdateTaskRequest",
    "tasks/cancel": "CancelTaskRequest",
}


def check_client_message(message: dict[str, Any], *, serves_tasks: bool = False) -> None:
    """Judge a message of the gateway to a server of this era, which knows requests alone.

    `serves_tasks` is of a server that makes tasks of calls itself, and says so.
    """
    expect({"id", "method", "params"} <= set(message), "a server of this era is sent requests alone", message)
    params = message["params"]
    expect("task" not in params, "no server of this era is asked for a task", message)
    expect(not has(message, RELATED), "a server is told of a task of ours", message)
    expect(CLIENT in params["_meta"], "the gateway does not say who asks", message)
    follows = serves_tasks and _may_follow(message)
    extensions = params["_meta"][CAPABILITIES].get("extensions", {})
    told = {TASKS: extensions[TASKS]} if TASKS in extensions else None
    allowed = ({TASKS: {}} if follows else None, None if message["method"] == "tools/call" else {TASKS: {}})
    # A call may be plain: the server is told of the extension where it may become a task.
    expect(told in allowed[: 2 if follows else 1], "tasks are followed where there are, and nowhere", message)
    check(params, "RequestParams")
    if message["method"] in _OF_TASKS:
        expect(serves_tasks, "a server without tasks is asked about one", message)
        check(message, _OF_TASKS[message["method"]], schema=EXTENSION)
        check(params.get("inputResponses", {}), "InputResponses")
    elif is_of_extension(message["method"]):
        check(message, "JSONRPCRequest")
    else:
        check(message, definitions("ClientRequest").get(message["method"], "no such request"))


def _may_follow(message: dict[str, Any]) -> bool:
    """Whether a request may come to a task of its server's, or is about one."""
    wishes = message["params"].get("notifications", {})
    return message["method"] in (*_OF_TASKS, "tools/call") or "taskIds" in wishes
