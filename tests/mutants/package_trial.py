"""Mutants of the package on trial: whether tests of its behaviour, or unit tests of its folder, are red with them.

`make mutants` tries 200: `python -m tests.mutants.package_trial --seed N --mutants N --floor SHARE`. It ends with 1
where fewer than that share are killed. One process collects the tests, and a child records which lines each one runs.
Then a child for each mutant puts the changed code in its place, and runs tests that reach it, quick ones first.

First run tests of behaviour, from as many files as reach the line. Then run unit tests of the folder: some, or all that
reach the line where no test of behaviour is red. With `--write` each verdict is a line of JSON.
"""

import argparse
import gc
import importlib
import json
import os
import random
import resource
import select
import signal
import struct
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from os import _exit as exit_at_once
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final, NoReturn

import pytest
from tests.mutants.package_changes import Change, Function, changes, codes
from tests.mutants.reach import PACKAGE, LiveFunctions, Reach, Recorder
from tests.mutants.trial import say, silence

BEHAVIOUR: Final = ("tests/interaction/", "tests/contract/", "tests/identity/")
FOLDERS: Final = (
    *(
        "upstream",
        "lifecycle",
        "listener",
        "gateway",
        "telemetry",
        "stores",
        "cluster",
        "sessions",
        "streams",
        "operators",
    ),
    *("wiring", "cli", "admission", "auth", "config", "domain", "jsontext", "protocol", "explain", "system"),
)
PURE: Final = frozenset({"admission", "auth", "config", "domain", "jsontext", "protocol", "explain"})
"""Folders whose texts are changed, too."""
ELSEWHERE: Final = ("share/", "upstream/stdio/supervisor/", "__main__.py")
"""What runs in processes of its own, where no mutant is put in its place."""
MARKS: Final = "not alone and not thorough"
MOST_OF_BEHAVIOUR: Final = 25
"""Tests of behaviour that run for a mutant."""
MOST_OF_A_FILE: Final = 40
"""Unit tests of one file that run for a mutant."""
MOST_AFTER_IT_DIED: Final = 25
"""Unit tests that run for a mutant that a test of behaviour killed."""
MOST_KILLERS: Final = 3
"""Files of unit tests that are red, after which the others do not run."""
HUNG: Final = 12.0
"""Seconds, and twenty times what a test took before, after which it is taken to hang."""
PROCESSOR: Final = 60
"""Seconds of the processor that the tests of one child may take."""
_NUMBER: Final = struct.Struct("I")
_IS_RED: Final = 0xFFFFFFFF
_HANGS: Final = " (hangs)"
_NO_TRIAL: Final = 70
"""The status of a process that could not run its tests."""
_MARK: Final = "MUTANT_ON_TRIAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A change of a module, and the functions that are others with it."""

    folder: str
    module: str
    change: Change
    codes: dict[Function, CodeType]

    @property
    def name(self) -> str:
        """The module and the change."""
        return f"{self.module}: {self.change.name}"


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What the tests say of a mutant. After the name of a test stands how it ended, if it was not just red."""

    mutant: str
    folder: str
    line: int
    behaviour: int
    """How many tests of behaviour reach the change."""
    unit: int
    """How many unit tests of the folder do."""
    killer: str | None = None
    """The test of behaviour that is red."""
    killers: dict[str, str] = field(default_factory=dict)
    """By file, the unit test that is red."""

    @property
    def is_killed(self) -> bool:
        """Whether any test is red."""
        return self.killer is not None or bool(self.killers)

    @property
    def hangs(self) -> bool:
        """Whether all that shows it is a test that does not end."""
        red = [*self.killers.values(), *filter(None, (self.killer,))]
        return bool(red) and all(test.endswith(_HANGS) for test in red)


def modules(folder: str = "") -> Iterator[str]:
    """The modules of a folder that run in this process."""
    for file in sorted((PACKAGE / folder).rglob("*.py")):
        module = file.relative_to(PACKAGE).as_posix()
        if not module.startswith(ELSEWHERE):
            yield module


def mutants(folder: str, seed: int, only: Sequence[str] = ("",)) -> Iterator[Mutant]:
    """All mutants of a folder whose names hold any of `only`, in an order that the seed draws."""
    sources = {module: (PACKAGE / module).read_text(encoding="utf-8") for module in modules(folder)}
    every = [(module, each) for module, text in sources.items() for each in changes(text, with_texts=folder in PURE)]
    for module, change in random.Random(f"{seed}:{folder}").sample(every, len(every)):
        is_asked_for = any(each in f"{module}: {change.name}" for each in only)
        if is_asked_for and (found := codes(sources[module], change, PACKAGE / module)):
            yield Mutant(folder=folder, module=module, change=change, codes=found)


def in_turn(folders: Sequence[str], seed: int, only: Sequence[str] = ("",)) -> Iterator[Mutant]:
    """One mutant of each folder, then another of each."""
    drawn = [mutants(folder, seed, only) for folder in folders]
    while drawn:
        for each in list(drawn):
            if mutant := next(each, None):
                yield mutant
            else:
                drawn.remove(each)


class Trial:
    """A plugin of pytest that tries mutants with the collected tests, in place of a run of these."""

    def __init__(self, folders: Sequence[str], tried: Iterator[Mutant], on_verdict: Callable[[Verdict], None]) -> None:
        self._folders, self._tried, self._on_verdict = folders, tried, on_verdict
        self._items: dict[str, pytest.Item] = {}
        self._functions: LiveFunctions = {}
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants."""
        self._items = {item.nodeid: item for item in session.items}
        self._functions = live_functions()
        reach = recorded(session.items, self._folders, self._functions)
        tests_of, self._seconds = reach.tests_by_line(), reach.seconds
        for mutant in self._tried:
            if not any((mutant.module, function) in self._functions for function in mutant.codes):
                continue  # such as one that is deleted after use: nothing runs it
            tests = sorted(tests_of(mutant.module, mutant.change.lines))
            self._on_verdict(self._judge(mutant, tests))
        return True

    def _judge(self, mutant: Mutant, tests: list[str]) -> Verdict:
        draw = random.Random(mutant.name)
        behaviour = [test for test in tests if test.startswith(BEHAVIOUR)]
        unit = [test for test in tests if test.startswith(f"tests/unit/{mutant.folder}/")]
        verdict = Verdict(
            mutant=mutant.name,
            folder=mutant.folder,
            line=mutant.change.lines.start,
            behaviour=len(behaviour),
            unit=len(unit),
        )
        verdict.killer = next(self._red(mutant, self._quick(_spread(behaviour, draw, MOST_OF_BEHAVIOUR))), None)
        if verdict.killer:
            red = islice(self._red(mutant, self._quick(_spread(unit, draw, MOST_AFTER_IT_DIED))), 1)
        else:
            red = islice(self._red(mutant, self._by_file(unit)), MOST_KILLERS)
        verdict.killers = {_file(test): test for test in red}
        return verdict

    def _quick(self, tests: list[str]) -> list[str]:
        return sorted(tests, key=self._seconds.__getitem__)

    def _by_file(self, tests: list[str]) -> list[str]:
        """The tests of each file together, quick ones and quick files first, and not too many of one."""
        files = defaultdict(list)
        for test in self._quick(tests):
            files[_file(test)].append(test)
        return [test for found in files.values() for test in found[:MOST_OF_A_FILE]]

    def _red(self, mutant: Mutant, tests: list[str]) -> Iterator[str]:
        """The first red test of each file."""
        while tests:
            place, end = self._run(mutant, tests)
            if end is None:
                return
            yield f"{tests[place]}{end}"
            # A red test may have left anything behind: the other files get a process of their own.
            tests = [test for test in tests[place + 1 :] if _file(test) != _file(tests[place])]

    def _run(self, mutant: Mutant, tests: list[str]) -> tuple[int, str | None]:
        """The place of the first red test, and how it ended; None where none is red."""
        from_child, to_parent = os.pipe()
        if (child := os.fork()) == 0:
            os.close(from_child)
            self._try(mutant, tests, to_parent)
        os.close(to_parent)
        place, end, bound = 0, None, HUNG
        while True:
            if not select.select([from_child], [], [], bound)[0]:
                end = _HANGS
                break
            said = os.read(from_child, _NUMBER.size)
            if not said:
                break
            (number,) = _NUMBER.unpack(said)
            if number == _IS_RED:
                end = ""
            else:
                place, bound = number, HUNG + 20 * self._seconds[tests[number]]
        os.close(from_child)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        _end_programs(child)
        if end is None and (code := os.waitstatus_to_exitcode(status)):
            if code == _NO_TRIAL:
                raise RuntimeError(f"the tests could not be run: {mutant.name}")
            end = " (died)"
        return place, end

    def _try(self, mutant: Mutant, tests: list[str], to_parent: int) -> NoReturn:
        """Run the tests with the mutant in its place, and end this process; each place is said before its test runs."""
        status = _NO_TRIAL
        try:
            os.setpgid(0, 0)
            os.environ[_MARK] = str(os.getpid())
            resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR, PROCESSOR))
            for function, code in mutant.codes.items():
                for each in self._functions.get((mutant.module, function), ()):
                    each.__code__ = code
            items = [self._items[test] for test in tests]
            seen = _Outcomes()
            items[0].config.pluginmanager.unregister(name="terminalreporter")
            items[0].config.pluginmanager.register(seen)
            for place, (item, following) in enumerate(_pairs(items)):
                os.write(to_parent, _NUMBER.pack(place))
                with seen.of_interruptions():
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if seen.is_red:
                    os.write(to_parent, _NUMBER.pack(_IS_RED))
                    break
            status = 0
        finally:
            exit_at_once(status)


