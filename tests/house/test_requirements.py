"""Every requirement that is listed is shown by a test, and every id that a test names is listed."""

import ast
from functools import cache
from pathlib import Path

from requirements import REQUIREMENTS

TESTS = Path(__file__).resolve().parent.parent


@cache
def named_ids() -> dict[str, set[str]]:
    """From an id to the files whose tests say that they cover it."""
    named: dict[str, set[str]] = {}
    for file in TESTS.rglob("test_*.py"):
        text = file.read_text()
        # Most name none, and need not be parsed.
        for call in ast.walk(ast.parse(text)) if "covers" in text else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "covers":
                for id in (argument.value for argument in call.args if isinstance(argument, ast.Constant)):
                    named.setdefault(str(id), set()).add(file.name)
    return named


def test_every_requirement_is_shown_by_a_test() -> None:
    assert sorted(REQUIREMENTS.keys() - named_ids().keys()) == []


def test_tests_name_only_requirements_that_are_listed() -> None:
    assert sorted(named_ids().keys() - REQUIREMENTS.keys()) == []
