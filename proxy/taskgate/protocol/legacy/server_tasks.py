"""Tasks that servers of 2025-11-25 make of calls: `LegacyServerTasks`.

A call asks for a task by its `task` member. The server then answers with the handle of a task.
`upstream/legacy` polls that task by `tasks/get` until it ends, and gets the outcome by
`tasks/result`. The outcome becomes the response to the call, as if there had been no task. It is
the server's text without the keys of `_meta` that name the task. For a failed task without a
result, the gateway writes a tool error.
"""

from datetime import timedelta
from typing import Any, Final

from taskgate.domain.record import RequestId, TaskStatus
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump, splice
from taskgate.jsontext.spans import Members, skip_space
from taskgate.protocol import vocabulary as names
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.jsonrpc import result_text
from taskgate.protocol.legacy.results import WITHOUT_TASK
from taskgate.protocol.messages import Notification, Params, Response, value_of
from taskgate.protocol.meta import edits_for
from taskgate.protocol.server_messages import TASK_MEMBERS, ServerTask, parse_response, read_server_task

MAX_TTL: Final = timedelta(milliseconds=2**31 - 1)
"""Longest TTL: released servers set a timer for it, which ends at once for anything longer."""

_DISTINCT_ID: Final = 8
"""Shortest task id, in characters, whose occurrence in an error counts as naming the task: a
shorter one may be there by chance.
"""

_UNKNOWN: Final = frozenset({names.INVALID_PARAMS, names.METHOD_NOT_FOUND})
"""Error codes by which a server says that it does not know the task."""
_RESULT_MEMBERS: Final = frozenset({"content", "structuredContent", "isError"})
"""Members of a tool result; one is enough to know it as such."""
_MILLISECOND: Final = timedelta(milliseconds=1)


class LegacyServerTasks:
    """Requests and responses about tasks of servers. It has no state; task ids are the server's own.

    A malformed response raises UpstreamFailed.
    """

    def is_supported(self, server: Peer) -> bool:
        """Whether the server makes tasks of calls on request (L-TOOL-6)."""
        found: Any = server.capabilities
        for name in ("tasks", "requests", "tools", "call"):
            found = found.get(name) if isinstance(found, dict) else None
        return server.revision.has_tasks and isinstance(found, dict)

    def with_task(self, params: Params, ttl: timedelta) -> Params:
        """The parameters of a call with a `task` member, which asks for a task of that ttl.

        The ttl is cut to what servers support. Parameters that are no object stay as they are.
        """
        # The head is the text before the progress token, or all of it: the object begins there.
        head = params.head
        at = head.find("{") + 1
        if at == 0:
            return params
        first = skip_space(head, at)
        comma = "" if head[first : first + 1] == "}" else ","
        member = f'"task":{{"ttl":{max(1, min(ttl, MAX_TTL) // _MILLISECOND)}}}{comma}'
        return Params(head[:at] + member + head[at:], params.tail)

    def params(self, task: str) -> Params:
        """The parameters of a `tasks/*` request about that task."""
        # The related-task key is not sent: servers that find it send the answer on the stream of
        # the task. Only `taskId` selects the task (L-GET-3).
        return Params(dump({"taskId": task}))

    def read_created(self, response: Response) -> ServerTask | None:
        """The task that a response announces; None for any other response, which is the call's
        own.
        """
        found = {} if response.result is None else response.result.members or {}
        task = value_of(found, "task") if "content" not in found else None
        if not isinstance(task, dict):
            return None
        return read_server_task(task, task.get("pollInterval"), is_new=True)

    def read_state(self, task: str, response: Response) -> ServerTask | None:
        """The task in a response to `tasks/get`; None if the server does not know it.

        Raises UpstreamFailed (refused) for any other error, which says nothing about the task.
        """
        if response.error is not None:
            if response.error_code in _UNKNOWN:
                return None
            raise _unknown_outcome()
        assert response.result is not None, "a response without an error has a result"
        now = _read_task(response.result.members or {})
        if now.id != task:
            raise protocol_violation("it returned another task than the one that was requested")
        return now

    def read_outcome(self, task: ServerTask, response: Response) -> Response | None:
        """The response to the call itself, from the response to `tasks/result`.

        `task` is the state at the last poll. A tool result counts whatever that state is; anything
        else is the outcome only if the task has ended. None if it has not, as far as known: the
        caller polls, and calls this again.

        Raises UpstreamFailed: `closed` if the server cancelled the task, `malformed` for a task
        without a result, `call_lost` if it completed and its result is gone. For `refused` nothing
        is known about the outcome, and the caller may ask again.
        """
        found = None if response.result is None else response.result.members
        if found is not None and not _RESULT_MEMBERS.isdisjoint(found):
            # A tool result is the outcome whatever the status: that is of the last poll, and older.
            return _without_task(response)
        is_about_task = response.error is not None and _names_task(task.id, response)
        match task.status:
            case TaskStatus.CANCELLED:
                raise _failed(UpstreamReason.CLOSED, "The server cancelled the call")
            # A failed task whose answer has neither a tool result nor an error of the call.
            case TaskStatus.FAILED if response.error is None or is_about_task:
                return _tool_error(response.id, task.message)
            case TaskStatus.FAILED:
                return response
            case TaskStatus.COMPLETED if response.error is not None:
                if response.error_code in _UNKNOWN:
                    raise _failed(UpstreamReason.CALL_LOST, "The server completed the call and did not keep its result")
                raise _unknown_outcome()
            case TaskStatus.COMPLETED if found is not None and found.keys() <= {"_meta", "task"}:
                # Released SDKs answer like this for a task that was completed without a result.
                raise protocol_violation("its task is completed and has no result")
            case TaskStatus.COMPLETED:
                return _without_task(response)
        return None


