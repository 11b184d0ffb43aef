"""An audit that remembers."""

from dataclasses import dataclass, field

from taskgate.telemetry.audit import Fact


@dataclass
class Facts:
    """What was reported, in order."""

    all: list[Fact] = field(default_factory=list)

    def record(self, fact: Fact) -> None:
        self.all.append(fact)
