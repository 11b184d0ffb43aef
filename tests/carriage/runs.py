"""One run of the probe: a host of an era, direct at a server or through taskgate, under a policy of carriage."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.waiting import bounded

from . import links, probe_sockets
from .observations import Observations, of_server
from .probe_host import ProbeHost
from .probe_server import EVENTS, LEGACY, MODERN, REVISIONS, SKILLS, THING, UI, Record

HTTP, SSE, STDIO = "http", "sse", "stdio"
ERAS: Final = (LEGACY, MODERN)
KINDS: Final = ((LEGACY, HTTP), (MODERN, HTTP), (LEGACY, SSE), (LEGACY, STDIO), (MODERN, STDIO))
"""The servers that there are: an era, and a transport that it has."""
POLICIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "allow": {
        "default": "allow",
        EVENTS: "allow",
        THING: {
            "methods": ["thing/do", "thing/list", "thing/partial", "thing/refuse"],
            "notifications": ["notifications/thing/changed"],
            "filters": ["thingChanged"],
            "result_types": ["partial"],
            "cacheable": ["thing/list"],
            "eras": [LEGACY, MODERN],
        },
    },
    "deny": {"default": "deny", UI: "deny", SKILLS: "deny", EVENTS: "deny"},
}
PATIENCE: Final = 40.0
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Who speaks to whom, over what, and under which policy; without a policy the host is at the server itself."""

    host: str
    server: str
    transport: str
    policy: str | None = None

    @property
    def name(self) -> str:
        """The case in words."""
        through = "direct" if self.policy is None else self.policy
        return f"{self.host} host, {self.server} server over {self.transport}, {through}"


CASES: Final = [
    Case(host=host, server=server, transport=transport, policy=policy)
    for policy in POLICIES
    for server, transport in KINDS
    for host in ERAS
]


async def observed(case: Case, folder: Path) -> Observations:
    """What both sides saw; `folder` is for the records of programs."""
    file = folder / f"records-{next(_numbers)}"
    file.touch()
    host = ProbeHost(case.host)
    async with bounded(PATIENCE), AsyncExitStack() as stack:
        url, heard = "", _in_file(file)
        if case.transport != STDIO:
            serving = probe_sockets.over_sse() if case.transport == SSE else probe_sockets.over_http(case.server)
            url, records = await stack.enter_async_context(serving)
            heard = _in_list(records)
        async with _link(case, url, file, host) as link, links.background() as start:
            await host.run(link, start)
            return host.seen | of_server(case.server, heard())


@asynccontextmanager
async def _link(case: Case, url: str, file: Path, host: ProbeHost) -> AsyncIterator[links.Link]:
    if case.policy is not None:
        section = _upstream(case, url, file)
        async with (
            serve(configuration({}, upstreams={"probe": section})) as gateway,
            links.over_http(gateway.url("probe"), host.hear) as link,
        ):
            yield link
        return
    assert case.host == case.server, "a host needs taskgate to reach a server of the other era"
    if case.transport == STDIO:
        direct = links.over_stdio(case.server, file, host.hear)
    else:
        direct = (links.over_sse if case.transport == SSE else links.over_http)(url, host.hear)
    async with direct as link:
        yield link


def _upstream(case: Case, url: str, file: Path) -> dict[str, Any]:
    assert case.policy is not None
    section: dict[str, Any] = {
        "path": "/probe/mcp",
        "transport": case.transport,
        "protocol_version": REVISIONS[case.server],
    }
    policy = dict(POLICIES[case.policy])
    if case.transport == STDIO and policy.get(EVENTS) == "allow":
        # A program knows no caller whose subscriptions these would be; taskgate takes no such configuration.
        del policy[EVENTS]
    if policy:
        section["extensions"] = policy
    return section | ({"command": links.command(case.server, file)} if case.transport == STDIO else {"url": url})


def _in_file(file: Path) -> Callable[[], list[Record]]:
    return lambda: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _in_list(records: list[Record]) -> Callable[[], list[Record]]:
    return lambda: list(records)


async def both(case: Case, folder: Path) -> tuple[Observations, Observations]:
    """What is seen direct, and through taskgate.

    Direct, a host sees a server of its server's era, and a server sees a host of its host's era.
    """
    direct = await _direct(case, folder)
    return direct, await observed(case, folder)


_known: dict[Case, Observations] = {}


async def _direct(case: Case, folder: Path) -> Observations:
    towards_host = await _at(case.server, case.transport, folder)
    # Nobody speaks the modern era over HTTP+SSE.
    transport = HTTP if case.host == MODERN and case.transport == SSE else case.transport
    towards_server = await _at(case.host, transport, folder)
    found = {name: value for name, value in towards_host.items() if name.startswith("host.")}
    return found | {name: value for name, value in towards_server.items() if name.startswith("server.")}


async def _at(era: str, transport: str, folder: Path) -> Observations:
    case = Case(host=era, server=era, transport=transport)
    if case not in _known:
        _known[case] = await observed(case, folder)
    return _known[case]
