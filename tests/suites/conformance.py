"""The official conformance suites of servers, with taskgate in between or without it.

A part judges one server in the requirements of some revisions. All servers stand behind one gateway.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from interop.hosts import assert_log_is_discreet
from interop.peers import HOME, python_server
from interop.suite import complaints, judged, passes
from suites.verdicts import CONFORMANCE, NEXT_CONFORMANCE, Outcomes, Suite

PACKAGES = {CONFORMANCE: "@modelcontextprotocol/conformance", NEXT_CONFORMANCE: "conformance-next"}
BLOCKING, ASKING = ("conformance_server.py", "1.23.3"), ("modern_questions_server.py", "2.3.0")
"""Two servers. One is of 2025-11-25: it blocks, and asks in the middle of its calls. The other is of both eras: it has
fewer tools, asks before it answers, and has no tasks."""
ENVIRONMENTS = tuple(f"mcp-{version}" for _, version in (BLOCKING, ASKING))
WITHIN = 60.0
"""Seconds for a part; some scenarios of tasks wait for a second or two."""

TASKS = """{
  poll_interval: {base: 100ms, min: 100ms, adaptive: false}, inline_grace: 300ms,
  upgrade: [{tool: failing_job, mode: required}, {tool: "*", mode: auto}],
}"""
"""One tool may be called as a task alone, as the suite wants it; the others are tasks when they are slow."""


class Part(NamedTuple):
    """A part of a suite: its server, and the options that choose its scenarios."""

    server: tuple[str, str]
    options: tuple[str, ...]


PARTS: Mapping[tuple[Suite, str], Part] = {
    (CONFORMANCE, "a server of 2025-11-25"): Part(BLOCKING, ("--suite", "all")),
    (NEXT_CONFORMANCE, "a server of 2025-11-25"): Part(BLOCKING, ("--requirements", "2025-11-25")),
    (NEXT_CONFORMANCE, "a server of 2026-07-28"): Part(ASKING, ("--requirements", "2026-07-28")),
    (NEXT_CONFORMANCE, "a server of 2025-11-25, as one of 2026-07-28"): Part(
        BLOCKING, ("--requirements", "2026-07-28")
    ),
}


class Places(NamedTuple):
    """The URL of a server, and its URL at the gateway."""

    directly: str
    through_taskgate: str


@asynccontextmanager
async def places(folder: Path) -> AsyncIterator[Mapping[tuple[str, str], Places]]:
    """Where each server is. At the end the log of the gateway has nothing of what was said."""
    log = folder / "gateway.log"
    async with AsyncExitStack() as running:
        urls = {each: await running.enter_async_context(python_server(*each, folder)) for each in (BLOCKING, ASKING)}
        upstreams = {each[0].removesuffix(".py"): {"path": f"/{each[0]}/mcp", "url": url} for each, url in urls.items()}
        file = write_configuration(folder, "", upstreams=upstreams, tasks=TASKS, logging={"level": "debug"})
        gateway = await running.enter_async_context(gateway_process(["--config", file], log=log))
        yield {each: Places(url, f"http://{gateway.listen}/{each[0]}/mcp") for each, url in urls.items()}
    for url in urls.values():
        assert_log_is_discreet(log, url)


async def outcomes(suite: Suite, part: str, url: str, folder: Path) -> Outcomes:
    """The outcomes of a part at this URL, by scenario."""
    program = HOME / "node_modules" / PACKAGES[suite] / "dist" / "index.js"
    found = await judged(program, url, folder, *PARTS[suite, part].options, within=WITHIN)
    return {
        name: None if passes(checks) else "; ".join(complaints(checks)) or "nothing checked"
        for name, checks in sorted(found.items())
    }
