"""Mutants of the package: what is changed, that a seed draws the same ones again, and that tests are red with them."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import cast

from tests.mutants.package_changes import changes, codes
from tests.mutants.package_trial import FOLDERS, Verdict, in_turn, is_enough, modules, table
from tests.mutants.reach import Place, marked
from tests.mutants.trial import TESTS

SOURCE = '''"""A module."""

MOST = 3


def first(numbers: list[int], most: int = 3) -> int | None:
    """The first that is small enough."""
    for number in numbers:
        if number <= most and number not in {2: True}:
            return number
    return None


class Door:
    """A door."""

    def close(self, name: str) -> None:
        self.is_open = False
        self.log.info("closed")


async def saved(work: object) -> object:
    await asyncio.shield(work.done())
'''
HELD = (
    "jsontext/edits.py: negated: name in names",
    "jsontext/edits.py: nothing returned: return edits",
    "jsontext/edits.py: left out: pieces.append(text[at:])",
    "jsontext/depth.py: turned: count > limit",
)
"""Mutants that `test_edits.py` and `test_depth.py` kill, each those of its module."""
UNREACHED = "jsontext/display.py: turned: len(line) <= most"


def test_each_place_in_a_function_is_changed_and_nothing_outside() -> None:
    assert sorted(each.name for each in changes(SOURCE)) == [
        "and for or: number <= most and number not in {2: True}",
        "left out: await asyncio.shield(work.done())",
        "left out: self.is_open = False",
        "left out: self.log.info('closed')",
        "negated: number <= most and number not in {2: True}",
        "not shielded: await asyncio.shield(work.done())",
        "nothing returned: return number",
        "one less: 2",
        "one more: 2",
        "the other: False",
        "the other: True",
        "turned: number <= most",
        "turned: number not in {2: True}",
    ]


def test_texts_are_changed_where_that_is_asked_for() -> None:
    more = {each.name for each in changes(SOURCE, with_texts=True)} - {each.name for each in changes(SOURCE)}
    assert more == {"longer: 'closed'"}


def test_a_change_is_put_into_the_place_of_a_function() -> None:
    module: dict[str, object] = {}
    exec(compile(SOURCE, "door.py", "exec"), module)
    first = cast(FunctionType, module["first"])
    assert first([3, 1]) == 3
    (change,) = [each for each in changes(SOURCE) if each.name == "turned: number <= most"]
    ((name, line), code), *others = codes(SOURCE, change, Path("door.py")).items()
    assert (name, line, others) == ("first", 6, [])
    first.__code__ = code
    assert first([3, 1]) == 1


def test_the_lines_of_a_change_are_those_of_the_smallest_part_that_runs_alone() -> None:
    lines = {each.name: each.lines for each in changes(SOURCE)}
    assert lines["turned: number not in {2: True}"] == range(9, 10)
    assert lines["left out: self.log.info('closed')"] == range(19, 20)


def test_a_test_reaches_the_case_that_it_comes_to_and_no_other() -> None:
    cases = "        case 'one':\n            return 1\n        case _:\n            return 2\n"
    source = f"def number(name):\n    match name:\n{cases}"
    places: list[Place] = []
    module: dict[str, object] = {"__reached__": (marks := bytearray(3))}
    exec(compile(marked("numbers.py", source, places), "numbers.py", "exec"), module)
    assert cast(FunctionType, module["number"])("two") == 2
    reached = [place for place, mark in zip(places, marks, strict=True) if mark]
    assert sorted(line for place in reached for line in place.lines) == [2, 3, 5, 6]


def test_a_seed_draws_the_same_mutants_again_and_another_seed_others() -> None:
    first, again, others = (
        [mutant.name for mutant in islice(in_turn(("cluster", "sessions"), seed), 8)] for seed in (1, 1, 2)
    )
    assert first == again
    assert set(first) != set(others)
    assert {name.partition("/")[0] for name in first} == {"cluster", "sessions"}


def test_every_folder_of_the_package_is_on_trial() -> None:
    assert {module.partition("/")[0] for module in modules() if "/" in module} == set(FOLDERS)


"""
"""


def test_tests_are_red_with_a_mutant_that_they_reach(tmp_path: Path) -> None:
    written = tmp_path / "verdicts"
    command = [sys.executable, "-m", "tests.mutants.package_trial", "--folders", "jsontext", "--write", str(written)]
    command += [part for name in (*HELD, UNREACHED) for part in ("--only", name)]
    command += ["--floor", "0.8", "--tests", *(f"tests/unit/jsontext/test_{name}.py" for name in ("depth", "edits"))]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False, timeout=170)
    said = done.stdout.splitlines()
    assert (done.returncode, said[:1]) == (0, [f"survives: {UNREACHED}"]), done.stderr
    assert said[-1] == "5 mutants, 4 killed, 0 of them by a test that hangs"
    verdicts = {found["mutant"]: found for found in map(json.loads, written.read_text().splitlines())}
    for name in HELD:
        module = name.partition(".")[0].rpartition("/")[2]
        assert verdicts[name]["killers"].keys() == {f"tests/unit/jsontext/test_{module}.py"}
    assert (verdicts[UNREACHED]["unit"], verdicts[UNREACHED]["killers"]) == (0, {})


def verdict(folder: str, killer: str | None = None, **killers: str) -> Verdict:
    return Verdict(mutant="m", folder=folder, line=1, behaviour=1, unit=1, killer=killer, killers=killers)


def test_a_share_of_the_mutants_has_to_be_killed() -> None:
    verdicts = [verdict("jsontext", "a test"), verdict("jsontext")]
    assert is_enough(verdicts, 0.5)
    assert not is_enough(verdicts, 0.6)
    assert not is_enough([], 0.0)


def test_the_table_has_what_killed_the_mutants_of_each_folder() -> None:
    by_two = verdict("cli", one="a test", other="a test")
    verdicts = [verdict("auth", "a test", one="a test"), verdict("auth", one="a test"), by_two, verdict("cli")]
    assert [line.split() for line in table(verdicts)] == [
        ["folder", "mutants", "behaviour", "unit", "both", "none"],
        ["auth", "2", "0", "1", "1", "0"],
        ["cli", "2", "0", "1", "0", "1"],
        ["alone:", "1", "by", "one"],
    ]


def test_a_mutant_that_only_tests_show_that_hang_is_told_apart() -> None:
    assert verdict("cli", one="a test (hangs)").hangs
    assert not verdict("cli", "a test", one="a test (hangs)").hangs
    assert not verdict("cli").hangs
