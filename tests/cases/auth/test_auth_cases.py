"""The cases of `auth`: what goes in and what comes out, in the files of this folder."""

from typing import Final

import pytest

from helpers.case_files import Case, Runner, rewrites

RUNNER: Final = Runner("auth")


@pytest.mark.parametrize("cases", RUNNER.sections.values(), ids=RUNNER.sections)
def test_each_input_has_its_output(cases: list[Case], request: pytest.FixtureRequest) -> None:
    RUNNER.check(cases, rewrite=rewrites(request))
