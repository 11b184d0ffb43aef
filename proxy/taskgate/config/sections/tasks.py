"""Section `tasks`: which calls become tasks, how long tasks are stored, and how they are polled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import starmap
from typing import Annotated, Final, Literal

from pydantic import StringConstraints

from taskgate.admission.rules import QuestionBounds
from taskgate.config.fields import (
    HOUR,
    MIB,
    MILLISECOND,
    MINUTE,
    SECOND,
    Count,
    Duration,
    DurationIn,
    Flag,
    Glob,
    LongText,
    MemorySize,
    NumberIn,
    PositiveDuration,
    Section,
    Text,
    write_duration,
)
from taskgate.config.problems import Conflict, Location, dotted, duration, list_at, mapping_at, order_conflict, value_at
from taskgate.config.sections.auth import auth_mode
from taskgate.domain.handoff import CEILINGS, CEILINGS_WITH_PROGRESS, Ceiling, HandoffRules
from taskgate.domain.policy import DEFAULT_RESPONSE, Handoff, OnLost, PromotionMode, PromotionPolicy, PromotionRule
from taskgate.domain.polling import PollPolicy
from taskgate.protocol.handoff import CANCEL, LIST, MOST_TOKENS, WAIT, GatewayTool, HandoffTools

MAX_TTL: Final = timedelta(days=7)
"""The bound of every time to live."""
LONGEST_ANONYMOUS: Final = HOUR
"""How long a result is kept without authentication, at most: all hosts are one caller then. A call may take longer."""
DEFAULT_TTL_MAX: Final = 24 * HOUR

NEVER: Final = "never"

_TTL: Final = ("tasks", "ttl")
_RULES: Final = ("tasks", "upgrade")
_TOOLS: Final = ("tasks", "handoff", "tools")
_USUAL_TOOLS: Final = (("wait", WAIT), ("cancel", CANCEL))
_TASK_KEYS: Final = ("ttl", "ttl_min", "ttl_max", "deadline", "cap", "handoff")
"""Keys of a rule that only tasks have a use for."""
_TTL_KEYS: Final = {"ttl_min": "min", "ttl": "default", "ttl_max": "max"}
"""Keys of a rule, and those of `tasks.ttl` that they replace."""
_KEPT_KEYS: Final = ("min", "default", "keep")
_KEPT_KEYS_OF_RULES: Final = ("ttl_min", "ttl")
"""The keys that say how long results are kept, as `max` does not."""

ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Hint = Literal["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
Announcement = Literal["always", "never"]
_Ttl = Annotated[timedelta, DurationIn(most=MAX_TTL)]
_PollGrace = Annotated[timedelta, DurationIn(least=timedelta(), most=10 * SECOND)]


class HandoffRule(Section):
    """When a call of a host without tasks is answered with a handle in place of its result."""

    after: PositiveDuration
    """How long such a call may take. A host that gives up sooner is answered just before that."""
    ceiling: PositiveDuration | None = None
    """How long hosts wait for an answer; null means tasks.handoff.ceilings, or tasks.handoff.ceiling."""
    on_disconnect: Literal["keep", "cancel"] = "keep"
    """What a lost connection does to such a call.

    keep: it goes on as a task, which the same call made again finds; cancel: it is cancelled. With
    join_retries: never no call could find it, so it is as without handoff.
    """

    def to_terms(self, *, joins: bool) -> Handoff:
        """Return the terms of the policy; `joins` is whether an equal call joins one that runs."""
        return Handoff(self.after, self.ceiling, joins, self.on_disconnect == "cancel")


class UpgradeRule(Section):
    """A rule for which calls may become tasks."""

    upstream: Text | None = None
    """Name of the upstream that the rule applies to; null means every one."""
    tool: Glob
    """Glob over names of tools: * is any text, ? any character, [ab] one of those.

    A rule for * alone does not apply to tools that only views of MCP Apps may call
    (_meta.ui.visibility without model): those stay sync unless another glob names them.
    """
    hints: Mapping[Hint, Flag] = {}
    """Annotations that the server must list for the tool, all of them, such as readOnlyHint: true;
    {} asks for none.
    """
    mode: Literal["sync", "auto", "always", "required"]
    """sync: never a task; auto and always: a task when the host asks; required: only as a task.

    Hosts of 2026-07-28 do not ask for tasks, but declare that they support them. For those, auto
    makes a call a task when it has not ended within inline_grace; always and required do so at
    once.
    """
    inline_grace: Duration | None = None
    """Replaces tasks.inline_grace, for mode auto; null keeps it."""
    ttl: _Ttl | None = None
    """Replaces tasks.ttl.default; null keeps it."""
    ttl_min: _Ttl | None = None
    """Replaces tasks.ttl.min; null keeps it, or means ttl where that is null too."""
    ttl_max: _Ttl | None = None
    """Replaces tasks.ttl.max; null keeps it."""
    deadline: PositiveDuration | None = None
    """How long a task may run after its call was sent; null means as long as upstreams.*.timeouts
    and tasks.ttl.max allow.
    """
    cap: Count | None = None
    """The most unfinished tasks of one tool, of all callers together; null means
    limits.concurrency.tasks_per_tool.
    """
    on_lost: Literal["fail", "rerun"] = "fail"
    """What happens to a task whose gateway process ended while its call may have been running.

    fail: the task fails, its outcome unknown; rerun: the call is sent once more.
    """
    join_retries: PositiveDuration | Literal["never"] | None = None
    """How long after the start of a call an equal call of the same caller joins it while it runs.
    Both hosts may be connected, so set it for tools that only read. Null means never; with handoff
    it means that a call joins one whose host is gone, while it runs and for
    tasks.handoff.retry_window. With handoff it must be null or never.
    """
    handoff: HandoffRule | None = None
    """Whether a call of a host without tasks may be answered with a handle; null means that it blocks.

    With mode always such a call is stored as a task before it is sent.
    """
    announce: Announcement | None = None
    """Replaces tasks.announce; null keeps it."""
    immediate_response: LongText | None = DEFAULT_RESPONSE
    """The text for the model when its call became a task, with {tool} for the tool's name; null or
    "" means none.
    """
    shadow: Flag = False
    """Whether the rule only counts the calls that it would have made tasks, and decides nothing."""

    def to_rule(self) -> PromotionRule:
        """Return the rule of the policy."""
        return PromotionRule(
            upstream=self.upstream,
            tool=self.tool,
            hints=dict(self.hints.items()),
            mode=PromotionMode(self.mode),
            inline_grace=self.inline_grace,
            ttl=self.ttl,
            ttl_min=self.ttl_min,
            ttl_max=self.ttl_max,
            deadline=self.deadline,
            cap=self.cap,
            on_lost=OnLost(self.on_lost),
            join_retries=None if self.join_retries == NEVER else self.join_retries,
            handoff=None if self.handoff is None else self.handoff.to_terms(joins=self.join_retries != NEVER),
            announce=None if self.announce is None else self.announce == "always",
            immediate_response=self.immediate_response,
            shadow=self.shadow,
        )


class TtlSection(Section):
    """Time to live of a task, from its creation. What a host requests is adjusted to min and max. It
    ends no call: it grows while the task runs.
    """

    default: _Ttl = HOUR
    """The time to live for hosts that request none. With auth.mode none it is at most 1h, as are min and
    keep.
    """
    min: _Ttl | None = None
    """The shortest time to live; null means default, or ttl of the rule."""
    max: _Ttl | None = None
    """The longest time to live, and the age at which a task ends whose call still runs; null means 24h."""
    keep: _Ttl = 30 * MINUTE
    """How long a task is kept from its end on, at least, but no longer than max."""


class PollIntervalSection(Section):
    """The poll interval that tasks suggest to hosts."""

    base: PositiveDuration = 2 * SECOND
    """The suggested interval while the server has spare concurrency, for a task that is no longer new."""
    min: PositiveDuration = 100 * MILLISECOND
    """The shortest interval that is suggested, as for a new task. From then on it is half of the age of the
    task, up to base.
    """
    max: PositiveDuration = 30 * SECOND
    """The longest interval that is suggested."""
    adaptive: Flag = True
    """Whether it grows with the load of the server and the age of the task; else it is base."""
    jitter: Annotated[float, NumberIn(least=0, most=0.5)] = 0.1
    """The part of the interval by which it varies at random, so that hosts do not poll in step."""
    target_utilization: Annotated[float, NumberIn(least=0.01, most=1)] = 0.7
    """The part of a server's concurrency that may be in use before the interval grows."""


