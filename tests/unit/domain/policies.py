"""Policies of a few rules, as short as a test wants to say them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from taskgate.domain.policy import Mode, Policy, Rule

HOUR = timedelta(hours=1)


def policy(*rules: tuple[str | None, str, Mode], **changes: timedelta) -> Policy:
    spans = {"ttl_default": HOUR, "ttl_min": timedelta(minutes=1), "ttl_max": 24 * HOUR, **changes}
    return Policy(
        rules=tuple(Rule(upstream=upstream, tool=tool, mode=mode) for upstream, tool, mode in rules),
        inline_grace=timedelta(seconds=5),
        **spans,
    )


def ruled(*rules: Rule) -> Policy:
    return replace(policy(), rules=rules)


def rule(mode: Mode = Mode.AUTO, tool: str = "*", **changes: Any) -> Rule:
    return Rule(**{"upstream": None, "tool": tool, "mode": mode, **changes})
