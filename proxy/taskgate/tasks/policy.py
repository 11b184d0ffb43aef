"""Which calls become tasks, and for how long: the operator's rules as pure decisions.

Knows neither the file the rules came from nor how a dialect says them.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

USUAL_RESPONSE: Final = (
    "The call of {tool} was accepted and runs as a task. Its result is not known yet and follows when the task has "
    "ended; there is no need to call the tool again."
)
"""What a model is told of a call that became a task unless the operator has other words; see Rule."""


class Mode(StrEnum):
    """What an operator wants of a tool (decisions 5)."""

    SYNC = "sync"
    AUTO = "auto"
    ALWAYS = "always"
    REQUIRED = "required"


class TaskSupport(StrEnum):
    """What a host is told of a tool: the values of `execution.taskSupport`."""

    FORBIDDEN = "forbidden"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A mode for the tools of one upstream (None: of any) whose names match a glob, with regard to case.

    `immediate_response` is what models are told of a call that became a task, where `{tool}` stands for its tool; None
    tells nothing.
    """

    upstream: str | None
    tool: str
    mode: Mode
    immediate_response: str | None = None

    def matches(self, upstream: str, tool: str) -> bool:
        """Whether the rule speaks of that tool."""
        return self.upstream in (None, upstream) and (self.tool == "*" or fnmatchcase(tool, self.tool))


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules for tasks; the first matching rule wins, and a tool that none names stays synchronous."""

    rules: tuple[Rule, ...]
    ttl_default: timedelta
    ttl_min: timedelta
    ttl_max: timedelta
    poll_interval: timedelta
    tasks_per_context: int

    def mode(self, upstream: str, tool: str) -> Mode:
        """The mode of one tool."""
        rule = self._rule(upstream, tool)
        return Mode.SYNC if rule is None else rule.mode

    def immediate_response(self, upstream: str, tool: str) -> str | None:
        """What a model is told of a call that became a task, until its result is there (L-CREATE-4); None: nothing."""
        rule = self._rule(upstream, tool)
        if rule is None or not rule.immediate_response:
            return None
        return rule.immediate_response.replace("{tool}", tool)

    def support(self, upstream: str, tool: str, native: TaskSupport | None) -> TaskSupport:
        """What to tell a host of one tool.

        `native` is what its server says: a tool that the server only runs as a task of its own cannot be held for a
        host by a plain call (decisions f).
        """
        mode = self.mode(upstream, tool)
        if mode is Mode.SYNC or native is TaskSupport.REQUIRED:
            return TaskSupport.FORBIDDEN
        return TaskSupport.REQUIRED if mode is Mode.REQUIRED else TaskSupport.OPTIONAL

    def offers_tasks(self, upstream: str) -> bool:
        """Whether any tool of that upstream could become a task."""
        return any(rule.mode is not Mode.SYNC and rule.upstream in (None, upstream) for rule in self.rules)

    def clamp_ttl(self, requested: timedelta | None) -> timedelta:
        """The time to live that is granted: the default where none was asked for, else the nearest allowed."""
        if requested is None:
            return self.ttl_default
        return max(self.ttl_min, min(requested, self.ttl_max))

    def _rule(self, upstream: str, tool: str) -> Rule | None:
        for rule in self.rules:
            if rule.matches(upstream, tool):
                return rule
        return None