class EarlyPollSection(Section):
    """Polls that come sooner than suggested. They are answered and counted."""

    tolerance: Annotated[float, NumberIn(least=0, most=1)] = 0.5
    """The part of the suggested interval after which a poll is no longer early."""
    reject_above: Annotated[float, NumberIn(least=1, most=1000)] = 10.0
    """How many times as often as suggested a host may poll a task before polls are refused. A
    suggestion above poll_interval.base counts as poll_interval.base.
    """


class InputRequiredSection(Section):
    """Questions of servers to hosts."""

    max_wait: PositiveDuration = 30 * MINUTE
    """How long a question waits for the host's answer; then its server is told that there is none.

    Of hosts of 2026-07-28: also how long a call waits for its host to bring answers; then it is
    cancelled.
    """
    max_outstanding: Count = 8
    """How many questions of one task, or of one host session outside of tasks, may wait at once.

    Of hosts of 2026-07-28: of one call, and how many of one caller's calls may wait for answers at
    once.
    """

    def to_bounds(self) -> QuestionBounds:
        """Return the bounds of questions."""
        return QuestionBounds(self.max_wait, self.max_outstanding)


class HandoffToolSection(Section):
    """A tool of the gateway, as hosts without tasks list it."""

    name: ToolName | None = None
    """Its name; null means taskgate_wait or taskgate_cancel. With a rule that has handoff, no host gets a tool
    of that name from any server.
    """
    title: Text | None = None
    """Its title for people; null keeps the built-in one."""
    description: LongText | None = None
    """What models read about it; null keeps the built-in text."""

    def to_tool(self, usual: GatewayTool) -> GatewayTool:
        """Return the tool, with what is not given as in `usual`."""
        return GatewayTool(self.name or usual.name, self.title or usual.title, self.description or usual.description)