class _Outcomes:
    """Whether any test of a process was red."""

    def __init__(self) -> None:
        self.is_red = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.is_red |= report.failed

    @contextmanager
    def of_interruptions(self) -> Iterator[None]:
        """Take for red what would end the whole run."""
        try:
            yield
        except (Exception, KeyboardInterrupt, SystemExit):
            self.is_red = True


def recorded(items: list[pytest.Item], folders: Sequence[str], live: LiveFunctions) -> Reach:
    """What the tests reach of the folders, found in a process of its own: this one gets no thread and no loop."""
    file = Path(tempfile.mkstemp()[1])
    if (child := os.fork()) == 0:
        try:
            recorder = Recorder((module for folder in folders for module in modules(folder)), live)
            items[0].config.pluginmanager.register(recorder)
            for item, following in _pairs(items):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            recorder.reach.write(file)
        finally:
            exit_at_once(0)
    os.waitpid(child, 0)
    reach = Reach.read(file)
    file.unlink()
    return reach


def _pairs(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each test and the one after it, for which pytest keeps what both share."""
    return zip(items, [*items[1:], None], strict=True)


def live_functions() -> LiveFunctions:
    """The functions of the package in this process, by module, name and first line."""
    found = defaultdict(list)
    gc.unfreeze()  # what is frozen is not listed
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and (code := each.__code__).co_filename.startswith(f"{PACKAGE}/"):
            module = code.co_filename.removeprefix(f"{PACKAGE}/")
            found[module, (code.co_qualname, code.co_firstlineno)].append(each)
    gc.freeze()
    return dict(found)


def _spread(tests: list[str], draw: random.Random, most: int) -> list[str]:
    """So many of the tests at most: one of each file, then another of each."""
    files = defaultdict(list)
    for test in draw.sample(tests, len(tests)):
        files[_file(test)].append(test)
    ranked = sorted((place, test) for found in files.values() for place, test in enumerate(found))
    return [test for _, test in ranked[:most]]


def _file(test: str) -> str:
    return test.partition("::")[0]


def _end_programs(child: int) -> None:
    """End what the tests of a process started and left."""
    mark = f"{_MARK}={child}\0".encode()
    for place in Path("/proc").glob("[0-9]*/environ"):
        # Most processes of others cannot be read, and each may end at any moment.
        with suppress(OSError):
            if mark in place.read_bytes():
                os.kill(int(place.parent.name), signal.SIGKILL)


def killed(verdicts: list[Verdict]) -> int:
    """How many of the mutants are killed."""
    return sum(verdict.is_killed for verdict in verdicts)


def table(verdicts: list[Verdict]) -> Iterator[str]:
    """What killed the mutants of each folder, and how many each file of unit tests killed that nothing else did."""
    yield f"{'folder':<12}{'mutants':>8}{'behaviour':>10}{'unit':>6}{'both':>6}{'none':>6}"
    for folder in dict.fromkeys(verdict.folder for verdict in verdicts):
        of_it = [verdict for verdict in verdicts if verdict.folder == folder]
        by = Counter((verdict.killer is not None, bool(verdict.killers)) for verdict in of_it)
        yield (
            f"{folder:<12}{len(of_it):>8}{by[True, False]:>10}{by[False, True]:>6}"
            f"{by[True, True]:>6}{by[False, False]:>6}"
        )
    alone = Counter(
        file for verdict in verdicts if verdict.killer is None and len(verdict.killers) == 1 for file in verdict.killers
    )
    yield from (f"alone: {count} by {file}" for file, count in sorted(alone.items()))


def is_enough(verdicts: list[Verdict], floor: float) -> bool:
    """Whether mutants were tried, and at least that share of them is killed."""
    return bool(verdicts) and killed(verdicts) >= floor * len(verdicts)


def main() -> int:
    """Try what the command line names; the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--floor", type=float, default=0.0, help="the share that must be killed")
    parser.add_argument("--folders", nargs="+", default=FOLDERS)
    parser.add_argument("--only", action="append", help="mutants whose name holds this; may be given again")
    parser.add_argument("--tests", nargs="+", help="files and folders (default: those of behaviour and of the folders)")
    parser.add_argument("--write", type=Path, help="a file to which each verdict is added as a line of JSON")
    asked = parser.parse_args()
    verdicts: list[Verdict] = []

    def take(verdict: Verdict) -> None:
        verdicts.append(verdict)
        if asked.write:
            with asked.write.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(asdict(verdict))}\n")

    tried = islice(in_turn(asked.folders, asked.seed, asked.only or [""]), asked.mutants)
    tests = asked.tests or [*BEHAVIOUR, *(f"tests/unit/{folder}" for folder in asked.folders)]
    options = ("-qq", "-p", "no:cacheprovider", "--hypothesis-profile=few", "-m", MARKS)
    with silence():
        for module in (module for folder in asked.folders for module in modules(folder)):
            name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            importlib.import_module(f"taskgate.{name}")
        status = pytest.main([*options, *tests], [Trial(asked.folders, tried, take)])
    if status:
        raise RuntimeError(f"the tests could not be run, pytest said {status}")
    for verdict in verdicts:
        if not verdict.is_killed:
            say(f"survives: {verdict.mutant}")
    for line in table(verdicts):
        say(line)
    hang = sum(verdict.hangs for verdict in verdicts)
    say(f"{len(verdicts)} mutants, {killed(verdicts)} killed, {hang} of them by a test that hangs")
    return 0 if is_enough(verdicts, asked.floor) else 1


if __name__ == "__main__":
    sys.exit(main())
