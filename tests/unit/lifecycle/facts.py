"""An audit that remembers."""

from dataclasses import dataclass, field

from taskgate.telemetry.events import Event


@dataclass
class Facts:
    """What was reported, in order."""

    all: list[Event] = field(default_factory=list)

    def emit(self, fact: Event) -> None:
        self.all.append(fact)