class HandoffToolsSection(Section):
    """The tools by which models of hosts without tasks reach calls that were handed off."""

    wait: HandoffToolSection = HandoffToolSection()
    """The tool that waits for a result."""
    cancel: HandoffToolSection = HandoffToolSection()
    """The tool that cancels a call."""


class HandoffSection(Section):
    """The answers to late calls of hosts without tasks, under a rule with handoff."""

    ceilings: Mapping[Glob, PositiveDuration] = {}
    """How long hosts wait, by a glob over the name in their clientInfo. Built in, unless an entry has the
    same glob: what is known of released hosts (docs/hosts-without-tasks.md).
    """
    ceilings_with_progress: Mapping[Glob, PositiveDuration] = {}
    """The same for a call whose host asked for progress, where progress extends its wait; merged in the
    same way.
    """
    ceiling: PositiveDuration = 50 * SECOND
    """How long all other hosts wait."""
    retry_window: PositiveDuration = 5 * MINUTE
    """How long after its end a result that was not fetched answers the same call made again."""
    tools: HandoffToolsSection = HandoffToolsSection()

    def to_rules(self) -> HandoffRules:
        """Return the rules, with the built-in ceilings behind those of the file."""
        # A host whose ceiling the file sets has no built-in one with progress.
        known = {name: wait for name, wait in CEILINGS_WITH_PROGRESS.items() if name not in self.ceilings}
        return HandoffRules(
            ceilings=_behind(self.ceilings, CEILINGS),
            with_progress=_behind(self.ceilings_with_progress, known),
            usual=self.ceiling,
            retry_window=self.retry_window,
        )

    def to_tools(self) -> HandoffTools:
        """Return the tools."""
        return HandoffTools(self.tools.wait.to_tool(WAIT), self.tools.cancel.to_tool(CANCEL))


