"""The tools of the gateway, for models, and the handle of a call. Pure.

A host without tasks gets the handle of a late call in an ordinary result of a tool, in words for its
model. The handle is the id of a task. By one tool the model waits for the result, by another it
cancels the call (`docs/decisions/0108`). By the third, which is for hosts with tasks too, it finds
handles that were lost.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from taskgate.domain.listing import ListedTask
from taskgate.domain.machine import cancellation
from taskgate.domain.record import TaskId, TaskRecord, TaskStatus
from taskgate.errors import InvalidParams, TaskNotFound
from taskgate.jsontext.display import quoted
from taskgate.jsontext.edits import dump, removals, splice
from taskgate.jsontext.spans import Member, Members, RawJson, elements, members
from taskgate.protocol.discovery import filter_tools, hints_of
from taskgate.protocol.messages import is_task_id, value_of

MayHandOff = Callable[[str, Mapping[str, bool]], bool]
"""Returns whether a call of a tool may be handed off, by its name and its server's hints."""

MOST_TOKENS: Final = 400
"""The most tokens that the tools for one call may cost."""
MOST_LINES: Final = 20
"""The most lines of a list of calls."""
_LISTED_TOKENS: Final = 165
"""What their schemas and annotations cost."""
_WORDS: Final = re.compile(r"[A-Za-z]+|[^A-Za-z\s]")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}").fullmatch
"""The names that the specification recommends for tools."""

HANDLE: Final = "handle"
"""The name of the one argument of the tools for one call."""
NO_CALL: Final = "No call has this handle: it is misspelled, or the result is no longer kept"
"""What a model reads of a handle in place of "Task not found": its host knows no tasks."""


class GatewayTool(NamedTuple):
    """A tool of the gateway, as hosts list it."""

    name: str
    title: str
    description: str

    def listed(self, *, reads_only: bool, takes_handle: bool = True) -> RawJson:
        """The entry in `tools/list`."""
        argument = {"properties": {HANDLE: {"type": "string"}}, "required": [HANDLE]} if takes_handle else {}
        schema = {"type": "object", **argument, "additionalProperties": False}
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
LIST: Final = GatewayTool(
    "taskgate_tasks",
    "List calls",
    "Lists the tool calls of this user that still run, and those that have ended and whose result was not read: tool, "
    "age, state and handle, newest first. Use it when a handle is lost.",
)
"""The tool that lists calls. Only callers with a token have it."""


@dataclass(frozen=True, slots=True)
class HandoffTools:
    """The tools of a mount: `wait` returns the result of a call, `cancel` ends the call. `names` has LIST, too."""

    wait: GatewayTool
    cancel: GatewayTool
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset((self.wait.name, self.cancel.name, LIST.name)))

    @property
    def tokens(self) -> int:
        """About how many tokens of a model `wait` and `cancel` cost as listed; for prose rather more than that."""
        texts = " ".join((*self.wait, *self.cancel))
        return _LISTED_TOKENS + sum(_tokens_of(word) for word in _WORDS.findall(texts))

    def has(self, name: object) -> bool:
        """Whether that is the name of one of them."""
        return isinstance(name, str) and name in self.names

    def add_to(
        self,
        page: RawJson,
        may_hand_off: MayHandOff,
        *,
        is_first: bool = True,
        lists: bool = False,
        hidden: Set[str] = frozenset(),
    ) -> RawJson:
        """A page of `tools/list` for a host without tasks: the last one has the tools at its end.

        `lists` adds LIST. A list of one page has them only if it lists a tool that may be handed off. Such a
        tool has no output schema, as a handle is no instance of it. The page is without tools of the server
        that have these names, or `hidden` ones.
        """
        page = hide_tools(page, self.names | hidden)
        found = members(page)
        tools = found.get("tools")
        if tools is None or not tools.is_array:
            return page
        listed = page[tools.start : tools.end]
        others = elements(listed, {})
        late = [_may_hand_off(tool, may_hand_off) for tool in others]
        entries = [
            _without_schema(listed, tool) if is_late else listed[tool.start : tool.end]
            for tool, is_late in zip(others, late, strict=True)
        ]
        if "nextCursor" not in found and (any(late) or not is_first):
            entries += self.wait.listed(reads_only=True), self.cancel.listed(reads_only=False)
            if lists:
                entries.append(LIST.listed(reads_only=True, takes_handle=False))
        return splice(page, [(tools.start, tools.end, f"[{','.join(entries)}]")])

    def handle_text(self, record: TaskRecord, spent: str, progress: str | None) -> str:
        """What a model reads in place of a result that is not there yet; `spent` is the time so far.

        The result of a call that has ended is there, and too large for an answer that is an event stream.
        """
        tool = _named(record.call.tool)
        if record.status.is_terminal:
            return (
                f"The call of {tool} has ended. Its result is too large for this answer, which began before the "
                f"end of the call: do not call {tool} again for it. To get its result, call the tool "
                f'{self.wait.name} with {{"{HANDLE}": "{record.id}"}}.'
            )
        so_far = f" Its server reports: {quoted(progress)}." if progress else ""
        asks = record.status is TaskStatus.INPUT_REQUIRED
        now = "waits for an answer of the user to a question of its server" if asks else "still runs"
        return (
            f"The call of {tool} has run {spent}, and {now}.{so_far} It has not failed: "
            f"do not call {tool} again for it. To get its result, call the tool {self.wait.name} with "
            f'{{"{HANDLE}": "{record.id}"}}. To end it early, call {self.cancel.name} with the same argument.'
        )

    def cancelled_text(self, record: TaskRecord) -> str:
        """What a model reads of a call that is to be cancelled: that it was, or that it had ended before."""
        tool = _named(record.call.tool)
        if record.status is TaskStatus.CANCELLED:
            return f"The call of {tool} was cancelled{cancellation(record)}. It has no result."
        return f"The call of {tool} had ended before. The tool {self.wait.name} returns its result."

    def calls_text(self, tasks: Sequence[ListedTask], now: datetime, *, is_whole: bool, knows_tasks: bool) -> str:
        """What a model reads as the list of its user's calls, which are `tasks`, newest first.

        A line has a call and how its handle is used: by the tool `wait`, or by `tasks/get` of a host that
        `knows_tasks`. Beyond MOST_LINES, the last line says how many are not listed; with `is_whole` there are no
        others than `tasks`.
        """
        if not tasks and is_whole:
            return "No call runs, and no result waits to be read."
        is_listed = is_whole and len(tasks) <= MOST_LINES
        shown = tasks if is_listed else tasks[: MOST_LINES - 1]
        use = 'tasks/get with {"taskId": "' if knows_tasks else f'call {self.wait.name} with {{"{HANDLE}": "'
        lines = [
            f"{_named(task.tool)}, called {seconds_text(now - task.created_at)} ago, {_state_text(task)}: "
            f'{use}{task.id}"}}'
            for task in shown
        ]
        if not is_listed:
            least = "" if is_whole else "at least " if len(tasks) > len(shown) else "perhaps more than "
            lines.append(f"Older calls that are not listed: {least}{len(tasks) - len(shown)}")
        return "\n".join(lines)


