"""A name in backquotes, in a docstring or a comment of the package, is one that the package has."""

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.thorough

PACKAGE = Path(__file__).parents[2] / "proxy" / "taskgate"
QUOTED = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?")
PLACE = re.compile(r"[a-z_]+(/[a-z_]+)+")


class Written(NamedTuple):
    """A name in backquotes, and where it is."""

    file: str
    line: int
    name: str


def prose(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module, each with its line."""
    for text in _docstrings(ast.parse(source)):
        yield text.lineno, str(text.value)
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def written(modules: Mapping[str, str]) -> Iterator[Written]:
    """The names and places in backquotes; other words in them are values, or code."""
    for file, source in modules.items():
        for line, text in prose(source):
            for name in QUOTED.findall(text):
                if DOTTED.fullmatch(name) or PLACE.fullmatch(name):
                    yield Written(file, line, name.removesuffix("()"))


def known(modules: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """The names of the code, and the texts and words of its strings, in lower case: wire names, values, headers."""
    names, words = set[str](), set[str]()
    for file, source in modules.items():
        place = file.removesuffix(".py")
        while place:
            names.add(place.rpartition("/")[2])
            words.add(place)
            place = place.rpartition("/")[0]
        names |= {
            token.string for token in tokenize.generate_tokens(StringIO(source).readline) if token.type == tokenize.NAME
        }
        tree = ast.parse(source)
        docstrings = {id(each) for each in _docstrings(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                words |= {node.value.lower(), *re.findall(r"\w+", node.value.lower())}
    return names, words


def unknown(modules: Mapping[str, str]) -> list[Written]:
    """What is written, and is in no module of the package nor in one that can be imported."""
    names, words = known(modules)
    return [each for each in written(modules) if not _is_known(each.name, names, words)]


def _docstrings(tree: ast.Module) -> list[ast.Constant]:
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def _is_known(name: str, names: set[str], words: set[str]) -> bool:
    if "/" in name:
        return name in words or any(place.endswith(f"/{name}") for place in words)
    return all(part in names or part.lower() in words for part in name.split(".")) or _is_of_library(name)


def _is_of_library(name: str) -> bool:
    module, _, member = name.rpartition(".")
    try:
        return bool(module) and hasattr(import_module(module), member)
    except ImportError:
        return False


def of_package() -> dict[str, str]:
    files: Iterable[Path] = sorted(PACKAGE.rglob("*.py"))
    return {str(file.relative_to(PACKAGE.parent)): file.read_text(encoding="utf-8") for file in files}


def test_what_docstrings_and_comments_name_exists() -> None:
    modules = of_package()
    assert len(list(written(modules))) > 1000
    assert unknown(modules) == []


# --- what is found ---------------------------------------------------------------------------------------------------


def found(source: str) -> list[str]:
    module = f'{source}\nclass Store:\n    size = "max-bytes"\n'
    return [each.name for each in unknown({"taskgate/stores/own.py": module})]


def test_a_name_of_nothing_is_found_in_a_docstring_and_in_a_comment() -> None:
    assert found('"""A `Shop`, and what `Store.keep` does with `stores/others`."""\n# As `keep` does.') == [
        "Shop",
        "Store.keep",
        "stores/others",
        "keep",
    ]


def test_names_of_the_code_its_strings_its_files_and_libraries_are_not() -> None:
    source = '"""A `Store`, `Store.size`, `stores/own`, `own`, `max`, `asyncio.isfuture`, `a + b` and `x y`."""'
    assert found(source) == []