def _behind(own: Mapping[str, timedelta], usual: Mapping[str, timedelta]) -> tuple[Ceiling, ...]:
    """Return the entries of the file, and behind them the built-in ones of other globs."""
    others = ((client, longest) for client, longest in usual.items() if client not in own)
    return (*starmap(Ceiling, own.items()), *starmap(Ceiling, others))


class TasksSection(Section):
    """Which calls become tasks, and how tasks are stored and polled."""

    upgrade: tuple[UpgradeRule, ...] = (UpgradeRule(tool="*", mode="auto"),)
    """Rules for which calls may become tasks: the first that matches decides. A call without one is
    never a task.
    """
    ttl: TtlSection = TtlSection()
    inline_grace: Duration = 5 * SECOND
    """How long mode auto waits for the answer to a call before it makes the call a task, for hosts
    of 2026-07-28 that support tasks.
    """
    announce: Announcement = "always"
    """Whether hosts of 2025-11-25 see execution.taskSupport of each tool, by the mode of its rule.

    never: their lists have what the server lists, to the byte. Calls with task become tasks all the same.
    """
    inbox: Flag = False
    """Whether hosts that know tasks list the tool taskgate_tasks, by which models find the caller's tasks. Hosts
    without tasks list it under a rule with handoff. It needs auth.mode required.
    """
    poll_grace: _PollGrace = 500 * MILLISECOND
    """The age of a task up to which a poll waits for its end, or for its first question. These waits count
    as waits for results; beyond those limits, a poll is answered at once. 0s: no poll waits.
    """
    poll_interval: PollIntervalSection = PollIntervalSection()
    early_poll: EarlyPollSection = EarlyPollSection()
    input_required: InputRequiredSection = InputRequiredSection()
    handoff: HandoffSection = HandoffSection()
    max_result: MemorySize = 16 * MIB
    """The largest result of a call. Beside answers a server may send as much at once, and 256 KiB a
    second.
    """

    def to_policy(self, mode: str) -> PromotionPolicy:
        """Return the policy for tasks, its rules in the order of the file; `mode` is `auth.mode`."""
        return PromotionPolicy(
            rules=tuple(rule.to_rule() for rule in self.upgrade),
            ttl_default=self.ttl.default,
            ttl_min=self.ttl.min,
            ttl_max=self.ttl.max or DEFAULT_TTL_MAX,
            inline_grace=self.inline_grace,
            ttl_longest=LONGEST_ANONYMOUS if mode == "none" else None,
            ttl_keep=self.ttl.keep,
            announces=self.announce == "always",
        )

    def to_reserved(self, policy: PromotionPolicy) -> frozenset[str]:
        """Return the names that tools of the gateway have at some mount; `policy` is that of these rules."""
        if policy.hands_off():
            return self.handoff.to_tools().names
        return frozenset((LIST.name,)) if self.inbox else frozenset()

    def to_polling(self) -> PollPolicy:
        """Return how hosts are asked to poll, and which polls are early."""
        return PollPolicy(
            base=self.poll_interval.base,
            least=self.poll_interval.min,
            most=self.poll_interval.max,
            grace=self.poll_grace,
            adaptive=self.poll_interval.adaptive,
            jitter=self.poll_interval.jitter,
            target=self.poll_interval.target_utilization,
            tolerance=self.early_poll.tolerance,
            reject_above=self.early_poll.reject_above,
        )


