"""Cases as data: files of inputs and outputs, which the functions of a folder are run against.

`tests/cases/README.md` has the form of the files. `--rewrite` writes what comes out as the output of each case.
"""

import difflib
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest

from helpers.case_values import read, show, show_error

CASES: Final = Path(__file__).parents[1] / "cases"
DASHES: Final = "----"
LABEL: Final = "case"
"""The column that says what a row is about."""
_HEADING: Final = re.compile(r"# (?P<sentence>[^\[]+?)(?: \[(?P<ids>[\w, -]+)\])?")


@dataclass(frozen=True)
class Section:
    """A sentence about behaviour, with the ids that its cases show."""

    file: Path
    sentence: str
    ids: tuple[str, ...]

    @property
    def requirements(self) -> list[str]:
        """The ids but for those of rulings."""
        return [id for id in self.ids if not id.startswith("AMB-")]

    @property
    def place(self) -> str:
        """The section as documents name it."""
        return f"{self.file.relative_to(CASES.parents[1])}::{self.sentence}"


@dataclass
class Case:
    """An input and the output that it must have; `command` is the line that begins with `$`."""

    file: "CaseFile"
    section: Section
    command: str
    name: str
    arguments: list[str]
    output: str
    is_row: bool

    @property
    def function(self) -> str:
        """The function that makes the output, by its place in the folder."""
        return self.command.split(" ")[1]

    @property
    def text(self) -> str:
        """The case as it stands in its file."""
        return self.told(self.output)

    def told(self, output: str) -> str:
        """The case with an output."""
        if self.is_row:
            return f"{' | '.join(self.arguments)} => {output}"
        return "\n".join([f"## {self.name}", *self.arguments, DASHES, output])


@dataclass
class CaseFile:
    """One file: its lines, in which the cases stand as objects."""

    path: Path
    parts: list[str | Case] = field(default_factory=list)

    @property
    def cases(self) -> list[Case]:
        """The cases, in their order."""
        return [part for part in self.parts if isinstance(part, Case)]

    @property
    def sections(self) -> list[Section]:
        """The sections that have cases."""
        return list(dict.fromkeys(case.section for case in self.cases))

    def write(self) -> None:
        """Write the file with the outputs that the cases have now."""
        lines = (part if isinstance(part, str) else part.text for part in self.parts)
        self.path.write_text("\n".join(lines).rstrip("\n") + "\n")


def read_file(path: Path) -> CaseFile:
    """The cases of a file. Raises ValueError with the line that makes no sense."""
    found, section, command = CaseFile(path), None, ""
    lines = iter(enumerate(path.read_text().splitlines(), 1))
    for number, line in lines:
        if line.startswith("# "):
            heading = _HEADING.fullmatch(line)
            if heading is None:
                raise ValueError(f"{path}:{number}: a heading is a sentence, then ids in brackets")
            section = Section(path, heading["sentence"], tuple((heading["ids"] or "").replace(",", " ").split()))
        elif line.startswith("$ "):
            command = line
        elif line.startswith("; "):
            pass
        elif section is not None and line.startswith("## "):
            found.parts += [_block(found, section, command, line[3:], lines), ""]
            continue
        elif section is not None and line:
            arguments, separator, output = line.rpartition(" => ")
            if not separator or not command:
                raise ValueError(f"{path}:{number}: neither a case nor a command")
            found.parts.append(Case(found, section, command, arguments, arguments.split(" | "), output, is_row=True))
            continue
        found.parts.append(line)
    return found


def _block(file: CaseFile, section: Section, command: str, name: str, lines: Iterator[tuple[int, str]]) -> Case:
    arguments, output, is_output = list[str](), list[str](), False
    for _, line in lines:
        if is_output and not line:
            break
        if line == DASHES:
            is_output = True
        else:
            (output if is_output else arguments).append(line)
    if not is_output:
        raise ValueError(f"{file.path}: {name} has no output")
    return Case(file, section, command, name, arguments, "\n".join(output), is_row=False)


def sections_of(folder: Path) -> dict[str, list[Case]]:
    """The cases of the files in a folder and in those below it, by file and sentence."""
    found: dict[str, list[Case]] = {}
    for path in sorted(folder.rglob("*.txt")):
        for case in read_file(path).cases:
            found.setdefault(f"{path.relative_to(folder).with_suffix('')}: {case.section.sentence}", []).append(case)
    return found


def all_sections(root: Path = CASES) -> list[Section]:
    """The sections of all files."""
    return [section for path in sorted(root.rglob("*.txt")) for section in read_file(path).sections]


# --- running ----------------------------------------------------------------------------------------------------------

