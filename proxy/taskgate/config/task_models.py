"""The configuration of which calls become tasks, and how those are kept: the section `tasks`.

What lives here: its keys with types, defaults and bounds. What must not: rules between keys (task_coherence,
retention), what floors below make of them (rules).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

from taskgate.config.fields import (
    HOUR,
    MIB,
    MILLISECOND,
    MINUTE,
    SECOND,
    Count,
    Flag,
    Glob,
    Held,
    Positive,
    Section,
    Text,
    Words,
    ZeroOrMore,
)
from taskgate.config.numbers import NumberIn
from taskgate.config.retention import LONGEST
from taskgate.config.units import DurationIn
from taskgate.domain.policy import USUAL_RESPONSE

Hint = Literal["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
_Retention = Annotated[timedelta, DurationIn(most=LONGEST)]


class UpgradeRule(Section):
    """Which calls may become tasks."""

    upstream: Text | None = None
    """Name of the upstream that the rule is for; null means every one."""
    tool: Glob
    """Glob over names of tools: * is any text, ? any character, [ab] one of those.

    A rule for * alone is not for tools that only views of MCP Apps may call (_meta.ui.visibility without model): those
    stay sync unless another glob names them.
    """
    hints: Mapping[Hint, Flag] = {}
    """Annotations that the server must list for the tool, all of them, such as readOnlyHint: true; {} asks for none."""
    mode: Literal["sync", "auto", "always", "required"]
    """sync: never a task; auto and always: a task when the host asks; required: only as a task.

    Hosts of 2026-07-28 do not ask but say that they know tasks: then auto makes a call a task when it has not ended
    within the grace, always and required do so at once.
    """
    inline_grace: ZeroOrMore | None = None
    """As tasks.inline_grace, which null means; for mode auto."""
    ttl: _Retention | None = None
    """As tasks.ttl.default, which null means."""
    ttl_min: _Retention | None = None
    """As tasks.ttl.min, which null means."""
    ttl_max: _Retention | None = None
    """As tasks.ttl.max, which null means."""
    deadline: Positive | None = None
    """How long a task may run once it was sent; null means as long as upstreams.*.timeouts and the time to live let it.
    """
    cap: Count | None = None
    """Unfinished tasks of one tool, of all callers together; null means limits.concurrency.tasks_per_tool."""
    on_lost: Literal["fail", "rerun"] = "fail"
    """What becomes of a task whose process ended while its call may have been running.

    fail: it ends as failed, the outcome unknown; rerun: the call is sent once more.
    """
    join_retries: Positive | None = None
    """How long after a call began the same call of the same caller joins it, if it still runs; null means never."""
    immediate_response: Words | None = USUAL_RESPONSE
    """What a model may be told when its call became a task, {tool} being the tool's name; null or "" tells nothing."""
    shadow: Flag = False
    """Whether the rule only counts which calls it would have made tasks, and decides nothing."""


class TtlSection(Section):
    """How long a task is kept, counted from its creation. What a host asks for is brought within min and max."""

    default: _Retention = HOUR
    """For hosts that ask for nothing."""
    min: _Retention = MINUTE
    """The least that is given."""
    max: _Retention | None = None
    """The most that is given; null means 24h, and with auth.mode none 1h, which no other value may exceed then."""


class PollIntervalSection(Section):
    """How often hosts are asked to poll."""

    base: Positive = 2 * SECOND
    """What a task suggests as its poll interval while its server has room."""
    min: Positive = 500 * MILLISECOND
    """The least that is suggested."""
    max: Positive = 30 * SECOND
    """The most that is suggested."""
    adaptive: Flag = True
    """Whether it grows with the load of the server and the age of the task; else it is base."""
    jitter: Annotated[float, NumberIn(least=0, most=0.5)] = 0.1
    """By which part of itself it varies at random, so that hosts do not poll in step."""
    target_utilization: Annotated[float, NumberIn(least=0.01, most=1)] = 0.7
    """The part of a server's concurrency that may be in use before the interval grows."""


class EarlyPollSection(Section):
    """What becomes of polls that come sooner than was suggested. They are answered, and counted."""

    tolerance: Annotated[float, NumberIn(least=0, most=1)] = 0.5
    """Which part of the suggested interval must be over before a poll is not early."""
    reject_above: Annotated[float, NumberIn(least=1, most=1000)] = 10.0
    """How many times as often as suggested a host may poll a task before polls are refused; a suggestion that grew
    above poll_interval.base counts as that."""


class InputRequiredSection(Section):
    """Questions of servers to hosts."""

    max_wait: Positive = 30 * MINUTE
    """How long a question waits for the host's answer; then its server is told that there is none.

    Of hosts of 2026-07-28: also how long a call waits for its host to bring answers; then it is cancelled.
    """
    max_outstanding: Count = 8
    """How many questions of one task, or of one host session outside of tasks, may wait at once.

    Of hosts of 2026-07-28: of one call, and how many of one caller's calls may wait for answers at once.
    """


class TasksSection(Section):
    """Which calls become tasks, and how those are kept."""

    upgrade: tuple[UpgradeRule, ...] = (UpgradeRule(tool="*", mode="auto"),)
    """Which calls may become tasks: the first rule that matches decides, and without one a call is never a task."""
    ttl: TtlSection = TtlSection()
    inline_grace: ZeroOrMore = 5 * SECOND
    """How long a call of a host of 2026-07-28 with tasks is waited for before mode auto makes it one."""
    poll_interval: PollIntervalSection = PollIntervalSection()
    early_poll: EarlyPollSection = EarlyPollSection()
    input_required: InputRequiredSection = InputRequiredSection()
    max_result: Held = 16 * MIB
    """Largest result of a call that is kept. Beside answers a server may say as much at once, and 256 KiB a second."""