# --- times to live, which depend on `auth.mode` ---------------------------------------------------------------------


def with_ttl_max(raw: object) -> object:
    """Fill in `tasks.ttl.max` where it is null or absent; malformed parts stay as they are."""
    if not isinstance(raw, Mapping):
        return raw
    tasks = raw.get("tasks", {})
    ttl = tasks.get("ttl", {}) if isinstance(tasks, Mapping) else None
    if not isinstance(ttl, Mapping) or ttl.get("max") is not None:
        return raw
    return {**raw, "tasks": {**tasks, "ttl": {**ttl, "max": write_duration(DEFAULT_TTL_MAX)}}}


# --- rules between keys ---------------------------------------------------------------------------------------------


def task_conflicts(raw: object, defaults: object) -> Iterator[Conflict]:
    """Find conflicts between keys of `tasks`, and with `auth.mode`."""
    yield from _ttl_conflicts(raw, defaults)
    for index, rule in enumerate(map(mapping_at, list_at(raw, *_RULES))):
        yield from _mode_conflicts(rule, (*_RULES, index))
        if mapping_at(rule, "handoff") and rule.get("join_retries") not in (None, NEVER):
            yield (*_RULES, index, "join_retries"), "must be null or never with handoff, under which equal calls join"
        yield from _rule_ttl_conflicts(rule, (*_RULES, index), raw, defaults)
    yield from _unreachable_rules(raw)
    yield from _tool_conflicts(raw)
    if mapping_at(raw, "tasks").get("inbox") is True and auth_mode(raw) == "none":
        yield ("tasks", "inbox"), "must be false with auth.mode none, where all hosts are one caller"
    if mapping_at(raw, "tasks", "poll_interval"):
        yield from _order_conflicts((raw, defaults), ("tasks", "poll_interval"), "base", DurationIn())


def _tool_conflicts(raw: object) -> Iterator[Conflict]:
    """Find tools of the gateway with one name, or with longer texts than models should read."""
    wait, cancel = (_tool_in(mapping_at(raw, *_TOOLS, tool), usual) for tool, usual in _USUAL_TOOLS)
    for key, tool in (("wait", wait), ("cancel", cancel)):
        if tool.name == LIST.name:
            yield (*_TOOLS, key, "name"), "must differ from the name of the tool of the gateway that lists tasks"
            return
    if wait.name == cancel.name:
        yield (*_TOOLS, "cancel", "name"), f"must differ from {dotted((*_TOOLS, 'wait', 'name'))}"
    elif (tokens := HandoffTools(wait, cancel).tokens) > MOST_TOKENS:
        yield _TOOLS, f"must cost at most {MOST_TOKENS} tokens with names, titles and descriptions, not about {tokens}"


def _tool_in(given: Mapping[str, object], usual: GatewayTool) -> GatewayTool:
    """Return a tool with the texts of the file; malformed ones read as absent."""
    name, title, description = (given.get(key) or text for key, text in zip(usual._fields, usual, strict=True))
    return GatewayTool(str(name), str(title), str(description))


def _ttl_conflicts(raw: object, defaults: object) -> Iterator[Conflict]:
    """Find times to live above the bound of the mode, or not in order."""
    given, are_too_long = mapping_at(raw, *_TTL), False
    for key in _KEPT_KEYS:
        # One above MAX_TTL is malformed whatever the mode.
        length = value_at((raw, {}), (*_TTL, key), DurationIn(most=MAX_TTL).read) if key in given else None
        for conflict in _anonymous_conflicts(length, (*_TTL, key), raw):
            yield conflict
            are_too_long = True
    if are_too_long:
        return
    given = {key: value for key, value in given.items() if value is not None}
    usual = {"min": None, **mapping_at(defaults, *_TTL), "max": write_duration(DEFAULT_TTL_MAX)}
    yield from _order_conflicts(
        ({"tasks": {"ttl": given}}, {"tasks": {"ttl": usual}}), _TTL, "default", DurationIn(most=MAX_TTL)
    )


