"""What goes wrong and when, from a seed: the same seed plans the same faults at the same moments.

What must not live here: how a fault is made (`fleet`).
"""

from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final


class Fault(Enum):
    """What may befall a replica, its way to the store, or the store."""

    KILL = "kill -9 of a replica, which starts again"
    RESTART = "SIGTERM of a replica, which starts again"
    FREEZE = "SIGSTOP of a replica, and SIGCONT"
    SILENCE = "a replica's way to the store is silent for a while"
    BREAK = "a replica's way to the store is broken for a while"
    STORE_KILL = "kill -9 of the store, which starts again"
    STORE_FREEZE = "SIGSTOP of the store, and SIGCONT"


WEIGHTS: Final = {
    Fault.KILL: 5,
    Fault.RESTART: 2,
    Fault.FREEZE: 4,
    Fault.SILENCE: 3,
    Fault.BREAK: 2,
    Fault.STORE_KILL: 2,
    Fault.STORE_FREEZE: 2,
}
OF_STORE: Final = (Fault.STORE_KILL, Fault.STORE_FREEZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A fault: `at` so many seconds after the beginning, for `length` seconds, of the replica of that number."""

    at: float
    length: float
    fault: Fault
    replica: int

    def __str__(self) -> str:
        whose = "" if self.fault in OF_STORE else f" (replica {self.replica})"
        return f"{self.at:6.2f} s, for {self.length:4.2f} s: {self.fault.value}{whose}"


def plan(seed: int, *, seconds: float, replicas: int, lease: float) -> list[Planned]:
    """Faults, one every two seconds or so, of which some are longer than a lease and many are not."""
    chance = Random(seed)
    faults, moment = [], 1.0
    while moment < seconds - lease:
        fault = chance.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        longest = lease * (0.8 if fault in OF_STORE else 1.8)
        length = chance.uniform(0.1, longest)
        faults.append(Planned(at=moment, length=length, fault=fault, replica=chance.randrange(replicas)))
        moment += chance.uniform(0.5, 3.5)
    return faults
