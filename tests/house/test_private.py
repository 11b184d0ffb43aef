"""Tests ask things what they promise: they touch no private attribute of others, and set no constant of a module.

Such a test breaks when the inside changes, though nothing that anybody relies on has. With another constant it shows
what nobody runs.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = CHECKOUT / "tests"
STILL_TOUCHED = Path(__file__).with_name("private_accesses.txt")
"""`COUNT FILE` for each file that still does. Counts and lines only ever go down."""
STILL_SET = Path(__file__).with_name("set_constants.txt")
"""The same for constants."""
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
OWN = {"self", "cls"}
PROMISED = {"_replace", "_asdict", "_fields", "_make", "_exit"}
"""What the standard library promises: of every `NamedTuple`, where it keeps them apart from fields, and of `os`."""


def private_accesses(source: str) -> Iterator[str]:
    """The names of private attributes that are read or set of anything but `self`, `cls` and `super()`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if node.attr in PROMISED:
                continue
            of = node.value
            if isinstance(of, ast.Name) and of.id in OWN:
                continue
            if isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "super":
                continue
            yield node.attr


def set_constants(source: str) -> Iterator[str]:
    """The names of constants that `setattr` is called with, as its own argument or as the end of a dotted path."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"):
            continue
        named = (each.value for each in node.args[:2] if isinstance(each, ast.Constant) and isinstance(each.value, str))
        yield from (name for each in named if CONSTANT.fullmatch(name := each.rpartition(".")[2]))


def counted(found_in: Callable[[str], Iterator[str]]) -> dict[str, int]:
    """How many are found in each file that has any."""
    files = (file for file in TESTS.rglob("*.py") if "node_modules" not in file.parts)
    found = {str(file.relative_to(TESTS)): len([*found_in(file.read_text())]) for file in files}
    return {file: count for file, count in sorted(found.items()) if count}


@pytest.mark.parametrize(
    ("found_in", "still"), [(private_accesses, STILL_TOUCHED), (set_constants, STILL_SET)], ids=["touched", "set"]
)
def test_what_tests_touch_inside_is_on_the_list(found_in: Callable[[str], Iterator[str]], still: Path) -> None:
    lines = (line.split() for line in still.read_text().splitlines())
    assert counted(found_in) == {file: int(count) for count, file in lines}, (
        "the list says what is left, and only shrinks"
    )


def test_a_constant_that_is_set_is_seen() -> None:
    assert [*set_constants("p.setattr(module, 'PAUSE', 1)\np.setattr('a.b._MOST', 2)\n")] == ["PAUSE", "_MOST"]
    assert [*set_constants("p.setattr(module, 'Pool', f)\np.setattr('a.b.wait', f)\np.setattr(a, name, 1)\n")] == []


def test_an_access_is_seen_and_what_is_ones_own_is_not() -> None:
    assert sorted(private_accesses("gateway._store\ngateway.service._store.x\nf()._y = 1\n")) == [
        "_store",
        "_store",
        "_y",
    ]
    own = "class A:\n    def f(self):\n        self._x = super()._y\n        cls._z\n        self.__class__\n"
    assert [*private_accesses(own)] == []
    assert [*private_accesses("point._replace(x=1)._asdict()\nos._exit(1)\n")] == []
