"""Many running tasks, each with a host that waits for its result: what is resident then, and how long a poll takes.

Every task holds a call at the stub, and every waiter a blocking `tasks/result`: two descriptors of taskgate each.
It takes as many host connections as it has three descriptors for.
"""

import random
import resource
from dataclasses import dataclass
from pathlib import Path

from bench import host
from bench.load_driver import Barrage, Load, body
from bench.measure import SESSIONS, started_load
from bench.scenarios import task_call
from bench.targets import Running, started

MIB_GOAL = 400.0
P99_GOAL = 5.0  # ms
GOALS_FROM = 9_000  # waiters; a run with fewer says nothing of the goals, which are meant for 10,000
_SPARE = 500  # descriptors of taskgate for all the rest
_RATE = 100.0  # polls a second; slow enough for one caller, and whatever happens now and then falls into some of them
_POLLS = 2_000  # in a round, so that it is longer than the time between two comments on a silent stream
_LEAST_POLLS = 100
_DRAWN = 1_000  # tasks that are polled
_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """One figure a round: MiB resident in all, and the latencies of `tasks/get` in ms, while `count` hosts waited."""

    count: int
    mib: list[float]
    p50: list[float]
    p99: list[float]


def fitting(wanted: int) -> int:
    """As many waiters as the hard limit of descriptors allows, at most `wanted`; tells when they are fewer."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    room = wanted if hard == resource.RLIM_INFINITY else max(1, (hard - _SPARE) // 3)
    if room >= wanted:
        return wanted
    print(
        f"FEWER WAITERS: {room:,} instead of {wanted:,}. taskgate wants three descriptors for each, and {_SPARE} "
        f"more, and the hard limit is {hard:,} (`ulimit -Hn`).\n",
        flush=True,
    )
    return room


def measure(stub: Running, load: Load, folder: Path, *, count: int, rounds: int, scale: float) -> Waited:
    """Hold `count` tasks and as many waiters in a fresh taskgate, once a round."""
    waited = Waited(count=count, mib=[], p50=[], p99=[])
    for turn in range(rounds):
        place = folder / f"waiters-{turn}"
        place.mkdir()
        with started_load() as waiters, started("open", stub, place, sessions=SESSIONS) as target:
            _round(stub, target, waiters, load, waited, max(_LEAST_POLLS, round(_POLLS * scale)))
    return waited


def _round(stub: Running, target: Running, waiters: Load, load: Load, waited: Waited, polls: int) -> None:
    count = waited.count
    ids = host.create_many(target.port, target.sessions, task_call("hold", text="held"), count)
    host.wait_until(f"{count} calls held", lambda: host.counts(stub.port)["held"] == count)
    waiters.open(_asking(target, "tasks/result", ids, connections=count, marker="released"))
    waiters.begin(count)
    host.wait_until(f"{count} hosts waiting", lambda: target.program.descriptors() > 2 * count)
    target.program.wait_until_quiet()
    drawn = random.Random(_SEED).sample(ids, min(len(ids), _DRAWN))
    load.open(_asking(target, "tasks/get", drawn, connections=1, marker='"working"'))
    load.run(_LEAST_POLLS)
    run = load.run(polls, _RATE)
    waited.mib.append(target.program.resident() / 2**20)
    waited.p50.append(run.p50 * 1e3)
    waited.p99.append(run.p99 * 1e3)
    load.close()
    host.release(stub.port)
    # Each of them must have its result now, and none can have had it before.
    waiters.finish()
    waiters.close()


def _asking(target: Running, method: str, ids: list[str], *, connections: int, marker: str) -> Barrage:
    return Barrage(
        port=target.port,
        connections=connections,
        sessions=target.sessions,
        bodies=[body(method, {"taskId": task_id}) for task_id in ids],
        marker=marker,
        in_turn=True,
    )