def read_status(notification: Notification) -> ServerTask | None:
    """The task in `notifications/tasks/status` of a server; None if its id or status is invalid."""
    try:
        return _read_task(notification.params)
    except UpstreamFailed:
        return None


def _read_task(found: Members) -> ServerTask:
    # A fraction of a millisecond is accepted: released servers send it.
    return read_server_task({name: value_of(found, name) for name in TASK_MEMBERS}, value_of(found, "pollInterval"))


def _names_task(task: str, response: Response) -> bool:
    """Whether the text of an error has the id of the task.

    Such an error is about the task, which hosts do not know. Any other is the error of the call.
    """
    assert response.error is not None, "only errors are passed here"
    return len(task) >= _DISTINCT_ID and task in response.text[response.error.start : response.error.end]


def _without_task(response: Response) -> Response:
    """The response without the keys of `_meta` that name a task or a stream, and without taskgate's
    own (T22).

    A `_meta` that has no other key goes too. Raises UpstreamFailed (malformed) if the result is no
    object.
    """
    assert response.result is not None, "only results are passed here"
    found = response.result.members
    if found is None:
        raise protocol_violation("the result of its task is not an object")
    edits = edits_for(found, response.result.start, WITHOUT_TASK)
    return parse_response(splice(response.text, edits)) if edits else response


def _tool_error(id: RequestId, message: str | None) -> Response:
    """A result with `isError` for a failed task without a result, as a call without a task would
    have.

    `message` is the task's status message, None without one.
    """
    text = message or "The server's task failed"
    return parse_response(result_text(id, dump({"content": [{"type": "text", "text": text}], "isError": True})))


def _unknown_outcome() -> UpstreamFailed:
    """The failure for an error that says neither how the task ended nor that it is unknown."""
    return _failed(UpstreamReason.REFUSED, "The server does not return the outcome of the call")


def _failed(reason: UpstreamReason, text: str) -> UpstreamFailed:
    return UpstreamFailed(reason, text, dispatched=True)
