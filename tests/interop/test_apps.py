"""Views of MCP Apps are the same through taskgate as they are directly: what servers declare and list, their documents,
what a view is given and what its own calls are answered.

The released servers of Apps speak 2025-11-25 and declare nothing. A server of ours on the released packages declares,
speaks either revision and lists one tool for hosts with views alone. The host opens each view by the bridge of the Apps
package, in memory.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from interop.hosts import assert_log_is_discreet
from interop.peers import HOME, output_of, require_peers
from interop.programs import upstreams
from interop.released import HTTP, STDIO
from peers import install
from requirements import covers

# One server and one gateway for all tests of it: their output is read by the loop that started them.
pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

UI = "io.modelcontextprotocol/ui"
DECLARED = {"x-views": [2]}
"""What the server of ours declares for UI."""
SETTINGS = {"mimeTypes": ["text/html;profile=mcp-app"], "x-host": {"sizes": [1.5, None]}}
"""What the host does."""

HOSTS = {"client": (), "sdk": ("--sdk",), "stateless-client": ("--stateless",)}
OF_EACH_ERA = ("client", "stateless-client")

Told = dict[str, Any]

CHANGING = re.compile(r'\d{4}-\d\d-\d\dT[\d:.]+Z|(?<="counter":)\d+|(?<="processedAt":)\d+')
"""A time, and the number of a call."""
OF_A_HOP = frozenset({"io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/related-task"})
"""Keys of a result's `_meta` by which the one who answers tells of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A server. `own` is whether it is ours; `for_views` are the tools that it has for views alone."""

    name: str
    era: str
    own: bool
    calls: tuple[tuple[str, Told], ...]
    for_views: tuple[str, ...]

    @property
    def host(self) -> str:
        """The host that speaks its revision."""
        return "stateless-client" if self.era == "modern" else "client"


