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


def names_of(source: str) -> set[str]:
    """The classes and functions that a module defines, and what it imports."""
    nodes = [*ast.walk(ast.parse(source))]
    defined = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    imported = {name.asname or name.name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
    return defined | imported


def pointed_at(source: str) -> set[str]:
    """The classes that docstrings and comments send their reader to."""
    return set(re.findall(r"\b[Ss]ee (?:[a-z_]+\.)*([A-Z]\w*[a-z]\w*)", source))


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


def test_a_class_that_a_docstring_sends_its_reader_to_exists() -> None:
    sources = {tell(file): file.read_text() for file in MODULES if file.is_relative_to(PRODUCT)}
    known = set().union(*map(names_of, sources.values()))
    gone = {file: pointed_at(source) - known for file, source in sources.items()}
    assert {file: names for file, names in gone.items() if names} == {}


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


def test_a_pointer_to_a_class_is_seen_wherever_it_stands() -> None:
    source = '"""A; see Hold."""\n# See stores.base.TaskStore\nfrom x import Y as Z\n\n\nclass Hold: ...\n'
    assert pointed_at(source) == {"Hold", "TaskStore"}
    assert names_of(source) == {"Z", "Hold"}
