"""Hosts whose every request is counted: each has a number of its own, and says it as its user agent.

What must not live here: what is asked, and what stands in the log.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp

AGENT = "scenario/"
_REQUESTS = re.compile(rf'"event":"rpc\.(?:call|request|rejected)","http":{{[^}}]*"user_agent":"({AGENT}\d+)"')
"""The lines of requests; what a request caused has lines of its own, which may be written before."""
_COUNTED = re.compile(r'"data":{[^}]*"count":(\d+)[^}]*},"event":"rpc\.(?:request|rejected)"')
"""The lines of requests without a known caller. Each stands for so many, and shows the last of them."""


@dataclass(slots=True)
class Sent:
    """One request on its way; `status` is that of the answer, None where none came."""

    verb: str
    path: str
    status: int | None = None


@dataclass(slots=True)
class Count:
    """Every request that left, by its user agent, in the order they left."""

    sent: dict[str, Sent] = field(default_factory=dict)
    nameless: int = 0
    """What left without a user agent."""

    def session(self) -> aiohttp.ClientSession:
        """Connections of hosts. A request that it could not send at all is not counted."""
        config = aiohttp.TraceConfig()
        config.on_request_start.append(self._start)
        config.on_request_end.append(self._end)
        config.on_request_exception.append(self._fail)
        timeout = aiohttp.ClientTimeout(total=30)
        connector = aiohttp.TCPConnector(limit=0)
        return aiohttp.ClientSession(connector=connector, timeout=timeout, trace_configs=[config])

    def is_told(self, folder: Path) -> bool:
        """Whether the audit logs below a folder have the line of each request, or count it."""
        texts = [log.read_text() for log in folder.glob("**/audit.jsonl")]
        shown = {agent for text in texts for agent in _REQUESTS.findall(text)}
        counted = sum(int(count) - 1 for text in texts for count in _COUNTED.findall(text))
        return len(self.sent.keys() - shown) <= counted

    async def _start(self, _: Any, request: SimpleNamespace, params: aiohttp.TraceRequestStartParams) -> None:
        request.agent = params.headers["User-Agent"] = f"{AGENT}{len(self.sent) + 1}"
        self.sent[request.agent] = Sent(params.method, params.url.path)

    async def _end(self, _: Any, request: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
        self.sent[request.agent].status = params.response.status

    async def _fail(self, _: Any, request: SimpleNamespace, params: aiohttp.TraceRequestExceptionParams) -> None:
        if isinstance(params.exception, aiohttp.ClientConnectorError):
            del self.sent[request.agent]
