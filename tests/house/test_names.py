"""Every module says what it is, and names say what a thing is."""

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PRODUCT = CHECKOUT / "proxy"
MODULES = sorted(
    file for folder in ("proxy", "tests", "example", "bench", "grafana") for file in (CHECKOUT / folder).rglob("*.py")
)
EMPTY_WORDS = {"manager", "managers", "helper", "helpers", "util", "utils", "data", "process"}
"""What a thing may not be called, whatever word stands before: they fit everything, and so say nothing."""


def starts_with_docstring(source: str) -> bool:
    tree = ast.parse(source)
    return bool((ast.get_docstring(tree) or "").strip())


def empty_names(source: str) -> list[str]:
    """The classes whose name ends in a word that fits everything."""
    classes = [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    return [name for name in classes if re.findall("[A-Z]?[^A-Z]*", name)[-2].lower() in EMPTY_WORDS]


def is_exempt(file: Path) -> bool:
    """Whether a file may be named for the programs it runs: what tests share lives in a folder of that name."""
    return file.is_relative_to(CHECKOUT / "tests" / "helpers")


def tell(file: Path) -> str:
    return str(file.relative_to(CHECKOUT))


def test_every_module_of_the_product_says_what_lives_there() -> None:
    modules = [file for file in MODULES if file.is_relative_to(PRODUCT)]
    assert [tell(file) for file in modules if not starts_with_docstring(file.read_text())] == []


def test_no_module_or_class_has_a_name_that_fits_everything() -> None:
    judged = [file for file in MODULES if not is_exempt(file)]
    places = [tell(file) for file in judged if EMPTY_WORDS & {file.stem.split("_")[-1], file.parent.name}]
    classes = [f"{tell(file)}: {name}" for file in judged for name in empty_names(file.read_text())]
    assert places + classes == []


# --- each check can fail -------------------------------------------------------------------------------------------


def test_the_modules_are_found() -> None:
    assert {"proxy/taskgate/errors.py", "tests/conftest.py", "bench/__main__.py"} <= {tell(file) for file in MODULES}


@pytest.mark.parametrize("source", ["", "import os\n", "# A comment.\n", '""\n', "import os\n'''Late.'''\n"])
def test_a_module_that_says_nothing_is_seen(source: str) -> None:
    assert not starts_with_docstring(source)
    assert starts_with_docstring(f'"""What lives here."""\n{source}')


def test_an_empty_word_at_the_end_of_a_name_is_seen_and_no_other_word_is() -> None:
    names = ["TaskManager", "Metadata", "DataStore", "Processes", "data", "_JobData", "ABC", "DataURL"]
    assert empty_names("".join(f"class {name}: pass\n" for name in names)) == ["TaskManager", "data", "_JobData"]
