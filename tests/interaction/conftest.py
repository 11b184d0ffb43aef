"""A scripted server and the whole gateway in front of it; nothing secret is told by it, whatever a test does."""

import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import schema
from helpers.mcp_host import Answer, McpHost
from helpers.scripted_upstream import ScriptedServer
from helpers.token_issuer import TokenIssuer
from helpers.whole_gateway import WholeGateway, configuration, running
from taskgate.telemetry.audit import Fact
from taskgate.telemetry.metrics import PrometheusAudit

# A token, and an id of a task or of a session.
SECRET = re.compile(r"eyJ[A-Za-z0-9_-]{8}|(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])")
_LABEL = re.compile(r'="([^"]*)"')


class Told:
    """What the gateways of a test told whom it does not concern: log lines, facts, metrics, bodies of errors."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.facts: list[Fact] = []
        self.texts: list[str] = []
        self._audits: list[PrometheusAudit] = []
        record, post = PrometheusAudit.record, McpHost.post

        def recording(audit: PrometheusAudit, fact: Fact) -> None:
            if audit not in self._audits:
                self._audits.append(audit)
            self.facts.append(fact)
            record(audit, fact)

        async def posting(host: McpHost, *given: Any, **more: Any) -> Answer:
            answer = await post(host, *given, **more)
            if answer.status >= 300 or (answer.message is not None and "error" in answer.message):
                self.texts.append(f"{answer.text} {answer.headers.get('WWW-Authenticate')}")
            return answer

        patched.setattr(PrometheusAudit, "record", recording)
        patched.setattr(McpHost, "post", posting)

    def of(self, kind: type[Any]) -> list[Any]:
        """The facts of that kind."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def note(self, record: logging.LogRecord) -> bool:
        """Take note of a log line, with everything that hangs on it."""
        self.texts.append(f"{logging.Formatter().format(record)} {vars(record)}")
        return True

    def everything(self) -> list[str]:
        """All of it as text."""
        labels = [" ".join(_LABEL.findall(audit.render(None)[0].decode())) for audit in self._audits]
        return [*self.texts, *map(repr, self.facts), *labels]


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """What was told; a test in which that holds a token or an id of a task or session fails."""
    told = Told(monkeypatch)
    ear, ours = logging.NullHandler(logging.DEBUG), logging.getLogger("taskgate")
    ear.handle = told.note  # type: ignore[method-assign]  # whatever comes is only noted
    before = ours.level
    ours.addHandler(ear)
    ours.setLevel(logging.DEBUG)
    yield told
    ours.setLevel(before)
    ours.removeHandler(ear)
    leaked = [
        match.string[max(0, match.start() - 60) : match.end()]
        for match in map(SECRET.search, told.everything())
        if match
    ]
    assert leaked == []


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server with three tools; `echo` and `report` answer with their arguments.

    Whatever it was told is held against the schema at the end.
    """
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report", "broken")]
        yield server
    if schema.available():
        for request in server.requests:
            if isinstance(request.message, dict) and "method" in request.message:
                schema.check_client_message(request.message)


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[WholeGateway]:
    """A gateway with default rules, in memory."""
    async with running(configuration({"reports": server.url})) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: WholeGateway) -> McpHost:
    """A host of 2025-11-25 with an open session."""
    return await gateway.greeted()


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    """An issuer whose keys are in a file."""
    return TokenIssuer(tmp_path)