Judge = Callable[[Any, Mapping[str, Any]], None]
"""Gets a result and the arguments; fails a test for a result that breaks the protocol."""


class Runner:
    """Runs the cases of one folder of the package.

    `subjects` are the objects whose methods are called, by the name of their class; others of the class by that name
    and one more word. `own` are functions of the tests, which commands name without a dot. `judges` are for the results
    of the functions that they are named after.
    """

    def __init__(
        self,
        folder: str,
        *,
        subjects: Mapping[str, object] | None = None,
        own: Mapping[str, Callable[..., Any]] | None = None,
        values: Mapping[str, Any] | None = None,
        judges: Mapping[str, Judge] | None = None,
        root: Path = CASES,
    ) -> None:
        self._folder = folder
        self._root = root
        self._subjects = subjects or {}
        self._own = own or {}
        self._values = values or {}
        self._judges = judges or {}

    @cached_property
    def sections(self) -> dict[str, list[Case]]:
        """All cases of the folder, by file and sentence."""
        return sections_of(self._root / self._folder)

    def check(self, cases: list[Case], *, rewrite: bool) -> None:
        """Fail the test if one of the cases has another output, or write the outputs into their file."""
        outputs = [self._output(case) for case in cases]
        if rewrite and outputs != [case.output for case in cases]:
            for case, output in zip(cases, outputs, strict=True):
                case.output = output
            cases[0].file.write()
        expected = [line for case in cases for line in case.text.splitlines()]
        found = [line for case, output in zip(cases, outputs, strict=True) for line in case.told(output).splitlines()]
        if expected != found:
            pytest.fail("\n".join(difflib.unified_diff(expected, found, "expected", "found", n=2, lineterm="")), False)
        for case in cases:
            if self._judged(case) is not None:
                self._judge(case)

    def _output(self, case: Case) -> str:
        """What comes out of the input of a case, as text."""
        function, arguments = self._call(case)
        try:
            return show(function(**arguments))
        except Exception as error:
            return show_error(error)

    def _judged(self, case: Case) -> Judge | None:
        return None if case.output == "none" or case.output.startswith("! ") else self._judges.get(case.function)

    def _judge(self, case: Case) -> None:
        function, arguments = self._call(case)
        self._judges[case.function](function(**arguments), arguments)

    def _call(self, case: Case) -> tuple[Callable[..., Any], dict[str, Any]]:
        words = case.command[2:].split(" ")[1:]
        function = self._function(case.function, words)
        return function, self._arguments(function, words, case.arguments, is_row=case.is_row)

    def _function(self, path: str, words: list[str]) -> Callable[..., Any]:
        if path in self._own:
            return self._own[path]
        names = path.split(".")
        found: Any = importlib.import_module(f"taskgate.{self._folder}")
        for at, name in enumerate(names):
            module = f"taskgate.{self._folder}.{'.'.join(names[: at + 1])}"
            if hasattr(found, "__path__") and at < len(names) - 1 and importlib.util.find_spec(module):
                found = importlib.import_module(module)
                continue
            owner = found if inspect.isclass(found) else None
            if owner is not None and owner.__name__ in self._subjects:
                others = [f"{owner.__name__} {word[3:]}" for word in words if word.startswith("on=")]
                found = self._subjects[others[0] if others else owner.__name__]
            found = getattr(found, name)
        result: Callable[..., Any] = found
        return result

    def _arguments(
        self, function: Callable[..., Any], words: list[str], columns: list[str], *, is_row: bool
    ) -> dict[str, Any]:
        hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
        named = [word for word in words if "=" not in word and (is_row or word != LABEL)]
        if "self" in named or any(word.startswith("self=") for word in words):
            hints["self"] = _owner(function)
        if len(named) == 1 and not is_row:
            columns = ["\n".join(columns)]
        if len(named) != len(columns):
            raise ValueError(f"there are {len(columns)} inputs for {named}")
        texts = dict(zip(named, columns, strict=True))
        texts |= dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("on="))
        texts.pop(LABEL, None)
        return {name: self._value(hints.get(name, str), text) for name, text in texts.items()}

    def _value(self, kind: Any, text: str) -> Any:
        return self._values[text] if text in self._values else read(kind, text)


def _owner(function: Callable[..., Any]) -> Any:
    """The class whose method a function is."""
    found: Any = importlib.import_module(function.__module__)
    for name in function.__qualname__.split(".")[:-1]:
        found = getattr(found, name)
    return found


def rewrites(request: pytest.FixtureRequest) -> bool:
    """Whether outputs are written instead of compared."""
    return bool(request.config.getoption("--rewrite"))
