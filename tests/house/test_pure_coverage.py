"""Every pure module is covered to its last branch by the tests of its folder alone."""

from pathlib import Path

import pytest

from house.pure_coverage import PACKAGES, left_out, left_out_of_each, own_tests, pure_modules

MODULES = pure_modules()


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """What is left out of each module; each folder is measured once, since most of the time goes into starting."""
    return left_out_of_each(MODULES, tmp_path_factory.mktemp("coverage"))


@pytest.mark.thorough
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGES / "taskgate")))
def test_a_pure_module_is_covered_by_the_tests_of_its_folder(module: Path, gaps: dict[Path, str]) -> None:
    assert not gaps[module], f"{module.relative_to(PACKAGES)}: {gaps[module]}"


def test_the_pure_floors_are_found() -> None:
    names = {str(module.relative_to(PACKAGES / "taskgate")) for module in MODULES}
    assert {
        "protocol/jsonrpc.py",
        "domain/machine.py",
        "protocol/faults.py",
        "auth/context.py",
        "stores/codec.py",
    } <= names
    assert not any(name.startswith(("gateway/", "stores/memory")) for name in names)


def test_tests_of_a_folder_and_of_those_in_it_are_its_own() -> None:
    tests = own_tests(PACKAGES / "taskgate" / "protocol" / "modern" / "params.py")
    folders = {str(file.parent.relative_to(PACKAGES.parent)) for file in tests}
    unit = {"tests/unit/protocol", "tests/unit/protocol/legacy", "tests/unit/protocol/modern"}
    assert folders == unit | {"tests/cases/protocol"}


PROFILE = """
from hypothesis import settings

settings.register_profile("few")
"""
TESTS = """
from taskgate.auth.context import AuthContext

def test_one_caller():
    assert {}
"""


@pytest.mark.parametrize(
    ("statement", "told"), [("AuthContext(key='k')", "lines ["), ("None", "failed")], ids=["a gap", "a red test"]
)
def test_a_line_that_is_left_out_is_told_and_so_is_a_test_that_fails(tmp_path: Path, statement: str, told: str) -> None:
    module = PACKAGES / "taskgate" / "auth" / "context.py"
    (tmp_path / "conftest.py").write_text(PROFILE)
    (tmp_path / "test_context.py").write_text(TESTS.format(statement))
    assert told in left_out([module], [tmp_path / "test_context.py"], tmp_path)[module]