def _anonymous_conflicts(length: timedelta | None, here: Location, raw: object) -> Iterator[Conflict]:
    """Find a result that would be kept for too long without authentication."""
    if length and length > LONGEST_ANONYMOUS and auth_mode(raw) == "none":
        yield here, f"must be at most {write_duration(LONGEST_ANONYMOUS)} with auth.mode none"


def _order_conflicts(
    trees: tuple[object, object], here: tuple[str, ...], middle: str, bounds: DurationIn
) -> Iterator[Conflict]:
    """Find the first conflict among `min`, `max` and the key between them."""
    for lower, upper in (("min", "max"), ("min", middle), (middle, "max")):
        conflict = order_conflict(trees, (*here, lower), (*here, upper), bounds)
        if conflict:
            yield conflict
            return


def _mode_conflicts(rule: Mapping[str, object], here: Location) -> Iterator[Conflict]:
    mode = rule.get("mode")
    if not isinstance(mode, str):
        return
    if mode != "auto" and rule.get("inline_grace") is not None:
        yield (*here, "inline_grace"), "must be null unless mode is auto"
    if mode == "sync":
        for key in _TASK_KEYS:
            if rule.get(key) is not None:
                yield (*here, key), "must be null with mode sync, which makes no tasks"
        if rule.get("on_lost") == "rerun":
            yield (*here, "on_lost"), "must be fail with mode sync, which makes no tasks"


def _rule_ttl_conflicts(
    rule: Mapping[str, object], here: Location, raw: object, defaults: object
) -> Iterator[Conflict]:
    given = {key: duration(rule.get(key)) for key in _TTL_KEYS}
    for key in _KEPT_KEYS_OF_RULES:
        for conflict in _anonymous_conflicts(given[key], (*here, key), raw):
            yield conflict
            return
    for lower, upper in (("ttl_min", "ttl_max"), ("ttl_min", "ttl"), ("ttl", "ttl_max")):
        if given[lower] is None and given[upper] is None:
            continue
        least = given[lower] or _ttl_of_tasks(_TTL_KEYS[lower], raw, defaults)
        most = given[upper] or _ttl_of_tasks(_TTL_KEYS[upper], raw, defaults)
        if least and most and least > most:
            if given[lower] is None:
                other = dotted((*_TTL, _TTL_KEYS[lower]))
                yield (*here, upper), f"must be at least {other} where {lower} is not given"
            elif given[upper] is None:
                other = dotted((*_TTL, _TTL_KEYS[upper]))
                yield (*here, lower), f"must be at most {other} where {upper} is not given"
            else:
                yield (*here, lower), f"must be at most {dotted((*here, upper))}"
            return


def _ttl_of_tasks(key: str, raw: object, defaults: object) -> timedelta | None:
    """Return a time to live of `tasks.ttl`, with the default of a key that is null or absent."""
    for tree in (raw, defaults):
        found = mapping_at(tree, *_TTL)
        if found.get(key) is not None:
            return duration(found[key])
    return DEFAULT_TTL_MAX if key == "max" else None


def _unreachable_rules(raw: object) -> Iterator[Conflict]:
    """Find rules behind one that matches every tool of their upstream, whatever its hints."""
    catch_all: dict[str | None, int] = {}
    for index, rule in enumerate(map(mapping_at, list_at(raw, *_RULES))):
        upstream = rule.get("upstream")
        if upstream is not None and not isinstance(upstream, str):
            continue
        before = min((catch_all[name] for name in {None, upstream} & catch_all.keys()), default=None)
        if before is not None:
            yield (*_RULES, index, "tool"), f"can never match: {dotted((*_RULES, before))} is for every tool"
        elif rule.get("tool") == "*" and not mapping_at(rule, "hints") and rule.get("shadow") is not True:
            catch_all[upstream] = index
