"""What listeners of a gateway hear, each fact with the visit that it was told in."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from helpers.scripted_upstream import ScriptedServer
from helpers.whole_gateway import WholeGateway, configuration, running
from taskgate.telemetry.audit import HttpAnswered, PartAnswered
from taskgate.telemetry.metrics.prometheus import PrometheusAudit
from taskgate.telemetry.visit import Visit, current


class Visits:
    """The facts of the gateways that are opened while it listens."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, Visit | None]] = []

    def closed(self) -> list[Visit]:
        """The visits that are over, in the order in which they ended."""
        return [visit for fact, visit in self.all if isinstance(fact, HttpAnswered) and visit is not None]

    def last(self) -> Visit:
        """The one that ended last."""
        return self.closed()[-1]

    def parts(self) -> list[Visit]:
        """The visits of messages that came together with others, once they are over."""
        return [visit for fact, visit in self.all if isinstance(fact, PartAnswered) and visit is not None]

    def of(self, kind: type[Any]) -> list[Visit | None]:
        """The visits in which facts of that kind were told."""
        return [visit for fact, visit in self.all if isinstance(fact, kind)]

    def told_in(self, visit: Visit) -> list[Any]:
        """The facts of one visit."""
        return [fact for fact, its in self.all if its is visit]

    def told_of(self, visit: Visit) -> list[Any]:
        """The facts of a request, those too that are of what goes on of it in the background."""
        return [fact for fact, its in self.all if its is not None and its.id == visit.id]


@contextmanager
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Visits]:
    """Listen for the length of a block; to be begun before the gateway."""
    visits, record = Visits(), PrometheusAudit.record

    def recording(audit: Any, fact: Any) -> None:
        visits.all.append((fact, current()))
        record(audit, fact)

    with monkeypatch.context() as patch:
        patch.setattr(PrometheusAudit, "record", recording)
        yield visits


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Visits]:
    """What listeners hear."""
    with listening(monkeypatch) as visits:
        yield visits


@pytest.fixture
async def heard(visits: Visits, server: ScriptedServer) -> AsyncIterator[WholeGateway]:
    """A gateway that is listened to."""
    async with running(configuration({"reports": server.url})) as gateway:
        yield gateway
