"""Every requirement that is listed is shown by a test, and every id that a test names is listed."""

import ast
from functools import cache
from pathlib import Path

from helpers.case_files import all_sections
from requirements import REQUIREMENTS

TESTS = Path(__file__).resolve().parent.parent


@cache
def covering() -> dict[str, frozenset[str]]:
    """From an id to the tests and cases that say that they cover it, as FILE::NAME or FILE::SENTENCE."""
    found: dict[str, set[str]] = {}
    for file in TESTS.rglob("test_*.py"):
        text = file.read_text()
        # Most name none, and need not be parsed.
        for test in ast.walk(ast.parse(text)) if "covers" in text else ():
            if isinstance(test, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for id in ids_of(test):
                    found.setdefault(id, set()).add(f"{file.relative_to(TESTS.parent)}::{test.name}")
    for section in all_sections():
        for id in section.requirements:
            found.setdefault(id, set()).add(section.place)
    return {id: frozenset(tests) for id, tests in found.items()}


def ids_of(test: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The ids that a test covers by its decorators."""
    calls = [each for each in test.decorator_list if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)]
    said = [each.args for each in calls if isinstance(each.func, ast.Name) and each.func.id == "covers"]
    return [str(each.value) for arguments in said for each in arguments if isinstance(each, ast.Constant)]


def test_every_requirement_is_shown_by_a_test() -> None:
    assert sorted(REQUIREMENTS.keys() - covering().keys()) == []


def test_tests_name_only_requirements_that_are_listed() -> None:
    assert sorted(covering().keys() - REQUIREMENTS.keys()) == []
