"""An audit that remembers."""

from dataclasses import dataclass, field

from taskgate.telemetry.events import Event


@dataclass
class RecordedEvents:
    """What was reported, in order."""

    all: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.all.append(event)