def hide_tools(page: RawJson, names: Set[str]) -> RawJson:
    """A page of `tools/list` without the tools of the server that have these names, which are the gateway's.

    Models of hosts with several servers would take them for those of the gateway. As in `filter_tools`,
    nameless tools are left out, and a tool that repeats a key empties the page.
    """
    return filter_tools(page, lambda name: name not in names)


def add_list(page: RawJson, reserved: Set[str]) -> RawJson:
    """A page of `tools/list` for a host with tasks: the last one has LIST at its end.

    The page is without tools of the server that have `reserved` names.
    """
    page = hide_tools(page, reserved)
    found = members(page)
    tools = found.get("tools")
    if tools is None or not tools.is_array or "nextCursor" in found:
        return page
    listed = page[tools.start : tools.end]
    entries = [listed[tool.start : tool.end] for tool in elements(listed, {})]
    entries.append(LIST.listed(reads_only=True, takes_handle=False))
    return splice(page, [(tools.start, tools.end, f"[{','.join(entries)}]")])


def _state_text(task: ListedTask) -> str:
    """The state of a call for a model."""
    match task.status:
        case TaskStatus.WORKING:
            return "still runs"
        case TaskStatus.INPUT_REQUIRED:
            return "waits for an answer of the user"
        case TaskStatus.COMPLETED if not task.tool_error:
            return "has ended"
    return "has failed"


def _named(tool: str) -> str:
    """The name of a tool in the gateway's own words. Servers give names: one that is no plain word is quoted."""
    return tool if _PLAIN_NAME(tool) else quoted(tool)


def _tokens_of(word: str) -> int:
    """About how many tokens a word of ASCII letters costs, or another character."""
    if word.isascii():
        return -(-len(word) // 3)
    return 2 if word < "\U00010000" else 3


def handle_in(params: Members) -> object:
    """What a call has as its argument for a handle; None for nothing."""
    arguments = value_of(params, "arguments")
    return arguments.get(HANDLE) if isinstance(arguments, dict) else None


def read_handle(tool: str, params: Members) -> TaskId:
    """The handle in the arguments of a call of a tool for one call.

    Raises InvalidParams without one. A wrong form raises TaskNotFound, as an unknown handle does.
    """
    handle = handle_in(params)
    if not isinstance(handle, str):
        # A server may have a tool of that name, which no host can call.
        raise InvalidParams(f"{tool} is a tool of the gateway: its argument {HANDLE} must be a string")
    if not is_task_id(handle):
        raise TaskNotFound(NO_CALL)
    return handle


def text_result(text: str) -> RawJson:
    """The result of a tool that has only a text, and is no error."""
    return f'{{"content":[{{"type":"text","text":{dump(text)}}}],"isError":false}}'


def _may_hand_off(tool: Member, may_hand_off: MayHandOff) -> bool:
    name = value_of(tool.members or {}, "name")
    return isinstance(name, str) and may_hand_off(name, hints_of(tool.value))


def _without_schema(listed: str, tool: Member) -> RawJson:
    """The entry of a tool in the text of the list, without an output schema."""
    found = removals(tool.members or {}, ("outputSchema",))
    return splice(listed[tool.start : tool.end], [(a - tool.start, b - tool.start, "") for a, b, _ in found])


def seconds_text(age: timedelta) -> str:
    """A time in seconds or minutes, for people and models."""
    seconds = max(0, round(age.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min"
