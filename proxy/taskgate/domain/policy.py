"""Which calls become tasks, and on what terms: the operator's rules as pure decisions.

Knows neither the file the rules came from nor how a dialect says them.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

USUAL_RESPONSE: Final = (
    "The call of {tool} was accepted and runs as a task. Its result is not known yet and follows when the task has "
    "ended; there is no need to call the tool again."
)
"""What a model is told of a call that became a task unless the operator has other words; see Rule."""

REMEMBERED: Final = 1024
"""How many decisions a policy remembers; tools are named by hosts, so there is no end to them."""

APP_ONLY: Final = "app_only"
"""The hint of a tool that models must not call, only the views of MCP Apps (SEP-1865): a view waits for the result."""

_LONGEST_REMEMBERED: Final = 128
"""Decisions on longer names of tools are not worth the room."""


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


class OnLost(StrEnum):
    """What becomes of a call whose process is gone while it may have been running (decisions 2)."""

    FAIL = "fail"
    RERUN = "rerun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Terms for the tools of one upstream (None: of any) whose names match a glob, with regard to case.

    `*` names no tool, so such a rule is not for a tool with the hint APP_ONLY; any other glob is.
    `hints` are annotations that its server must list for the tool, all of them. `immediate_response` is what models are
    told of a call that became a task, where `{tool}` stands for its tool; None tells nothing. Of the other spans None
    leaves what the policy has. `deadline` is how long a call may run; None leaves that to its upstream. `cap` is how
    many unfinished tasks there may be of one tool, whoever made them. Within `join_retries` an identical call joins
    one that runs. In `shadow` a rule decides nothing: it is only told where it would have made a difference.
    """

    upstream: str | None
    tool: str
    mode: Mode
    hints: Mapping[str, bool] = field(default_factory=dict, hash=False)
    immediate_response: str | None = None
    ttl: timedelta | None = None
    ttl_min: timedelta | None = None
    ttl_max: timedelta | None = None
    inline_grace: timedelta | None = None
    deadline: timedelta | None = None
    cap: int | None = None
    on_lost: OnLost = OnLost.FAIL
    join_retries: timedelta | None = None
    shadow: bool = False

    def matches(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> bool:
        """Whether the rule speaks of that tool; hints that are not known (None) meet no rule that asks for any."""
        if self.upstream not in (None, upstream) or not (self.tool == "*" or fnmatchcase(tool, self.tool)):
            return False
        if self.tool == "*" and hints and hints.get(APP_ONLY):
            return False
        return not self.hints or (hints is not None and self.hints.items() <= hints.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionDecision:
    """What the rules say of one tool; `rule` is the place of the one that decides, None where none does.

    `would_promote` tells that a rule in shadow would make tasks of calls that stay plain calls as it is.
    """

    rule: int | None
    mode: Mode
    ttl_default: timedelta
    ttl_min: timedelta
    ttl_max: timedelta
    inline_grace: timedelta
    deadline: timedelta | None = None
    immediate_response: str | None = None
    cap: int | None = None
    on_lost: OnLost = OnLost.FAIL
    join_retries: timedelta | None = None
    would_promote: bool = False

    def clamp_ttl(self, requested: timedelta | None, longest: timedelta | None = None) -> timedelta:
        """The time to live that is granted: the default where none was asked for, else the nearest allowed.

        `longest` is the caller's own upper bound, and stands for the rule's.
        """
        most = self.ttl_max if longest is None else longest
        asked = self.ttl_default if requested is None else requested
        return min(max(self.ttl_min, asked), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules for tasks; the first matching rule wins, and a tool that none names stays synchronous."""

    rules: tuple[Rule, ...]
    ttl_default: timedelta
    ttl_min: timedelta
    ttl_max: timedelta
    inline_grace: timedelta
    _decided: OrderedDict[tuple[str, str, frozenset[tuple[str, bool]]], PromotionDecision] = field(
        default_factory=OrderedDict, init=False, repr=False, compare=False
    )
    _hinted: frozenset[str | None] = field(default=frozenset(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hinted", frozenset(rule.upstream for rule in self.rules if rule.hints))

    def decide(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> PromotionDecision:
        """The terms of one tool. `hints` are what its server lists of it.

        Annotations matter only as `needs_hints` tells, APP_ONLY always. Where hints are not known, they only take
        tasks away from a tool: a call that is to be a task is decided again with what its server lists.

        Costs the same however many rules there are, once a tool is known.
        """
        known = _NONE_KNOWN
        if hints:
            known = frozenset(hints.items()) if self.needs_hints(upstream) else _OF_APPS.intersection(hints.items())
        key = (upstream, tool, known)
        decision = self._decided.get(key)
        if decision is None:
            decision = self._judge(upstream, tool, dict(known))
            if len(tool) <= _LONGEST_REMEMBERED:
                if len(self._decided) >= REMEMBERED:
                    # One step, for long lists of tools are amended in a thread.
                    self._decided.popitem(last=False)
                self._decided[key] = decision
        return decision

    def needs_hints(self, upstream: str) -> bool:
        """Whether a rule for that upstream's tools asks for annotations."""
        return bool(self._hinted) and (upstream in self._hinted or None in self._hinted)

    def mode(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> Mode:
        """The mode of one tool."""
        return self.decide(upstream, tool, hints).mode

    def immediate_response(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> str | None:
        """What a model is told of a call that became a task, until its result is there (L-CREATE-4); None: nothing."""
        return self.decide(upstream, tool, hints).immediate_response

    def support(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> TaskSupport:
        """What to tell a host of one tool, whatever its server says of it (10.1)."""
        return support(self.decide(upstream, tool, hints).mode)

    def offers_tasks(self, upstream: str) -> bool:
        """Whether any tool of that upstream could become a task."""
        return any(
            rule.mode is not Mode.SYNC and not rule.shadow and rule.upstream in (None, upstream) for rule in self.rules
        )

    def _judge(self, upstream: str, tool: str, hints: Mapping[str, bool]) -> PromotionDecision:
        shadowed: Rule | None = None
        for place, rule in enumerate(self.rules):
            if not rule.matches(upstream, tool, hints):
                continue
            if not rule.shadow:
                return self._decision(place, rule, tool, shadowed)
            # Without the shadow it would be the first to match, and those after it would not be asked.
            shadowed = shadowed or rule
        return self._decision(None, _PLAIN, tool, shadowed)

    def _decision(self, place: int | None, rule: Rule, tool: str, shadowed: Rule | None) -> PromotionDecision:
        most = _or(rule.ttl_max, self.ttl_max)
        least = min(_or(rule.ttl_min, self.ttl_min), most)
        told = rule.immediate_response
        return PromotionDecision(
            rule=place,
            mode=rule.mode,
            ttl_default=min(max(least, _or(rule.ttl, self.ttl_default)), most),
            ttl_min=least,
            ttl_max=most,
            inline_grace=_or(rule.inline_grace, self.inline_grace),
            deadline=rule.deadline,
            immediate_response=told.replace("{tool}", tool) if told else None,
            cap=rule.cap,
            on_lost=rule.on_lost,
            join_retries=rule.join_retries,
            would_promote=rule.mode is Mode.SYNC and shadowed is not None and shadowed.mode is not Mode.SYNC,
        )


_NONE_KNOWN: Final[frozenset[tuple[str, bool]]] = frozenset()
_OF_APPS: Final = frozenset({(APP_ONLY, True)})
_PLAIN: Final = Rule(upstream=None, tool="*", mode=Mode.SYNC)


def support(mode: Mode) -> TaskSupport:
    """What to tell a host of a tool of that mode."""
    match mode:
        case Mode.SYNC:
            return TaskSupport.FORBIDDEN
        case Mode.REQUIRED:
            return TaskSupport.REQUIRED
    return TaskSupport.OPTIONAL


def _or(span: timedelta | None, otherwise: timedelta) -> timedelta:
    return otherwise if span is None else span
