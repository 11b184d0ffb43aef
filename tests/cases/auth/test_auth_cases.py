"""The cases of `auth`: what goes in and what comes out, in the files of this folder."""

from dataclasses import replace
from typing import Any, Final, get_type_hints

import pytest

from helpers.case_files import Case, Runner, rewrites
from helpers.case_values import MAKERS, made
from taskgate.auth.context import Identity
from unit.auth.identities import identity


def _identity(changes: dict[str, Any]) -> Identity:
    """Alice, whose token is from `corp`, with other fields as they are named."""
    hints = get_type_hints(Identity)
    return replace(identity(), **{name: made(hints[name], each) for name, each in changes.items()})


MAKERS[Identity] = _identity
RUNNER: Final = Runner("auth")


@pytest.mark.parametrize("cases", RUNNER.sections.values(), ids=RUNNER.sections)
def test_each_input_has_its_output(cases: list[Case], request: pytest.FixtureRequest) -> None:
    RUNNER.check(cases, rewrite=rewrites(request))
