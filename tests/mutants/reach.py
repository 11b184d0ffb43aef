"""Which statements of the package each test runs, and how long it takes: `Recorder` finds it, and `Reach` has it.

From it a trial of mutants knows which tests can tell that a line is another, and which of them is the quickest. Each
function gets code in its place that marks a byte before every statement: that costs little, where a tracer would cost
more than the tests.
"""

import ast
import pickle
import re
import time
from array import array
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Final, TypeVar

import pytest
from tests.mutants.package_changes import Function, compiled, functions

PACKAGE: Final = Path(__file__).resolve().parents[2] / "proxy" / "taskgate"
F = TypeVar("F", ast.FunctionDef, ast.AsyncFunctionDef)
LiveFunctions = dict[tuple[str, Function], list[FunctionType]]
"""The functions of the package in this process, by module, name and first line."""
_MARKS: Final = "__reached__"
_MARK: Final = re.compile(b"\x01")


@dataclass(frozen=True, slots=True)
class Place:
    """A statement of a module, or the way around one: where a condition fails, or a loop ends."""

    module: str
    first: int
    last: int
    """The line of its end, or that before its first block."""
    is_around: bool = False


@dataclass(slots=True)
class Reach:
    """What the tests of a run reach. Only tests that passed are in it."""

    places: list[Place] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """The time of each test on the machine's clock, its fixtures included."""
    reached: dict[str, "array[int]"] = field(default_factory=dict)
    """By test, which of `places`."""

    def tests_by_line(self) -> dict[tuple[str, int], list[str]]:
        """The tests that run each line."""
        tests: defaultdict[int, list[str]] = defaultdict(list)
        for test, reached in self.reached.items():
            for number in reached:
                tests[number].append(test)
        found: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for number, names in tests.items():
            place = self.places[number]
            for line in () if place.is_around else range(place.first, place.last + 1):
                found[place.module, line] += names
        return dict(found)

    @classmethod
    def read(cls, file: Path) -> "Reach":
        """What `write` left in a file."""
        return cls(*pickle.loads(file.read_bytes()))

    def write(self, file: Path) -> None:
        """Leave it in a file."""
        file.write_bytes(pickle.dumps((self.places, self.seconds, self.reached)))


class Recorder:
    """A plugin of pytest that records what each test reaches; it changes the functions of this process."""

    def __init__(self, modules: Iterable[str], live: LiveFunctions) -> None:
        self.reach = Reach()
        self._has_passed = True
        for module in modules:
            self._watch(module, live)
        self._marks = bytearray(len(self.reach.places))
        for module in {module for module, _ in live}:
            for function in (each for (name, _), found in live.items() if name == module for each in found):
                function.__globals__[_MARKS] = self._marks

    def _watch(self, module: str, live: LiveFunctions) -> None:
        file = PACKAGE / module
        source = file.read_text(encoding="utf-8")
        tree = _Marked(module, self.reach.places).visit(ast.parse(source))
        for one, other in functions(compiled(source, file), compiled(ast.fix_missing_locations(tree), file)):
            for each in live.get((module, (one.co_qualname, one.co_firstlineno)), ()):
                each.__code__ = other

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Take what runs during a test for what that test reaches."""
        self._marks[:] = bytes(len(self._marks))
        self._has_passed, began = True, time.monotonic()
        try:
            return (yield)
        finally:
            if self._has_passed:
                self.reach.seconds[item.nodeid] = time.monotonic() - began
                self.reach.reached[item.nodeid] = array("I", (each.start() for each in _MARK.finditer(self._marks)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out a test that did not pass."""
        self._has_passed &= report.passed


class _Marked(ast.NodeTransformer):
    """A module whose functions mark each statement that they come to."""

    def __init__(self, module: str, places: list[Place]) -> None:
        self._module, self._places = module, places
        self._is_inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return self._function(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if self._is_inside and not isinstance(node, ast.ClassDef | ast.Lambda):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    setattr(node, name, self._marked(block))
            if isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While) and not node.orelse:
                node.orelse = [self._mark(node, is_around=True)]
        return node

    def _function(self, node: F) -> F:
        was_inside, self._is_inside = self._is_inside, True
        node.body[:] = [self.visit(each) for each in node.body]
        said = 1 if ast.get_docstring(node) is not None else 0
        node.body[said:] = self._marked(node.body[said:])
        self._is_inside = was_inside
        return node

    def _marked(self, block: list[ast.stmt]) -> list[ast.stmt]:
        return [each for statement in block for each in (self._mark(statement), statement)]

    def _mark(self, statement: ast.stmt, *, is_around: bool = False) -> ast.stmt:
        self._places.append(Place(self._module, statement.lineno, _last(statement), is_around))
        mark = ast.parse(f"{_MARKS}[{len(self._places) - 1}] = 1").body[0]
        for each in ast.walk(mark):
            ast.copy_location(each, statement)
        return mark


def _last(statement: ast.stmt) -> int:
    """The last line of a statement, without that of its blocks; those of the cases of a `match` are not told apart."""
    block = getattr(statement, "body", None)
    if isinstance(block, list):
        return max(statement.lineno, block[0].lineno - 1)
    return statement.end_lineno or statement.lineno
