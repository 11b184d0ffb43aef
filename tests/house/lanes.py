"""Runs the tests of one form in lanes: pytest processes side by side, since much is waited for.

`python tests/house/lanes.py FORM` runs `quick` (`make test`), `all` (`make test-all`) or `long` (`make long`). Files of
one folder go together in batches, which share what is started once. A lane takes the longest batch that is left, by
`seconds.json`, which `--measure` writes. Then the tests marked `alone` run, one on each processor. What failed beside
others runs twice more, with nothing else; what passes then is named. The last line says what ran, what was skipped
for want of what, and which command runs the rest.
"""

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.forms import LONG, ON_UVLOOP, SAMPLED
from helpers.tally import Tally, tallies

CHECKOUT = Path(__file__).resolve().parents[2]
SECONDS = CHECKOUT / "tests" / "house" / "seconds.json"
ONLY_ALONE = "passed only alone"
MOST_AGAIN = 5
"""Failed tests that run again: more have another cause than load."""
AGAIN = 2
"""How often each of them must pass alone."""
MOST_TOLD = 100
MEASURED_FROM = 0.5
"""Seconds of a file that is written down. Any other is taken to last as long."""
LONGEST_BATCH = 120.0
"""Seconds of a batch of several files."""
_HINT = re.compile(r" ?\(?(?:on )?Debian: apt-get install (?:--no-install-recommends )?([\w. -]+)\)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Form:
    """A choice of the tests: the command that runs it, the marks that it leaves out, and what runs the rest."""

    command: str
    marks: str
    rest: str
    is_long: bool = False
    """Whether it is what the other forms leave out: long files, and the interaction suite on uvloop."""
    samples: bool = False
    """Whether each test of some folders runs with one of its parameters, and each property with few examples."""
    runs_on_uvloop: bool = False
    runs_alone: bool = False

    def files(self, seconds: dict[str, float]) -> dict[str, float]:
        """The seconds of the files that the form runs on asyncio."""
        return {file: each for file, each in seconds.items() if (file in LONG) is self.is_long}

    def work(self, seconds: dict[str, float]) -> Iterator["Batch"]:
        """All batches of the form but for the tests marked `alone`."""
        options = (f"-m={self.marks}", *(("--hypothesis-profile=same",) if self.samples else ()))
        files = self.files(seconds)
        sampled = {file: each for file, each in files.items() if self.samples and file.split("/")[1] in SAMPLED}
        yield from batches({file: each for file, each in files.items() if file not in sampled}, options)
        yield from batches(sampled, (*options, ONE), LONGEST_BATCH * 2)
        if self.is_long:
            interaction = {file: each for file, each in seconds.items() if file.startswith("tests/interaction/")}
            yield from batches(interaction, (*options, *UVLOOP))
        elif self.runs_on_uvloop:
            chosen = {file: each for file, each in seconds.items() if file in ON_UVLOOP}
            yield from batches(chosen, (*options, *UVLOOP, ONE))


UVLOOP = ("--loop", "uvloop")
ONE = "--one"
FORMS = {
    "quick": Form("make test", "not alone and not thorough", "make test-all, then make soak", samples=True),
    "all": Form("make test-all", "not alone", "make soak", runs_on_uvloop=True, runs_alone=True),
    "long": Form("make long", "not alone", "make test-all", is_long=True, runs_alone=True),
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Files that one process of pytest runs, and the seconds that they take."""

    name: str
    files: tuple[str, ...]
    seconds: float
    options: tuple[str, ...]


def batches(seconds: dict[str, float], options: tuple[str, ...], longest: float = LONGEST_BATCH) -> Iterator[Batch]:
    """The files in batches of one folder of `tests` each, in order, none longer than `longest` but single files."""
    for folder, files in groupby(sorted(seconds), key=lambda file: "/".join(file.split("/")[:2])):
        batch: list[str] = []
        for file in files:
            if batch and sum(map(seconds.__getitem__, batch)) + seconds[file] > longest:
                yield _batch(folder, batch, seconds, options)
                batch = []
            batch.append(file)
        yield _batch(folder, batch, seconds, options)


def _batch(folder: str, files: list[str], seconds: dict[str, float], options: tuple[str, ...]) -> Batch:
    name = files[0] if len(files) == 1 else f"{folder}: {len(files)} files from {Path(files[0]).name}"
    return Batch(name, tuple(files), sum(map(seconds.__getitem__, files)), options)


class Lanes:
    """Processes side by side in a folder that take batches; `tally` has what they did."""

    def __init__(self, folder: Path = CHECKOUT) -> None:
        self.folder = folder
        self._writes = threading.Lock()
        self.tally = Tally()
        self.failed: dict[tuple[str, ...], list[str]] = {}
        """The tests that failed, by the options of their batch."""
        self.broken = False
        """Whether a process ended otherwise than by tests that passed or failed."""

    def run(self, work: Iterable[Batch], side_by_side: int) -> None:
        """Run all of it, the longest batch first."""
        waiting: queue.SimpleQueue[Batch] = queue.SimpleQueue()
        for batch in sorted(work, key=lambda batch: -batch.seconds):
            waiting.put(batch)
        lanes = [threading.Thread(target=self._lane, args=(number, waiting)) for number in range(side_by_side)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def _lane(self, number: int, waiting: "queue.SimpleQueue[Batch]") -> None:
        while True:
            try:
                batch = waiting.get_nowait()
            except queue.Empty:
                return
            self._run(number, batch)

    def _run(self, number: int, batch: Batch) -> None:
        folder = Path(tempfile.mkdtemp(prefix="lane"))
        base = folder / "t"
        command = (
            *(sys.executable, "-m", "pytest", "--quiet", "--no-header", "-p", "no:cacheprovider", f"--basetemp={base}"),
            *batch.options,
            *batch.files,
        )
        environment = {**os.environ, "TALLY": str(folder), "LANE": str(number)}
        began = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            with self._writes:
                self._tell(batch, done, time.monotonic() - began, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _tell(self, batch: Batch, done: "subprocess.CompletedProcess[bytes]", seconds: float, folder: Path) -> None:
        one = Tally()
        for found in tallies(folder):
            one.add(found)
        if "uvloop" in batch.options:
            one.seconds.clear()
        self.tally.add(one)
        if one.failed:
            self.failed.setdefault(batch.options, []).extend(one.failed)
        # Five: the marks left no test of these files.
        is_broken = done.returncode not in {0, 1, 5} or (done.returncode != 5 and not one.outcomes)
        self.broken |= is_broken
        if done.returncode not in {0, 5} or is_broken:
            sys.stdout.write(f"{done.stdout.decode(errors='replace')}\n")
        if done.returncode != 5:
            loop = " on uvloop" if "uvloop" in batch.options else ""
            end = f" PYTEST ENDED WITH {done.returncode}" if is_broken else ""
            sys.stdout.write(f"{batch.name}{loop}: {outcomes(one)} in {seconds:.0f} s{end}\n")
        sys.stdout.flush()


def outcomes(tally: Tally) -> str:
    """The tests of each outcome, in words."""
    return ", ".join(f"{count:,} {outcome}" for outcome, count in tally.outcomes.items() if count) or "no test"


def closing_line(form: Form, tally: Tally, seconds: float) -> str:
    """What ran, what was skipped for want of what, and what runs the rest."""
    minutes, rest = divmod(round(seconds), 60)
    line = f"{form.command}: {outcomes(tally)} in {minutes} min {rest} s. The rest: {form.rest}."
    if tally.skipped:
        line += f" {skipped_line(tally.skipped, form.command)}"
    return line


def skipped_line(skipped: Counter[str], command: str) -> str:
    """How many tests were skipped, for want of what, and what brings that."""
    packages = {name: None for reason in skipped for hint in _HINT.findall(reason) for name in hint.split()}
    reasons = Counter[str]()
    for reason, count in skipped.items():
        reasons[_HINT.sub("", reason)] += count
    wants = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
    bring = f" To install what Debian has: {command} SYSTEM=1 ({', '.join(packages)})" if packages else ""
    return f"{skipped.total()} skipped: {wants}.{bring}"


def main() -> int:
    """Run the form that is asked for; 0 if every test passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("--lanes", type=int, default=2 * (os.cpu_count() or 1), help="processes side by side")
    parser.add_argument("--measure", action="store_true", help="write the seconds of each file")
    parser.add_argument("paths", nargs="*", default=["tests"], help="files and folders (default: tests)")
    asked = parser.parse_intermixed_args()
    form = FORMS[asked.form]
    seconds = {file: json.loads(SECONDS.read_text()).get(file, MEASURED_FROM) for file in _files(asked.paths)}
    began = time.monotonic()
    lanes = Lanes()
    lanes.run(form.work(seconds), asked.lanes)
    if form.runs_alone:
        alone = {
            file: each for file, each in form.files(seconds).items() if "mark.alone" in (CHECKOUT / file).read_text()
        }
        lanes.run(batches(alone, ("-m=alone",)), min(asked.lanes, os.cpu_count() or 1))
    failed = again(lanes)
    if asked.measure:
        before = json.loads(SECONDS.read_text())
        found = measured(before, form.files(seconds), lanes.tally.seconds)
        SECONDS.write_text(f"{json.dumps(found, indent=0)}\n")
        sys.stdout.writelines(costs(lanes.tally))
    for name in failed:
        sys.stdout.write(f"FAILED {name}\n")
    sys.stdout.write(f"{closing_line(form, lanes.tally, time.monotonic() - began)}\n")
    return int(lanes.broken or bool(failed))


def costs(tally: Tally) -> Iterator[str]:
    """A line for each folder, and for the files that cost most: seconds of the clock, and of the processors."""
    by_folder = _by_folder(tally.seconds), _by_folder(tally.busy), None
    for seconds, busy, most in (by_folder, (tally.seconds, tally.busy, MOST_TOLD)):
        for name, each in busy.most_common(most):
            yield f"{name}: {seconds[name]:.0f} s, {each:.0f} s of the processors\n"


def _by_folder(files: Counter[str]) -> Counter[str]:
    folders = Counter[str]()
    for file, each in files.items():
        parts = file.split("/")
        folders["/".join(parts[: 3 if parts[1] == "unit" else 2])] += each
    return folders


def measured(before: Mapping[str, float], ran: Container[str], found: Mapping[str, float]) -> dict[str, float]:
    """The seconds of all files: as found, or as before for those that did not run and are still there."""
    kept = {file: each for file, each in before.items() if file not in ran and (CHECKOUT / file).exists()}
    long_enough = {file: round(each, 1) for file, each in found.items() if each >= MEASURED_FROM}
    return dict(sorted({**kept, **long_enough}.items()))


def again(lanes: Lanes) -> list[str]:
    """Run the few tests that failed beside others twice more, alone; those that failed again, or all of many."""
    failed = list(dict.fromkeys(lanes.tally.failed))
    if not failed or len(failed) > MOST_AGAIN:
        return failed
    alone = Lanes(lanes.folder)
    for _ in range(AGAIN):
        alone.run((Batch("again, alone", tuple(names), 0, options) for options, names in lanes.failed.items()), 1)
    if alone.broken:
        return failed
    passed = [name for name in failed if name not in alone.tally.failed]
    for outcome in ("failed", "error"):
        lanes.tally.outcomes.pop(outcome, None)
    lanes.tally.outcomes.update({"failed": len(failed) - len(passed), ONLY_ALONE: len(passed)})
    for name in passed:
        sys.stdout.write(f"{ONLY_ALONE.upper()} {name}\n")
    return [name for name in failed if name not in passed]


def _files(paths: list[str]) -> list[str]:
    """The test files in these files and folders, as paths in the checkout."""
    found: set[Path] = set()
    for path in map(CHECKOUT.joinpath, paths):
        found.update([path] if path.is_file() else path.rglob("test_*.py"))
    return sorted(
        str(file.relative_to(CHECKOUT)) for file in found if not {"node_modules", "__pycache__"} & set(file.parts)
    )


if __name__ == "__main__":
    sys.exit(main())
