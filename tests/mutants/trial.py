"""Each mutant of the store's scripts on trial: whether the tests of its script, against a real Valkey, are red with it.

`make mutants` tries all of them, a program by itself: `python -m tests.mutants.trial [--only TEXT] [--jobs N]`. It ends
with 1 where one survives that `equivalent.txt` does not list, and where one is listed that does not survive. A test of
the usual suite tries those that matter most (`test_trial.py`).
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.mutants.mutations import Mutant, mutants

HERE: Final = Path(__file__).parent
TESTS: Final = HERE.parent
SCRIPTS: Final = TESTS.parent / "proxy" / "taskgate" / "stores" / "redis"
EQUIVALENT: Final = HERE / "equivalent.txt"
BOTH: Final = (
    "-k",
    "valkey and not TestIn",
    "-p",
    "no:cacheprovider",
    "-x",
    "-q",
    "-o",
    "timeout=60",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)

_STORE: Final = (
    "contract/test_swap.py",
    "contract/test_insert_and_load.py",
    "contract/test_leases.py",
    "contract/test_caps.py",
    "contract/test_idempotency_keys.py",
    "contract/test_purge_and_census.py",
    "contract/test_several_processes.py",
    "contract/test_fresh_reads.py",
    "unit/stores/redis/test_lost_answers.py",
    "unit/stores/redis/test_records.py",
    "shared_store/test_garbage.py",
    "shared_store/test_recovering.py",
)
_TESTS: Final = {
    "records/page.lua": (
        ("contract/test_pages.py", "unit/stores/redis/test_records.py"),
        ("shared_store/test_scripts.py", "contract/test_pages.py", "shared_store/test_garbage.py"),
    ),
    "records/fields.lua": (("shared_store/test_scripts.py",), ("contract/test_pages.py", *_STORE)),
    "records/newest.lua": (("contract/test_operators.py",), ("unit/stores/redis/test_records.py",)),
    "records/scan.lua": (("contract/test_operators.py",), ("unit/stores/redis/test_records.py",)),
    "records/restore.lua": (("shared_store/test_scripts.py", "shared_store/test_signs_of_life.py"), _STORE),
    "records/": (("shared_store/test_scripts.py",), _STORE),
    "beat.lua": (("shared_store/test_signs_of_life.py",), ("shared_store/test_garbage.py", "contract/test_leases.py")),
    "post_send.lua": (("shared_store/test_post.py",), ("shared_store/test_garbage.py",)),
    "session_": (("shared_store/test_scripts.py", "contract/test_host_sessions.py"), ("shared_store/test_garbage.py",)),
    "stream_": (("shared_store/test_scripts.py", "shared_store/test_stream_log.py"), ("shared_store/test_garbage.py",)),
    "take.lua": (("contract/test_rates.py",), ("shared_store/test_garbage.py",)),
}
"""By the beginning of a script's name, the tests that are most likely to be red, and then the rest."""


def all_mutants(only: Sequence[str] = ("",)) -> Iterator[Mutant]:
    """Every mutant of every script whose name holds any of `only`."""
    for file in sorted(SCRIPTS.rglob("*.lua")):
        script = file.relative_to(SCRIPTS).as_posix()
        yield from (
            mutant
            for mutant in mutants(script, file.read_text(encoding="utf-8"))
            if any(each in mutant.name for each in only)
        )


def equivalent() -> dict[str, str]:
    """The mutants that no test can tell from the script, each with the reason."""
    found, reason = {}, ""
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line:
            found[line] = reason
    return found


def survivors(tried: Iterable[Mutant], jobs: int) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant, as its trial ends, and whether the tests are green with it."""
    _preload()
    waiting, running = iter(tried), dict[int, Mutant]()
    while True:
        while len(running) < jobs and (mutant := next(waiting, None)) is not None:
            if (child := os.fork()) == 0:
                _try(mutant)
            running[child] = mutant
        if not running:
            return
        child, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 1):
            raise RuntimeError(f"the tests could not be run, pytest said {code}: {running[child].name}")
        yield running.pop(child), code == 0


def _preload() -> None:
    """Import whatever the tests import, once for all trials."""
    import pytest  # noqa: PLC0415

    import taskgate.stores.redis.open  # noqa: F401, PLC0415

    with silence():
        pytest.main(
            [
                *BOTH,
                "--collect-only",
                *sorted({str(TESTS / name) for stages in _TESTS.values() for names in stages for name in names}),
            ]
        )


def _try(mutant: Mutant) -> None:
    """Run the tests of its script with the mutant in its place, in this process, and end with their status."""
    code = 70
    try:
        import pytest  # noqa: PLC0415

        from taskgate.stores.redis.client import Script  # noqa: PLC0415

        before = (SCRIPTS / mutant.script).read_text(encoding="utf-8")
        modules = [module for name, module in sys.modules.items() if name.startswith("taskgate.stores.redis")]
        scripts = [each for module in modules for each in vars(module).values() if isinstance(each, Script)]
        changed = [each for each in scripts if before in each.text]
        assert changed, "nothing runs that script"
        for script in changed:
            script.__init__(script.text.replace(before, mutant.text))  # type: ignore[misc]
        with silence():
            for tests in _tests_of(mutant.script):
                code = int(pytest.main([*BOTH, *(str(TESTS / name) for name in tests)]))
                if code:
                    break
    finally:
        os._exit(code)


@contextmanager
def silence() -> Iterator[None]:
    """Nothing that is written in the block is seen."""
    sys.stdout.flush()
    void, kept = os.open(os.devnull, os.O_WRONLY), [os.dup(1), os.dup(2)]
    try:
        for stream in (1, 2):
            os.dup2(void, stream)
        yield
    finally:
        for stream, before in zip((1, 2), kept, strict=True):
            os.dup2(before, stream)
        for each in (void, *kept):
            os.close(each)


def _tests_of(script: str) -> Sequence[Sequence[str]]:
    return next(tests for prefix, tests in _TESTS.items() if script.startswith(prefix))


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Try what the command line names; the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="mutants whose name holds this; may be given again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    known, survived, count, only = equivalent(), set(), 0, asked.only or [""]
    for mutant, is_green in survivors(all_mutants(only), asked.jobs):
        count += 1
        if is_green:
            survived.add(mutant.name)
            if mutant.name not in known:
                say(f"survives: {mutant.name}")
    dead = {name for name in known if any(each in name for each in only)} - survived
    for name in sorted(dead):
        say(f"listed, but no test is green with it: {name}")
    say(f"{count} mutants, {len(survived)} survive, {len(survived & known.keys())} of them listed")
    return 1 if dead or survived - known.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
