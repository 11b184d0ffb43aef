"""The promotion policy: which calls become tasks, and on what terms.

To promote a call means to make it a task. `PromotionPolicy.decide` finds the first of the
operator's rules that matches a tool; the decision has the mode and the limits of the task. Each
reload of the configuration makes a new policy. `lifecycle` and `gateway` act on the decisions.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import Final, NamedTuple

from taskgate.jsontext.display import one_line

DEFAULT_RESPONSE: Final = (
    "The call of {tool} was accepted and runs as a task. Its result is not known yet and follows when the task has "
    "ended; there is no need to call the tool again."
)
"""The text for models in the answer to a call that became a task, unless a rule has another."""

CACHE_SIZE: Final = 1024
"""Decisions that a policy caches; hosts choose the names of tools, so the cache needs a bound."""

APP_ONLY: Final = "app_only"
"""The hint of a tool for views of MCP Apps only (SEP-1865): a view waits for the result."""

_MAX_CACHED_NAME: Final = 128
"""Characters of a tool's name up to which its decision is cached."""


class PromotionMode(StrEnum):
    """The modes in which calls of a tool run, as the operator chooses.

    - SYNC: never as a task
    - AUTO: as a task if a legacy host asks for one. For a modern host that supports tasks, a call
      becomes a task once it has run for `inline_grace`.
    - ALWAYS: as AUTO, but without the grace: a modern host gets a task at once
    - REQUIRED: as ALWAYS, and a call that cannot become a task is refused
    """

    SYNC = "sync"
    AUTO = "auto"
    ALWAYS = "always"
    REQUIRED = "required"


class TaskSupport(StrEnum):
    """The values of `execution.taskSupport`, which hosts see in the list of tools.

    A host must not ask for a task (FORBIDDEN), may (OPTIONAL), or must (REQUIRED).
    """

    FORBIDDEN = "forbidden"
    OPTIONAL = "optional"
    REQUIRED = "required"


SupportOf = Callable[[str, Mapping[str, bool]], TaskSupport | None]
"""Returns the task support that hosts see, by a tool's name and its server's hints; None for what its server lists."""


class OnLost(StrEnum):
    """The fate of a call whose gateway process died while it may have been running.

    FAIL ends its task with an error; RERUN sends the call again.
    """

    FAIL = "fail"
    RERUN = "rerun"


