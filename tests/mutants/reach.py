"""Which statements of the package each test runs, and how long it takes: `Recorder` finds it, `Reach` has it.

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
from collections.abc import Callable, Generator, Iterable, Iterator
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
    """A statement of a module, and its lines without those of its blocks."""

    module: str
    lines: tuple[int, ...]


@dataclass(slots=True)
class Reach:
    """What the tests of a run reach. Only tests that passed are in it."""

    places: list[Place] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """By test, the time on the machine's clock that it took with its fixtures."""
    tests: list["array[int]"] = field(default_factory=list)
    """For each of `places`, the tests that reach it, as places in `seconds`."""

    def tests_by_line(self) -> Callable[[str, range], set[str]]:
        """Finds the tests that run any of some lines of a module."""
        names = [*self.seconds]
        numbers: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for number, place in enumerate(self.places):
            for line in place.lines:
                numbers[place.module, line].append(number)

        def found(module: str, lines: range) -> set[str]:
            places = {number for line in lines for number in numbers.get((module, line), ())}
            return {names[test] for number in places for test in self.tests[number]}

        return found

    @classmethod
    def read(cls, file: Path) -> "Reach":
        """What `write` left in a file."""
        return cls(*pickle.loads(file.read_bytes()))

    def write(self, file: Path) -> None:
        """Leave it in a file."""
        file.write_bytes(pickle.dumps((self.places, self.seconds, self.tests)))


class Recorder:
    """A plugin of pytest that records what each test reaches; it changes the functions of this process."""

    def __init__(self, modules: Iterable[str], live: LiveFunctions) -> None:
        self.reach = Reach()
        self._has_passed = True
        for module in modules:
            self._watch(module, live)
        self._marks = bytearray(len(self.reach.places))
        self.reach.tests = [array("I") for _ in self.reach.places]
        for function in (each for found in live.values() for each in found):
            function.__globals__[_MARKS] = self._marks

    def _watch(self, module: str, live: LiveFunctions) -> None:
        file = PACKAGE / module
        source = file.read_text(encoding="utf-8")
        for one, other in functions(compiled(source, file), compiled(marked(module, source, self.reach.places), file)):
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
                number = len(self.reach.seconds)
                self.reach.seconds[item.nodeid] = time.monotonic() - began
                for mark in _MARK.finditer(self._marks):
                    self.reach.tests[mark.start()].append(number)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out a test that did not pass."""
        self._has_passed &= report.passed


def marked(module: str, source: str, places: list[Place]) -> ast.Module:
    """The module with a mark before each statement of its functions; adds to `places` what each mark is of."""
    tree: ast.Module = _Marked(module, places).visit(ast.parse(source))
    return ast.fix_missing_locations(tree)


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

    def _mark(self, statement: ast.stmt) -> ast.stmt:
        self._places.append(Place(self._module, tuple(_own_lines(statement))))
        mark = ast.parse(f"{_MARKS}[{len(self._places) - 1}] = 1").body[0]
        for each in ast.walk(mark):
            ast.copy_location(each, statement)
        return mark


def _own_lines(statement: ast.stmt) -> Iterator[int]:
    if isinstance(statement, ast.Match):
        yield from range(statement.lineno, statement.cases[0].pattern.lineno)
        for case in statement.cases:
            yield from range(case.pattern.lineno, max(case.pattern.lineno + 1, case.body[0].lineno))
    elif isinstance(block := getattr(statement, "body", None), list):
        yield from range(statement.lineno, max(statement.lineno + 1, block[0].lineno))
    else:
        yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
