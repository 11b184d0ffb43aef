"""Memory: what one held call, and one held task, adds to a fresh process that has been warmed up."""

import statistics
from dataclasses import dataclass
from pathlib import Path

from bench import host
from bench.load_driver import Barrage, Load, body
from bench.measure import SESSIONS
from bench.scenarios import call, task_call
from bench.targets import Running, started

_TASK_CONNECTIONS = 64
TARGETS = {"call": ("bare", "taskgate"), "task": ("least", "taskgate")}
GOALS = {("call", "bare"): 1.1, ("task", "least"): 1.1}
TASK_GOAL = 26.0  # KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """KiB per held call or task (`kind`), one figure a round."""

    kind: str
    target: str
    count: int
    kib: list[float]

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.kib)


class MemoryBench:
    """Holds calls in fresh targets."""

    def __init__(self, stub: Running, load: Load, folder: Path, *, warm_up: int) -> None:
        """`warm_up` is how many requests a fresh target answers before it is looked at."""
        self._stub = stub
        self._load = load
        self._folder = folder
        self._warm_up_count = warm_up
        self._places = 0

    def measure(self, *, rounds: int, held: int, with_taskgate: bool) -> list[Held]:
        """Hold `held` calls, and then `held` tasks, in every target that takes them."""
        wanted = [
            (kind, name) for kind, names in TARGETS.items() for name in names if with_taskgate or name != "taskgate"
        ]
        figures: dict[tuple[str, str], list[float]] = {pair: [] for pair in wanted}
        for _ in range(rounds):
            for kind, name in wanted:
                figures[kind, name].append(self._fresh(kind, name, held))
        return [Held(kind=kind, target=name, count=held, kib=kib) for (kind, name), kib in figures.items()]

    def _fresh(self, kind: str, name: str, held: int) -> float:
        self._places += 1
        folder = self._folder / f"memory-{self._places}"
        folder.mkdir()
        with started(name, self._stub, folder, sessions=SESSIONS) as target:
            self._warm_up(kind, target)
            before = target.program.resident()
            (self._hold_calls if kind == "call" else self._hold_tasks)(target, held)
            target.program.wait_until_quiet()
            added = target.program.resident() - before
            self._let_go(kind, target)
        return added / 1024 / held

    def _warm_up(self, kind: str, target: Running) -> None:
        params = (call if kind == "call" else task_call)("echo", text="warm")
        self._open(target, _TASK_CONNECTIONS, params, "warm" if kind == "call" else '"taskId"')
        answered = host.counts(self._stub.port)["answered"]
        self._load.run(self._warm_up_count)
        self._load.close()
        self._await("answered", answered + self._warm_up_count)
        target.program.wait_until_quiet()

    def _hold_calls(self, target: Running, held: int) -> None:
        self._open(target, held, call("hold", text="held"), "released")
        self._load.begin(held)
        self._await("held", held)

    def _hold_tasks(self, target: Running, held: int) -> None:
        self._open(target, min(held, _TASK_CONNECTIONS), task_call("hold", text="held"), '"taskId"')
        self._load.run(held)
        self._await("held", held)

    def _let_go(self, kind: str, target: Running) -> None:
        host.release(self._stub.port)
        if kind == "call":
            self._load.finish()
        self._load.close()
        self._await("held", 0)
        target.program.wait_until_quiet()

    def _await(self, name: str, count: int) -> None:
        def arrived() -> bool:
            return host.counts(self._stub.port)[name] == count

        host.wait_until(f"{name} == {count}", arrived)

    def _open(self, target: Running, connections: int, params: dict[str, object], marker: str) -> None:
        self._load.open(
            Barrage(
                port=target.port,
                connections=connections,
                sessions=target.sessions,
                bodies=[body("tools/call", params)],
                marker=marker,
            )
        )