BASIC = Kind(name="apps-basic", era="legacy", own=False, calls=(("get-time", {}),), for_views=())
DEBUG = Kind(
    name="apps-debug",
    era="legacy",
    own=False,
    calls=(("debug-tool", {"contentType": "mixed", "largeInput": "x" * 100}),),
    for_views=("debug-refresh", "debug-log"),
)
OURS = tuple(
    Kind(name=f"apps-{era}", era=era, own=True, calls=(("show", {}), ("told", {})), for_views=("refresh",))
    for era in ("legacy", "modern")
)
KINDS = [(kind, transport) for kind in (BASIC, DEBUG, *OURS) for transport in (HTTP, STDIO)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server, and what a host was told without a gateway: one with views, and one that declares none."""

    kind: Kind
    upstream: dict[str, Any]
    folder: Path
    direct: Told
    plain: Told


async def told(host: str, target: str, kind: Kind, *options: str) -> Told:
    """All that a host is told, but for what is never the same."""
    words = [word for tool, given in kind.calls for word in (tool, json.dumps(given))]
    command = [install.node(), HOME / "host_apps.mjs", target, *HOSTS[host], *options, *words]
    _, output, errors = await output_of(command)
    assert output, errors
    found: Told = json.loads(CHANGING.sub("0", output))
    return found


async def all_told(kind: Kind, target: str, hosts: tuple[str, ...], *options: str) -> dict[str, Told]:
    """What each of these hosts is told, all at once."""
    found = await asyncio.gather(*(told(host, target, kind, *options) for host in hosts))
    return dict(zip(hosts, found, strict=True))


def directly(upstream: dict[str, Any]) -> str:
    """The server itself, as the section of a configuration has it."""
    return json.dumps(upstream["command"]) if upstream["transport"] == STDIO else str(upstream["url"])


def listed(found: Told) -> dict[str, Told]:
    """The tools by name, without what the gateway tells otherwise: whether they can be tasks."""
    return {tool["name"]: {key: value for key, value in tool.items() if key != "execution"} for tool in found["tools"]}


def own(result: Told) -> Told:
    """A result without what belongs to one hop, or to an era."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if key not in OF_A_HOP}
    members = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    return members | ({"_meta": meta} if meta else {})


def results(found: Told) -> dict[str, Told]:
    """What each call for the model gave."""
    return {tool: own(call["result"]) for tool, call in found["calls"].items()}


def views(found: Told) -> dict[str, Told | None]:
    """What each view was given, and what its own calls and reads were answered."""
    return {tool: call["view"] and _own_view(call["view"]) for tool, call in found["calls"].items()}


def _own_view(view: Told) -> Told:
    answers = {tool: own(result) for tool, result in view["answers"].items()}
    return {**view, "result": own(view["result"]), "answers": answers}


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=KINDS, ids=[f"{kind.name}-{transport}" for kind, transport in KINDS]
)
async def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Each server over each transport, and what is told without a gateway."""
    require_peers()
    kind, transport = request.param
    folder = tmp_path_factory.mktemp(f"{kind.name}-{transport}")
    async with upstreams({"apps": (kind.name, transport)}, folder) as written:
        upstream = written["apps"]
        yield Served(
            kind=kind,
            upstream=upstream,
            folder=folder,
            direct=await told(kind.host, directly(upstream), kind),
            plain=await told(kind.host, directly(upstream), kind, "--without-ui"),
        )


def configured(served: Served, **extensions: str) -> Path:
    """A gateway before that server, which makes a task of every call that a host lets it."""
    upstream = served.upstream | ({"extensions": extensions} if extensions else {})
    tasks = {
        "upgrade": [{"tool": "*", "mode": "always"}],
        "poll_interval": {"base": "100ms", "min": "100ms", "adaptive": False},
    }
    folder = served.folder / ("denied" if extensions else "carried")
    folder.mkdir()
    return write_configuration(
        folder,
        "",
        upstreams={"apps": upstream},
        tasks=tasks,
        logging={"level": "debug"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Through:
    """What hosts were told through a gateway: by plain calls, and by calls that were tasks."""

    plainly: dict[str, Told]
    as_tasks: dict[str, Told]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def through(served: Served) -> Through:
    """With the rules that a gateway has by itself."""
    file = configured(served)
    log = file.with_name("gateway.log")
    async with gateway_process(["--config", file], log=log) as gateway:
        url = f"http://{gateway.listen}/apps/mcp"
        found = Through(
            plainly=await all_told(served.kind, url, tuple(HOSTS)),
            as_tasks=await all_told(served.kind, url, OF_EACH_ERA, "--tasks"),
        )
    if "url" in served.upstream:
        assert_log_is_discreet(log, served.upstream["url"])
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def denied(served: Served) -> dict[str, Told]:
    """Where the operator denies Apps to that server."""
    file = configured(served, **{UI: "deny"})
    async with gateway_process(["--config", file], log=file.with_name("gateway.log")) as gateway:
        return await all_told(served.kind, f"http://{gateway.listen}/apps/mcp", OF_EACH_ERA)


# --- what stands beside all of it: without it the others would say nothing -------------------------------------------


async def test_the_servers_have_views_without_a_gateway(served: Served) -> None:
    kind, direct = served.kind, served.direct
    tools = listed(direct)
    assert direct["ui"] == (DECLARED if kind.own else None)
    assert {tool for tool, call in direct["calls"].items() if call["view"]} == {*results(direct)} - {"told"}
    assert {name for name in tools if tools[name].get("_meta", {}).get("ui", {}).get("visibility") == ["app"]} == {
        *kind.for_views
    }
    assert ("paint" in tools, "paint" in listed(served.plain)) == (kind.own, False)
    for call in direct["calls"].values():
        assert not call["result"].get("isError")
        assert not call["wasTask"]


async def test_the_document_of_a_view_is_the_one_that_was_released(served: Served) -> None:
    package = "server-debug" if served.kind is DEBUG else "server-basic-vanillajs"
    html = (HOME / "node_modules/@modelcontextprotocol" / package / "dist/mcp-app.html").read_bytes()
    tool, _ = served.kind.calls[0]
    (document,) = served.direct["documents"][listed(served.direct)[tool]["_meta"]["ui"]["resourceUri"]]
    assert (document["length"], document["digest"]) == (len(html), hashlib.sha256(html).hexdigest())
    assert document["mimeType"] == "text/html;profile=mcp-app"


async def test_the_server_of_ours_tells_the_host_what_that_declared(served: Served) -> None:
    said = {name: found["calls"]["told"]["result"] for name, found in _both(served) if "told" in found["calls"]}
    ui = {name: result["structuredContent"]["ui"] for name, result in said.items()}
    assert ui == ({"direct": SETTINGS, "plain": None} if served.kind.own else {})


def _both(served: Served) -> list[tuple[str, Told]]:
    return [("direct", served.direct), ("plain", served.plain)]


# --- through a gateway -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", HOSTS)
async def test_what_the_server_declares_of_views_is_told_and_no_more(
    served: Served, through: Through, host: str
) -> None:
    assert through.plainly[host]["ui"] == served.direct["ui"]


@covers("X-APP-3", "X-APP-8")
@pytest.mark.parametrize("host", HOSTS)
async def test_the_same_tools_are_listed_with_the_same_metadata(served: Served, through: Through, host: str) -> None:
    assert listed(through.plainly[host]) == listed(served.direct)


@covers("X-APP-5")
@pytest.mark.parametrize("host", HOSTS)
async def test_the_same_documents_are_listed_and_read(served: Served, through: Through, host: str) -> None:
    for key in ("resources", "documents"):
        assert through.plainly[host][key] == served.direct[key]


@pytest.mark.parametrize("host", HOSTS)
async def test_the_server_is_told_what_the_host_declares_and_gives_the_same_results(
    served: Served, through: Through, host: str
) -> None:
    assert results(through.plainly[host]) == results(served.direct)


@pytest.mark.parametrize("host", HOSTS)
async def test_a_view_is_given_the_same_and_its_own_calls_are_answered(
    served: Served, through: Through, host: str
) -> None:
    assert views(through.plainly[host]) == views(served.direct)


@covers("X-APP-9", "X-APP-10")
@pytest.mark.parametrize("host", OF_EACH_ERA)
async def test_a_view_is_given_the_same_out_of_a_task_and_its_own_calls_are_none(
    served: Served, through: Through, host: str
) -> None:
    found = through.as_tasks[host]
    assert {tool: call["wasTask"] for tool, call in found["calls"].items()} == {
        tool: True for tool, _ in served.kind.calls
    }
    assert results(found) == results(served.direct)
    assert views(found) == views(served.direct)


@covers("X-APP-9")
async def test_only_tools_for_models_can_be_tasks(served: Served, through: Through) -> None:
    decorated = {tool["name"] for tool in through.plainly["client"]["tools"] if "execution" in tool}
    assert decorated == {*listed(through.plainly["client"])} - {*served.kind.for_views}


# --- where the operator denies Apps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", OF_EACH_ERA)
async def test_a_denied_declaration_reaches_neither_side(served: Served, denied: dict[str, Told], host: str) -> None:
    assert denied[host]["ui"] is None
    assert results(denied[host]) == results(served.plain)


@pytest.mark.parametrize("host", OF_EACH_ERA)
async def test_metadata_and_documents_stay_where_the_declaration_is_denied(
    served: Served, denied: dict[str, Told], host: str
) -> None:
    assert listed(denied[host]) == listed(served.plain)
    for key in ("resources", "documents"):
        assert denied[host][key] == served.plain[key]
    assert views(denied[host]) == views(served.plain)
