"""Findings about rules: limits that are off, tools that can never be tasks, and methods that no
caller may use.

Nothing outside of the configuration is read. `checks` is the user.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from taskgate.auth.authorization import AccessEffect, AccessPolicy, AccessRule
from taskgate.config import GatewayConfig
from taskgate.config.model import admission_rules
from taskgate.domain.policy import PromotionMode, PromotionPolicy
from taskgate.explain.findings import Findings
from taskgate.protocol.handoff import LIST
from taskgate.protocol.vocabulary import (
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_RESULT,
    TASKS_UPDATE,
    TOOLS_CALL,
    TOOLS_LIST,
    UNJUDGED_METHODS,
)

_OF_BOTH: Final = (TOOLS_LIST, TOOLS_CALL)
_OF_TASKS: Final = (TASKS_GET, TASKS_CANCEL)
_ERAS: Final = {"2025-11-25 and before": TASKS_RESULT, "2026-07-28": TASKS_UPDATE}
"""The revisions of each era, and the method about tasks that only this era has."""
_JUDGED: Final = "rules judge tools, resources, prompts and tasks; handshake, discovery, ping and notifications pass"


def check_rules(config: GatewayConfig, found: Findings) -> None:
    """Add what the rules of a configuration lead to."""
    _check_rates(config, found)
    _check_promotion(config, found)
    _check_announcements(config, found)
    _check_ages(config, found)
    _check_own_tools(config, found)
    _check_access(config, found)


# --- limits ---------------------------------------------------------------------------------------------------------


def _check_rates(config: GatewayConfig, found: Findings) -> None:
    rates = [policy for policy in config.limits.rate if policy.mode == "enforce"]
    if not config.limits.rate:
        found.warn("limits.rate", "there is no rate limit at all; leave the key out for the built-in ones")
        return
    if not any(policy.before_auth for policy in rates):
        text = "no policy with before_auth limits the requests of one address; name one, or set it to false"
        found.warn("limits.replace_defaults", text)
    if config.auth.mode == "required" and not any(policy.event == "auth_failure" for policy in rates):
        text = "no policy of the event auth_failure limits refused tokens; name one, or set it to false"
        found.warn("limits.replace_defaults", text)


# --- tasks ----------------------------------------------------------------------------------------------------------


def _check_promotion(config: GatewayConfig, found: Findings) -> None:
    policy = admission_rules(config).policy
    for name in config.upstreams:
        if not _can_promote(policy, name):
            text = f"no tool of the upstream {name} can ever become a task; begin with a rule of another mode than sync"
            found.warn("tasks.upgrade", text)


def _check_announcements(config: GatewayConfig, found: Findings) -> None:
    """Find tools that hosts cannot know to run only as tasks."""
    for number, rule in enumerate(config.tasks.upgrade):
        if rule.mode == "required" and not rule.shadow and (rule.announce or config.tasks.announce) == "never":
            where = "tasks.announce" if rule.announce is None else f"tasks.upgrade[{number}].announce"
            text = f"no list says that calls of tasks.upgrade[{number}] need task; use mode always there"
            found.warn(where, text)


def _check_ages(config: GatewayConfig, found: Findings) -> None:
    """Find calls that end as tasks sooner than their timeouts say."""
    policy, ttl_max = admission_rules(config).policy, config.tasks.ttl.max
    for name, section in config.upstreams.items():
        key, timeouts = f"upstreams.{name}.timeouts.call", section.timeouts
        # The default of a key that is left out contradicts no deadline.
        is_given = "call" in timeouts.model_fields_set
        if policy.offers_tasks(name) and ttl_max is not None and ttl_max < timeouts.call:
            found.warn("tasks.ttl.max", f"is shorter than {key}: a call ends at this age if it runs as a task")
        for number, rule in enumerate(config.tasks.upgrade):
            if rule.shadow or rule.mode == "sync" or rule.upstream not in (None, name):
                continue
            where = f"tasks.upgrade[{number}]"
            if rule.ttl_max is not None and rule.ttl_max < timeouts.call:
                found.warn(f"{where}.ttl_max", f"is shorter than {key}: a call ends at this age if it runs as a task")
            if is_given and rule.deadline is not None and rule.deadline < timeouts.call:
                found.warn(f"{where}.deadline", f"is shorter than {key}, so a task ends before that timeout")
    for number, rule in enumerate(config.tasks.upgrade):
        keep, window = config.tasks.ttl.keep, config.tasks.handoff.retry_window
        if rule.handoff is not None and keep < window:
            found.warn(f"tasks.upgrade[{number}].handoff", "answers equal calls for no longer than tasks.ttl.keep")
            return


def _check_own_tools(config: GatewayConfig, found: Findings) -> None:
    """Find rules for a tool that no server gets calls of."""
    reserved = config.tasks.to_reserved(admission_rules(config).policy)
    named: dict[str, list[str | None]] = {
        "tasks.upgrade": [rule.tool for rule in config.tasks.upgrade],
        "authorization.rules": [rule.tool for rule in config.authorization.rules],
        "limits.rate": [policy.tool for policy in config.limits.rate],
    }
    for key, names in named.items():
        for number, name in enumerate(names):
            if name not in reserved:
                continue
            hint = "name the tool that is handed off"
            if name == LIST.name:
                hint = "its calls are never tasks" if key == "tasks.upgrade" else "name the method tasks/list"
            found.warn(f"{key}[{number}].tool", f"is a tool of the gateway, so the rule has no effect; {hint}")


def _can_promote(policy: PromotionPolicy, upstream: str) -> bool:
    """Whether a tool of the upstream can become a task, or a rule for it alone says that none can."""
    for rule in policy.rules:
        if rule.shadow or rule.upstream not in (None, upstream):
            continue
        if rule.mode is not PromotionMode.SYNC:
            return True
        if rule.tool == "*" and not rule.hints:
            # A rule for this upstream alone is meant so.
            return rule.upstream is not None
    return False


# --- access ---------------------------------------------------------------------------------------------------------


def _check_access(config: GatewayConfig, found: Findings) -> None:
    access = config.authorization.to_policy(config.upstreams)
    for number, rule in enumerate(access.rules):
        methods = rule.methods or ()
        if methods and all(method in UNJUDGED_METHODS or method.startswith("notifications/") for method in methods):
            found.warn(f"authorization.rules[{number}].methods", f"has no effect: {_JUDGED}")
    promotion = admission_rules(config).policy
    for name in config.upstreams:
        for text in _shut_out(access, name, has_tasks=_can_promote(promotion, name)):
            found.warn("authorization", f"at the upstream {name} {text} ({_JUDGED})")


def _shut_out(access: AccessPolicy, upstream: str, *, has_tasks: bool) -> Iterator[str]:
    closed = [method for method in _OF_BOTH if not _may_pass(access, upstream, method)]
    if closed:
        yield f"no rule ever allows {' and '.join(closed)}, so hosts of every revision are shut out"
        return
    if not has_tasks:
        return
    closed = [method for method in _OF_TASKS if not _may_pass(access, upstream, method)]
    if closed:
        yield f"no rule ever allows {' and '.join(closed)}, so hosts start tasks whose results they cannot fetch"
        return
    for revisions, method in _ERAS.items():
        if not _may_pass(access, upstream, method):
            yield f"no rule ever allows {method}, which hosts of {revisions} need for tasks"


def _may_pass(access: AccessPolicy, upstream: str, method: str) -> bool:
    """Whether there can be a caller, and a tool where the method has one, that the rules allow."""
    for rule in access.rules:
        if rule.shadow or not _may_match(rule, upstream, method):
            continue
        if rule.effect is AccessEffect.ALLOW:
            return True
        if rule.tool is None and not rule.claims:
            return False
    return access.default is AccessEffect.ALLOW


def _may_match(rule: AccessRule, upstream: str, method: str) -> bool:
    names_tool = method == TOOLS_CALL or method.startswith("tasks/")
    return (
        (rule.methods is None or any(fnmatchcase(method, glob) for glob in rule.methods))
        and rule.upstream in (None, upstream)
        and (rule.tool is None or names_tool)
    )
