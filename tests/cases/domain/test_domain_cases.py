"""The cases of `domain`: what goes in and what comes out, in the files of this folder."""

from typing import Any, Final, get_type_hints

import pytest

from helpers.case_files import Case, Runner, rewrites
from helpers.case_values import MAKERS, made
from taskgate.domain.policy import PromotionPolicy, PromotionRule

USUAL: Final = {"rules": (), "ttl_default": 3600, "ttl_min": 60, "ttl_max": 86400, "inline_grace": 5}


def _policy(changes: dict[str, Any]) -> PromotionPolicy:
    """A policy with `USUAL`, or with what is named instead; times are in seconds."""
    hints = get_type_hints(PromotionPolicy)
    return PromotionPolicy(**{name: made(hints[name], each) for name, each in {**USUAL, **changes}.items()})


def _rule(changes: dict[str, Any]) -> PromotionRule:
    """A rule that has every tool of any upstream be a task, or with what is named instead."""
    hints = get_type_hints(PromotionRule)
    named = {"upstream": None, "tool": "*", "mode": "auto", **changes}
    return PromotionRule(**{name: made(hints[name], each) for name, each in named.items()})


MAKERS[PromotionPolicy] = _policy
MAKERS[PromotionRule] = _rule
RUNNER: Final = Runner("domain")


@pytest.mark.parametrize("cases", RUNNER.sections.values(), ids=RUNNER.sections)
def test_each_input_has_its_output(cases: list[Case], request: pytest.FixtureRequest) -> None:
    RUNNER.check(cases, rewrite=rewrites(request))
