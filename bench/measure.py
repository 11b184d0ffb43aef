"""The measuring: rounds over the targets in turn, CPU of the target alone, every answer checked.

A round puts the same count of requests on each target, one after the other and every second round backwards, so that
whatever the machine does meanwhile meets all of them; ratios are taken within a round.
"""

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import host
from bench.load_driver import Barrage, Body, Load, body
from bench.processes import Program, ended, python
from bench.scenarios import Scenario, task_call
from bench.targets import Running, started

SESSIONS = 64  # host sessions per target; connections share them evenly
_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One round on one target: CPU µs and load CPU µs per request (or event), requests a second, latencies in ms."""

    cpu: float
    rate: float
    p50: float
    p99: float
    load_cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All rounds of a scenario; the samples of a target stand in the order of the rounds."""

    scenario: Scenario
    count: int
    samples: dict[str, list[Sample]]


@contextlib.contextmanager
def started_load() -> Iterator[Load]:
    """The load process."""
    with ended(Program("the load", python("load"), piped=True)) as program:
        yield Load(program)


@contextlib.contextmanager
def started_all(names: Sequence[str], stub: Running, folder: Path) -> Iterator[dict[str, Running]]:
    """Every target of `names`, answering; `direct` is the stub itself."""
    with contextlib.ExitStack() as stack:
        running = {}
        for name in names:
            place = folder / name
            place.mkdir()
            sessions = SESSIONS if name != "answerer" else 1
            running[name] = (
                stub if name == "direct" else stack.enter_context(started(name, stub, place, sessions=sessions))
            )
        yield running


class Bench:
    """A stub, a load and running targets, on which scenarios are measured."""

    def __init__(self, stub: Running, load: Load, running: dict[str, Running]) -> None:
        self._stub = stub
        self._load = load
        self._running = running

    def measure(
        self, scenario: Scenario, *, rounds: int, scale: float, bodies: Mapping[str, Sequence[Body]] | None = None
    ) -> Outcome:
        """Run `scenario` on those of its targets that are running; `bodies` are by target, where it has none itself."""
        count = max(scenario.connections, round(scenario.count * scale))
        names = [name for name in scenario.targets if name in self._running]
        bodies = bodies or {name: self._bodies(scenario, self._running[name]) for name in names}
        chance = random.Random(_SEED)
        samples: dict[str, list[Sample]] = {name: [] for name in names}
        for turn in range(rounds):
            for name in names if turn % 2 == 0 else reversed(names):
                given = bodies[name]
                if scenario.in_turn:
                    given = chance.sample(given, min(len(given), count + _warm_up(scenario, count)))
                samples[name].append(self._round(scenario, self._running[name], given, count))
        if scenario.needs_held_tasks:
            self._release()
        if scenario.creates_tasks:
            for name in names:
                _require_a_task_to_end(self._running[name])
        return Outcome(scenario=scenario, count=count, samples=samples)

    def _bodies(self, scenario: Scenario, target: Running) -> list[Body]:
        if not scenario.needs_held_tasks:
            return [body(scenario.method, scenario.params)]
        created = [host.create(target.port, heads, task_call("hold", text="")) for heads in target.sessions]
        return [body(scenario.method, {"taskId": task_id}) for task_id in created]

    def _round(self, scenario: Scenario, target: Running, bodies: Sequence[Body], count: int) -> Sample:
        barrage = Barrage(
            port=target.port,
            connections=scenario.connections,
            sessions=target.sessions,
            bodies=bodies,
            marker=scenario.marker,
            times=scenario.times,
            in_turn=scenario.in_turn,
            to_results=scenario.to_results,
            tokens=_tokens(scenario, target, count),
        )
        self._load.open(barrage)
        self._load.run(_warm_up(scenario, count))
        target.program.wait_until_quiet()
        answered, used = host.counts(self._stub.port)["answered"], target.program.cpu()
        run = self._load.run(count, scenario.rate)
        if scenario.creates_tasks:
            self._await_answered(answered + count)
            target.program.wait_until_quiet()
        used = target.program.cpu() - used
        self._load.close()
        each = 1e6 / count / scenario.per
        return Sample(
            cpu=used * each,
            rate=count / run.seconds,
            p50=run.p50 * 1e3,
            p99=run.p99 * 1e3,
            load_cpu=run.load_cpu * each,
        )

    def _await_answered(self, count: int) -> None:
        host.wait_until(f"{count} calls answered", lambda: host.counts(self._stub.port)["answered"] >= count)

    def _release(self) -> None:
        host.release(self._stub.port)
        host.wait_until("no call held", lambda: host.counts(self._stub.port)["held"] == 0)


def _warm_up(scenario: Scenario, count: int) -> int:
    return max(scenario.connections, count // 20)


def _tokens(scenario: Scenario, target: Running, count: int) -> list[str]:
    if target.name != "fresh" or target.issuer is None:
        return []
    return target.issuer.tokens(_warm_up(scenario, count) + count)


def _require_a_task_to_end(target: Running) -> None:
    """See that what was measured is the whole duty: a task ends and its result is there."""
    heads = target.sessions[0]
    task_id = {"taskId": host.create(target.port, heads, task_call("echo", text="kept"))}
    host.wait_until(
        f"a task of {target.name} completed",
        lambda: host.ask(target.port, heads, "tasks/get", task_id)["status"] == "completed",
    )
    if host.ask(target.port, heads, "tasks/result", task_id)["content"][0]["text"] != "kept":
        raise host.BenchFailed(f"{target.name} lost a result")
