"""What listeners of a gateway hear, each event with the visit that it was told in."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from helpers.scripted_upstream import ScriptedServer
from helpers.whole_gateway import WholeGateway, configuration, running
from taskgate.telemetry.events import BatchItemAnswered, HttpAnswered
from taskgate.telemetry.metrics.prometheus import PrometheusRecorder
from taskgate.telemetry.request_context import RequestContext, current


class Visits:
    """The events of the gateways that are opened while it listens."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, RequestContext | None]] = []

    def closed(self) -> list[RequestContext]:
        """The visits that are over, in the order in which they ended."""
        return [
            request_context
            for event, request_context in self.all
            if isinstance(event, HttpAnswered) and request_context is not None
        ]

    def last(self) -> RequestContext:
        """The one that ended last."""
        return self.closed()[-1]

    def parts(self) -> list[RequestContext]:
        """The visits of messages that came together with others, once they are over."""
        return [
            request_context
            for event, request_context in self.all
            if isinstance(event, BatchItemAnswered) and request_context is not None
        ]

    def of(self, kind: type[Any]) -> list[RequestContext | None]:
        """The visits in which events of that kind were told."""
        return [request_context for event, request_context in self.all if isinstance(event, kind)]

    def told_in(self, request_context: RequestContext) -> list[Any]:
        """The events of one visit."""
        return [event for event, its in self.all if its is request_context]

    def told_of(self, request_context: RequestContext) -> list[Any]:
        """The events of a request, those too that are of what goes on of it in the background."""
        return [event for event, its in self.all if its is not None and its.id == request_context.id]


@contextmanager
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Visits]:
    """Listen for the length of a block; to be begun before the gateway."""
    request_contexts, emit = Visits(), PrometheusRecorder.emit

    def recording(recorder: Any, event: Any) -> None:
        request_contexts.all.append((event, current()))
        emit(recorder, event)

    with monkeypatch.context() as patch:
        patch.setattr(PrometheusRecorder, "emit", recording)
        yield request_contexts


@pytest.fixture
def request_contexts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Visits]:
    """What listeners hear."""
    with listening(monkeypatch) as request_contexts:
        yield request_contexts


@pytest.fixture
async def heard(request_contexts: Visits, server: ScriptedServer) -> AsyncIterator[WholeGateway]:
    """A gateway that is listened to."""
    async with running(configuration({"reports": server.url})) as gateway:
        yield gateway
