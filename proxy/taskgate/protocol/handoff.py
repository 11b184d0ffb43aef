"""The two tools of the gateway, for hosts without tasks, and the handle of a call. Pure.

Such a host gets the handle of a late call in an ordinary result of a tool, in words for its model.
The handle is the id of a task. By one tool the model waits for the result, by the other it cancels
the call (`docs/decisions/0108`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from taskgate.domain.record import TaskId, TaskRecord, TaskStatus
from taskgate.errors import InvalidParams, MalformedMessage, TaskNotFound
from taskgate.jsontext.edits import dump, removals, splice
from taskgate.jsontext.spans import Member, Members, RawJson, elements, members
from taskgate.protocol.discovery import hints_of
from taskgate.protocol.messages import is_task_id, value_of

MayHandOff = Callable[[str, Mapping[str, bool]], bool]
"""Returns whether a call of a tool may be handed off, by its name and its server's hints."""

HANDLE: Final = "handle"
"""The name of the one argument of both tools."""


class GatewayTool(NamedTuple):
    """A tool of the gateway, as hosts list it."""

    name: str
    title: str
    description: str

    def listed(self, *, reads_only: bool) -> RawJson:
        """The entry in `tools/list`."""
        schema = {
            "type": "object",
            "properties": {HANDLE: {"type": "string"}},
            "required": [HANDLE],
            "additionalProperties": False,
        }
        hints = {"readOnlyHint": reads_only, "destructiveHint": not reads_only, "idempotentHint": True}
        return dump(
            {
                "name": self.name,
                "title": self.title,
                "description": self.description,
                "inputSchema": schema,
                "annotations": {**hints, "openWorldHint": False},
            }
        )


WAIT: Final = GatewayTool(
    "taskgate_wait",
    "Wait for a call",
    "Returns the result of a tool call that takes long, once it is known. Use it with the handle that such a call "
    "returned. If the call still runs, use it again with the same handle, until it returns the result.",
)
"""The tool that waits, unless the configuration has other words."""
CANCEL: Final = GatewayTool(
    "taskgate_cancel",
    "Cancel a call",
    "Ends a tool call that takes long and is no longer needed. Use it with the handle that such a call returned.",
)
"""The tool that cancels."""


@dataclass(frozen=True, slots=True)
class HandoffTools:
    """The two tools: `wait` returns the result of a call, `cancel` ends the call."""

    wait: GatewayTool
    cancel: GatewayTool

    def has(self, name: object) -> bool:
        """Whether that is the name of one of them."""
        return name in (self.wait.name, self.cancel.name)

    def add_to(self, page: RawJson, may_hand_off: MayHandOff) -> RawJson:
        """A page of `tools/list` for a host without tasks: the last one has both tools at its end.

        A tool that may be handed off has no output schema, as a handle is no instance of it. A tool of the
        server with the name of one of these is left out.
        """
        found = members(page)
        tools = found.get("tools")
        if tools is None or not tools.is_array:
            return page
        listed = page[tools.start : tools.end]
        try:
            others = [tool for tool in elements(listed, {}) if not self.has(value_of(tool.members or {}, "name"))]
            entries = [_without_schema(listed, tool, may_hand_off) for tool in others]
        except MalformedMessage:
            return page
        if "nextCursor" not in found:
            entries += self.wait.listed(reads_only=True), self.cancel.listed(reads_only=False)
        return splice(page, [(tools.start, tools.end, f"[{','.join(entries)}]")])

    def handle_text(self, record: TaskRecord, spent: str, progress: str | None) -> str:
        """What a model reads in place of a result that is not there yet; `spent` is the time so far."""
        so_far = f" Its newest progress: {progress}." if progress else ""
        return (
            f"The call of {record.call.tool} has run {spent}, and still runs.{so_far} It has not failed: "
            f"do not call {record.call.tool} again for it. To get its result, call the tool {self.wait.name} with "
            f'{{"{HANDLE}": "{record.id}"}}. To end it early, call {self.cancel.name} with the same argument.'
        )

    def cancelled_text(self, record: TaskRecord) -> str:
        """What a model reads of a call that is to be cancelled: that it was, or that it had ended before."""
        if record.status is TaskStatus.CANCELLED:
            return f"The call of {record.call.tool} was cancelled. It has no result."
        return f"The call of {record.call.tool} had ended before. The tool {self.wait.name} returns its result."


def read_handle(params: Members) -> TaskId:
    """The handle in the arguments of a call of one of the tools.

    Raises InvalidParams without one. A wrong form raises TaskNotFound, as an unknown handle does.
    """
    arguments = value_of(params, "arguments")
    handle = arguments.get(HANDLE) if isinstance(arguments, dict) else None
    if not isinstance(handle, str):
        raise InvalidParams(f"The argument {HANDLE} must be a string")
    if not is_task_id(handle):
        raise TaskNotFound
    return handle


def text_result(text: str) -> RawJson:
    """The result of a tool that has only a text, and is no error."""
    return f'{{"content":[{{"type":"text","text":{dump(text)}}}],"isError":false}}'


def _without_schema(listed: str, tool: Member, may_hand_off: MayHandOff) -> RawJson:
    """The entry of a tool in the text of the list, without an output schema if it may be handed off."""
    entry, found = listed[tool.start : tool.end], tool.members or {}
    name = value_of(found, "name")
    if "outputSchema" not in found or not isinstance(name, str) or not may_hand_off(name, hints_of(tool.value)):
        return entry
    edits = [(start - tool.start, end - tool.start, "") for start, end, _ in removals(found, ("outputSchema",))]
    return splice(entry, edits)


def seconds_text(age: timedelta) -> str:
    """A time in seconds or minutes, for people and models."""
    seconds = max(0, round(age.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min"
