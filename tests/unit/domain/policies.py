"""Policies of a few rules, as short as a test wants to say them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from taskgate.domain.policy import PromotionMode, PromotionPolicy, PromotionRule

HOUR = timedelta(hours=1)


def policy(*rules: tuple[str | None, str, PromotionMode], **changes: timedelta) -> PromotionPolicy:
    spans = {"ttl_default": HOUR, "ttl_min": timedelta(minutes=1), "ttl_max": 24 * HOUR, **changes}
    return PromotionPolicy(
        rules=tuple(PromotionRule(upstream=upstream, tool=tool, mode=mode) for upstream, tool, mode in rules),
        inline_grace=timedelta(seconds=5),
        **spans,
    )


def ruled(*rules: PromotionRule) -> PromotionPolicy:
    return replace(policy(), rules=rules)


def rule(mode: PromotionMode = PromotionMode.AUTO, tool: str = "*", **changes: Any) -> PromotionRule:
    return PromotionRule(**{"upstream": None, "tool": tool, "mode": mode, **changes})