class Handoff(NamedTuple):
    """The terms on which a host without tasks gets a handle in place of a late result.

    `after` is how long its call may take before. `ceiling` is how long such a host waits for an
    answer; None leaves that to `domain.handoff`. `joins` is whether the same call made again joins it,
    and `cancels_on_disconnect` whether a lost connection cancels it.
    """

    after: timedelta
    ceiling: timedelta | None = None
    joins: bool = True
    cancels_on_disconnect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRule:
    """Terms for the tools of one upstream (None: of any) whose names match a case-sensitive glob.

    `*` names no tool in particular, so it does not match a tool with the hint APP_ONLY; any other
    glob does. `hints` are annotations that the server must list for the tool, all of them.
    `immediate_response` is the text for models when a call becomes a task, `{tool}` in it stands
    for the tool; None sends no text. For the time limits None means the value of the policy.
    `deadline` is how long a call may run; None means the limit of its upstream. `cap` is how many
    unfinished tasks one tool may have, of all callers. Within `join_retries` an identical call
    joins a running one. `handoff` is for hosts without tasks; None lets their calls block. `announce` is
    whether lists have the task support of the tool; None leaves that to the policy. A rule in `shadow`
    decides nothing: only what it would have changed is reported.
    """

    upstream: str | None
    tool: str
    mode: PromotionMode
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
    handoff: Handoff | None = None
    announce: bool | None = None
    shadow: bool = False

    def names(self, upstream: str, tool: str) -> bool:
        """Whether the rule is for a tool of that name, whatever its hints are."""
        return self.upstream in (None, upstream) and (self.tool == "*" or fnmatchcase(tool, self.tool))

    def matches(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> bool:
        """Whether the rule is for that tool.

        With unknown hints (None) a rule that needs hints does not match.
        """
        if not self.names(upstream, tool):
            return False
        if self.tool == "*" and hints and hints.get(APP_ONLY):
            return False
        return not self.hints or (hints is not None and self.hints.items() <= hints.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionDecision:
    """The terms of one tool; `rule` is the index of the rule that decided, None if none matched.

    A task that has not ended at the age of `ttl_max` ends then. `ttl_longest` bounds what is granted; None: `ttl_max`.

    `announces` is whether lists have its task support.

    `would_promote` is whether a rule in shadow would promote calls that stay plain calls, and
    `would_hand_off` the handoff of such a rule.
    """

    rule: int | None
    mode: PromotionMode
    ttl_default: timedelta
    ttl_min: timedelta
    ttl_max: timedelta
    inline_grace: timedelta
    deadline: timedelta | None = None
    immediate_response: str | None = None
    cap: int | None = None
    on_lost: OnLost = OnLost.FAIL
    join_retries: timedelta | None = None
    handoff: Handoff | None = None
    announces: bool = True
    ttl_longest: timedelta | None = None
    would_promote: bool = False
    would_hand_off: Handoff | None = None

    def clamp_ttl(self, requested: timedelta | None, longest: timedelta | None = None) -> timedelta:
        """The granted time to live: the allowed value nearest to the requested or default one.

        `longest` is the caller's own upper bound and replaces that of the rule.
        """
        most = self.ttl_max if longest is None else longest
        if self.ttl_longest is not None and self.ttl_longest < most:
            most = self.ttl_longest
        asked = self.ttl_default if requested is None else requested
        return min(max(self.ttl_min, asked), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionPolicy:
    """The rules for tasks: the first match wins; calls of other tools stay plain calls.

    `ttl_default`, `ttl_min`, `ttl_max` and `inline_grace` are for rules that set none of their own. Without a
    `ttl_min`, the default of a rule is its least. `ttl_longest` bounds what hosts are granted. A task is kept for
    at least `ttl_keep` from its end on. `announces` is for rules that say nothing of it.
    `hinted` has the upstreams of rules with hints, None for any; most policies have none.
    """

    rules: tuple[PromotionRule, ...]
    ttl_default: timedelta
    ttl_min: timedelta | None
    ttl_max: timedelta
    inline_grace: timedelta
    ttl_longest: timedelta | None = None
    ttl_keep: timedelta = timedelta()
    announces: bool = True
    _cache: OrderedDict[tuple[str, str, frozenset[tuple[str, bool]]], PromotionDecision] = field(
        default_factory=OrderedDict, init=False, repr=False, compare=False
    )
    hinted: frozenset[str | None] = field(default=frozenset(), init=False, repr=False, compare=False)
    _support: dict[str, SupportOf] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hinted", frozenset(rule.upstream for rule in self.rules if rule.hints))

    def decide(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> PromotionDecision:
        """The terms of one tool; `hints` are what its server lists of it, None while unknown.

        Annotations matter only if `needs_hints`; the hint APP_ONLY matters always. A decision with
        unknown hints may differ from the one with the listed hints. So the caller asks again once
        they are known, before a call becomes a task. The cost does not grow with the number of
        rules once a tool is cached.
        """
        known = _NO_HINTS
        if hints:
            if self.hinted and self.needs_hints(upstream):
                known = frozenset(hints.items())
            elif hints.get(APP_ONLY):
                known = _APP_ONLY_HINT
        key = (upstream, tool, known)
        decision = self._cache.get(key)
        if decision is None:
            decision = self._judge(upstream, tool, dict(known))
            if len(tool) <= _MAX_CACHED_NAME:
                if len(self._cache) >= CACHE_SIZE:
                    # One atomic step, because long lists of tools are processed in a thread.
                    self._cache.popitem(last=False)
                self._cache[key] = decision
        return decision

    def needs_hints(self, upstream: str) -> bool:
        """Whether a rule for that upstream's tools depends on annotations.

        The caller then fetches the list of tools before it decides.
        """
        return upstream in self.hinted or None in self.hinted

    def mode(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> PromotionMode:
        """The mode of one tool."""
        return self.decide(upstream, tool, hints).mode

    def immediate_response(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> str | None:
        """The text for models when a call becomes a task (L-CREATE-4); None for no text."""
        return self.decide(upstream, tool, hints).immediate_response

    def support(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> TaskSupport | None:
        """The task support to announce for one tool, whatever its server announces; None for none of ours."""
        decision = self.decide(upstream, tool, hints)
        return task_support(decision.mode) if decision.announces else None

    def support_of(self, upstream: str) -> SupportOf:
        """`support` for the tools of one upstream: one object for each policy, by which pages are cached."""
        found = self._support.get(upstream)
        if found is None:
            found = self._support[upstream] = partial(self.support, upstream)
        return found

    def offers_tasks(self, upstream: str) -> bool:
        """Whether any tool of that upstream could become a task."""
        return any(
            rule.mode is not PromotionMode.SYNC and not rule.shadow and rule.upstream in (None, upstream)
            for rule in self.rules
        )

    def may_hand_off(self, upstream: str, tool: str, hints: Mapping[str, bool] | None = None) -> bool:
        """Whether a call of one tool by a host without tasks may be handed off."""
        return self.decide(upstream, tool, hints).handoff is not None

    def shortest_handoff(self, upstream: str, tool: str) -> Handoff | None:
        """The terms with the shortest ceiling that one tool may have, whatever its annotations are.

        None if no rule hands it off.
        """
        if not self.needs_hints(upstream):
            return self.decide(upstream, tool).handoff
        may = [rule.handoff for rule in self.rules if rule.handoff and not rule.shadow and rule.names(upstream, tool)]
        return min(may, key=lambda terms: terms.ceiling or timedelta.max, default=None)

    def hands_off(self, upstream: str | None = None) -> bool:
        """Whether a call of any tool of that upstream could be handed off; of any upstream without one."""
        return any(
            rule.handoff is not None and not rule.shadow and (upstream is None or rule.upstream in (None, upstream))
            for rule in self.rules
        )

    def _judge(self, upstream: str, tool: str, hints: Mapping[str, bool]) -> PromotionDecision:
        shadowed: PromotionRule | None = None
        for index, rule in enumerate(self.rules):
            if not rule.matches(upstream, tool, hints):
                continue
            if not rule.shadow:
                return self._decision(index, rule, tool, shadowed)
            # The first rule in shadow would have decided, so later ones do not matter.
            shadowed = shadowed or rule
        return self._decision(None, _PLAIN, tool, shadowed)

    def _decision(
        self, index: int | None, rule: PromotionRule, tool: str, shadowed: PromotionRule | None
    ) -> PromotionDecision:
        most = _or(rule.ttl_max, self.ttl_max)
        longest = most if self.ttl_longest is None else min(most, self.ttl_longest)
        usual = min(_or(rule.ttl, self.ttl_default), longest)
        least = min(_or(rule.ttl_min, _or(self.ttl_min, usual)), longest)
        response = rule.immediate_response
        return PromotionDecision(
            rule=index,
            mode=rule.mode,
            ttl_default=max(least, usual),
            ttl_min=least,
            ttl_max=most,
            ttl_longest=self.ttl_longest,
            inline_grace=_or(rule.inline_grace, self.inline_grace),
            deadline=rule.deadline,
            immediate_response=response.replace("{tool}", one_line(tool)) if response else None,
            cap=rule.cap,
            on_lost=rule.on_lost,
            join_retries=rule.join_retries,
            handoff=rule.handoff,
            announces=self.announces if rule.announce is None else rule.announce,
            would_hand_off=None if shadowed is None or rule.handoff is not None else shadowed.handoff,
            would_promote=rule.mode is PromotionMode.SYNC
            and shadowed is not None
            and shadowed.mode is not PromotionMode.SYNC,
        )


_NO_HINTS: Final[frozenset[tuple[str, bool]]] = frozenset()
_APP_ONLY_HINT: Final = frozenset({(APP_ONLY, True)})
_PLAIN: Final = PromotionRule(upstream=None, tool="*", mode=PromotionMode.SYNC)


def task_support(mode: PromotionMode) -> TaskSupport:
    """The task support to announce for a tool of that mode."""
    match mode:
        case PromotionMode.SYNC:
            return TaskSupport.FORBIDDEN
        case PromotionMode.REQUIRED:
            return TaskSupport.REQUIRED
    return TaskSupport.OPTIONAL


def _or(span: timedelta | None, otherwise: timedelta) -> timedelta:
    return otherwise if span is None else span
