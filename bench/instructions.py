"""How many instructions one request costs the gateway, counted by valgrind (callgrind): `make instructions`.

    python -m bench.instructions [--tree CHECKOUT ...]

Each request is sent alone, over one connection that is kept, after some that are not counted. What the kernel does is
not in the counts; what timers do meanwhile is. The cheapest of several rounds is taken. With `--tree`, the same is
counted in other checkouts, which stand in columns of their own.

The command fails where a count of this checkout is over its bound in `bench/budgets.py`. Bounds are multiples of what
the `answerer` takes in the same run, for other builds of Python take more or fewer instructions for all that they do.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench import targets, usual
from bench.budgets import ANCHOR, LEEWAY, PROGRAM
from bench.failures import BenchFailed
from bench.processes import Program

WARM: Final = 40
COUNTED: Final = 10
ROUNDS: Final = 5


class Counter:
    """A program that runs under valgrind; `count` tells what something makes it do."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._dumps = 0
        self._control("--instr=on")

    def _control(self, *order: str) -> None:
        command = ["callgrind_control", *order, str(self._program.popen.pid)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if told.returncode or "Error" in told.stdout + told.stderr:
            raise BenchFailed(f"{' '.join(command)}: {told.stdout}{told.stderr}")

    def count(self, act: usual.Act) -> int:
        """Instructions for each time that something is done, in the cheapest of several rounds."""
        for _ in range(WARM):
            act()
        return min(self._round(act) for _ in range(ROUNDS)) // COUNTED

    def _round(self, act: usual.Act) -> int:
        self._program.wait_until_quiet(2)
        self._control("--zero")
        for _ in range(COUNTED):
            act()
            time.sleep(usual.BETWEEN)
        self._dumps += 1
        self._control("--dump")
        return self._newest_total()

    def _newest_total(self) -> int:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            files = sorted(self._folder.glob("callgrind.out.*.*"), key=lambda file: int(file.suffix[1:]))
            if len(files) >= self._dumps:
                for line in files[-1].read_text(errors="replace").splitlines():
                    if line.startswith(("totals:", "summary:")):
                        return int(line.split()[1])
            time.sleep(0.1)
        raise BenchFailed("callgrind wrote no totals")


def measure(tree: Path | None) -> dict[str, int]:
    """Instructions of each kind of request."""
    with tempfile.TemporaryDirectory() as place, targets.started_stub(get_stream=False) as stub:
        folder = Path(place)
        with usual.started(_valgrind(folder), stub, folder, tree) as (program, requests):
            counter = Counter(program, folder)
            return {kind: counter.count(act) for kind, act in requests.kinds().items()}


def measure_anchor() -> int:
    """Instructions of an answer of the answerer."""
    with tempfile.TemporaryDirectory() as place, usual.started_anchor(_valgrind(Path(place))) as (program, act):
        return Counter(program, Path(place)).count(act)


def _valgrind(folder: Path) -> list[str]:
    return ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/callgrind.out.%p"]


def over(counts: Mapping[str, int], anchor: int) -> list[str]:
    """The kinds of request that cost too much, each with its count and its bound in thousands."""
    bounds = {kind: anchor * budget.instructions * LEEWAY for kind, budget in PROGRAM.items()}
    return [
        f"{kind}: {counts[kind] / 1000:,.0f}, bound {bound / 1000:,.0f}"
        for kind, bound in bounds.items()
        if counts[kind] > bound
    ]


def main() -> None:
    """Count, print a table, and judge it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, action="append", default=[], help="another checkout to count in")
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not here (Debian: apt-get install --no-install-recommends valgrind)")
    trees: list[Path | None] = [*given.tree, None]
    columns = [measure(tree) for tree in trees]
    anchor = measure_anchor()
    names = [("this" if tree is None else os.fspath(tree)) for tree in trees]
    print(f"| instructions of one request, in thousands | {' | '.join(names)} |")
    print(f"|---|{'--:|' * len(names)}")
    for kind in columns[0]:
        print(f"| {kind} | {' | '.join(f'{column[kind] / 1000:,.0f}' for column in columns)} |")
    print(f"| {ANCHOR} | {' | '.join([f'{anchor / 1000:,.0f}'] * len(names))} |")
    if found := over(columns[-1], anchor):
        raise SystemExit("\n".join(["over the bounds of bench/budgets.py, in thousands:", *found]))


if __name__ == "__main__":
    main()
