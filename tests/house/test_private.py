"""Tests ask things what they promise, and touch no private attribute of another object.

Such a test breaks when the inside changes, though nothing that anybody relies on has.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = CHECKOUT / "tests"
STILL_THERE = Path(__file__).with_name("private_accesses.txt")
"""`COUNT FILE` for each file that still does. Counts and lines only ever go down."""
OWN = {"self", "cls"}
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}
"""What every `NamedTuple` promises; the underscore keeps it apart from fields."""


def private_accesses(source: str) -> Iterator[str]:
    """The names of private attributes that are read or set of anything but `self`, `cls` and `super()`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if node.attr in OF_NAMED_TUPLES:
                continue
            of = node.value
            if isinstance(of, ast.Name) and of.id in OWN:
                continue
            if isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "super":
                continue
            yield node.attr


def counted() -> dict[str, int]:
    """How many there are in each file that has any."""
    files = (file for file in TESTS.rglob("*.py") if "node_modules" not in file.parts)
    found = {str(file.relative_to(TESTS)): len([*private_accesses(file.read_text())]) for file in files}
    return {file: count for file, count in sorted(found.items()) if count}


def test_private_accesses_are_those_on_the_list() -> None:
    lines = (line.split() for line in STILL_THERE.read_text().splitlines())
    assert counted() == {file: int(count) for count, file in lines}, "the list says what is left, and only shrinks"


def test_an_access_is_seen_and_what_is_ones_own_is_not() -> None:
    assert sorted(private_accesses("gateway._store\ngateway.service._store.x\nf()._y = 1\n")) == [
        "_store",
        "_store",
        "_y",
    ]
    own = "class A:\n    def f(self):\n        self._x = super()._y\n        cls._z\n        self.__class__\n"
    assert [*private_accesses(own)] == []
    assert [*private_accesses("point._replace(x=1)._asdict()\n")] == []
