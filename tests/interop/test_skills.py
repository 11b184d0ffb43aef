"""Released hosts get the skills of released servers through taskgate as they do directly, to the byte.

The three scenarios of the official suite judge each server directly and through the gateway. A suite that sees no
declaration skips its checks and passes. So these tests compare the status of every check, and the number of checks.
"""

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from example import environments
from example.processes import UVICORN_LISTENS, running

from helpers.gateway.process import serve_process
from helpers.waiting import bounded
from interop.by_hand import REVISIONS, by_hand
from interop.hosts import assert_log_is_discreet
from interop.peers import HOME, node_server, output_of, require_peers
from interop.suite import judged
from peers import install
from requirements import covers

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]

SKILLS = "io.modelcontextprotocol/skills"
SUITE = HOME / "node_modules/conformance-next/dist/index.js"
FASTMCP = "fastmcp-4.1.4"
CHECKS = {"enumeration": 32, "manifest": 6, "directory": 7}
"""How many checks each scenario has, the one of the messages' schema included."""
ABSENT = "skill://absent/SKILL.md"

in_either_era = pytest.mark.parametrize("host", REVISIONS)
before_either_era = pytest.mark.parametrize("server", REVISIONS)

Verdicts = list[tuple[str, str]]


class Stage:
    """The URLs of the servers, `directly` and `through` a gateway. One server has a mount for each era."""

    def __init__(self, folder: Path, directly: Mapping[str, str], through: Mapping[str, str]) -> None:
        self.directly = directly
        self.through = through
        self._folder = folder
        self._known: dict[tuple[str, str, str], Verdicts] = {}

    async def verdicts(self, url: str, host: str, scenario: str) -> Verdicts:
        """The status of every check of that scenario. The suite speaks as a host of that era."""
        asked = (url, host, scenario)
        if asked not in self._known:
            folder = self._folder / f"verdicts-{len(self._known)}"
            name = f"sep-2640-skills-{scenario}"
            options = ("--scenario", name, "--spec-version", REVISIONS[host], "--force")
            found = await judged(SUITE, url, folder, *options)
            self._known[asked] = sorted((check["id"], check["status"]) for check in found[name])
        return self._known[asked]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, str]]:
    """The URLs of both servers: one serves skills in both eras, the other in 2026-07-28 alone."""
    require_peers(FASTMCP)
    folder = tmp_path_factory.mktemp("servers")
    async with AsyncExitStack() as servers:
        sdk = await servers.enter_async_context(node_server("skills_server.mjs", folder))
        fastmcp = await servers.enter_async_context(fastmcp_server(folder))
        yield {"sdk": sdk, "fastmcp": fastmcp}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(servers: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """Both servers behind a gateway whose configuration says nothing of extensions."""
    folder = tmp_path_factory.mktemp("gateway")
    upstreams: dict[str, dict[str, Any]] = {
        **{era: {"url": servers["sdk"], "protocol_version": revision} for era, revision in REVISIONS.items()},
        "auto": {"url": servers["sdk"]},
        "fastmcp": {"url": servers["fastmcp"]},
        "fastmcp-modern": {"url": servers["fastmcp"], "protocol_version": REVISIONS["modern"]},
    }
    async with gateway_before(upstreams, folder) as through:
        yield Stage(folder, servers, through)
    for url in servers.values():
        assert_log_is_discreet(folder / "gateway.log", url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def denied(
    servers: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mapping[str, str]]:
    """The mounts of a gateway that denies skills, one for each era of the server."""
    upstreams = {
        era: {"url": servers["sdk"], "protocol_version": revision, "extensions": {SKILLS: "deny"}}
        for era, revision in REVISIONS.items()
    }
    async with gateway_before(upstreams, tmp_path_factory.mktemp("denying")) as through:
        yield through


@asynccontextmanager
async def gateway_before(upstreams: Mapping[str, Any], folder: Path) -> AsyncIterator[Mapping[str, str]]:
    """The URLs of these mounts of one gateway."""
    mounts = {name: {"path": f"/{name}/mcp", **more} for name, more in upstreams.items()}
    async with serve_process(folder, "", upstreams=mounts, logging={"level": "debug"}) as gateway:
        yield {name: f"http://{gateway.listen}/{name}/mcp" for name in mounts}


@asynccontextmanager
async def fastmcp_server(folder: Path) -> AsyncIterator[str]:
    """A server on FastMCP 4 with one skill of three files; its URL."""
    skill = folder / "skills" / "audit"
    (skill / "references").mkdir(parents=True)
    (skill / "SKILL.md").write_bytes(
        b'---\nname: audit\ndescription: "Gr\xc3\xb6\xc3\x9fer"\nlicense: MIT\n---\n\n# audit\n'
    )
    (skill / "references" / "RULES.md").write_bytes(b"# Rules\r\n\xc3\xb6 \t\r\n")
    (skill / "seal.bin").write_bytes(bytes(range(255, -1, -1)))
    command = (environments.python_of(FASTMCP), HOME / "skills_fastmcp.py", folder / "skills")
    async with running(command, log=folder / "fastmcp.log") as child:
        async with bounded():
            listening = await child.said(UVICORN_LISTENS)
        yield f"{listening[1].decode()}/mcp"


async def told_by_sdk(url: str, era: str) -> dict[str, Any]:
    """The report of the host on the SDK for TypeScript in that era. It verifies the digest of every file."""
    options = ["--stateless"] if era == "modern" else []
    return await _told([install.node(), HOME / "host_skills.mjs", url, *options])


async def told_by_fastmcp(url: str) -> dict[str, Any]:
    """The report of the host on FastMCP."""
    return await _told([environments.python_of(FASTMCP), HOME / "host_skills_fastmcp.py", url])


async def _told(command: list[str | Path]) -> dict[str, Any]:
    status, output, errors = await output_of(command)
    assert status == 0, errors
    # A host may log to its output before its report.
    told: dict[str, Any] = json.loads(output.rstrip("\n").split("\n")[-1])
    return told


# --- the suite


@pytest.mark.parametrize("scenario", CHECKS)
@in_either_era
async def test_the_suite_checks_a_released_server_in_full(stage: Stage, host: str, scenario: str) -> None:
    verdicts = await stage.verdicts(stage.directly["sdk"], host, scenario)
    assert len(verdicts) == CHECKS[scenario] > 1
    # Results have cache members in 2026-07-28 alone.
    skipped = {"sep-2640-skills-list-cache-attributes", "sep-2640-skills-get-cache-attributes"}
    assert {id for id, status in verdicts if status != "SUCCESS"} <= (skipped if host == "legacy" else set())


@pytest.mark.parametrize("scenario", CHECKS)
@before_either_era
@in_either_era
async def test_the_suite_checks_as_much_through_the_gateway_with_the_same_verdicts(
    stage: Stage, host: str, server: str, scenario: str
) -> None:
    directly = await stage.verdicts(stage.directly["sdk"], host, scenario)
    assert await stage.verdicts(stage.through[server], host, scenario) == directly


@pytest.mark.parametrize("scenario", CHECKS)
async def test_the_suite_warns_of_the_same_through_the_gateway_and_skips_the_same(stage: Stage, scenario: str) -> None:
    directly = await stage.verdicts(stage.directly["fastmcp"], "modern", scenario)
    assert len(directly) == CHECKS[scenario]
    assert await stage.verdicts(stage.through["fastmcp"], "modern", scenario) == directly


# --- released hosts


@in_either_era
async def test_a_released_host_has_every_file_of_a_released_server_verified(stage: Stage, host: str) -> None:
    told = await told_by_sdk(stage.directly["sdk"], host)
    assert (told["supported"], told["directoryRead"]) == (True, True)
    assert [len(told[part]) for part in ("entries", "files", "directories")] == [3, 8, 6]
    assert {file["verified"] for file in told["files"].values()} == {True}
    assert told["refusals"] == {part: {"code": -32602} for part in ("skill", "directory", "file")}


@covers("X-SK-1", "X-SK-2")
@pytest.mark.parametrize("server", [*REVISIONS, "auto"])
@in_either_era
async def test_a_host_gets_the_same_through_the_gateway_whatever_era_its_server_is_of(
    stage: Stage, host: str, server: str
) -> None:
    directly = await told_by_sdk(stage.directly["sdk"], host)
    assert await told_by_sdk(stage.through[server], host) == directly


async def test_a_host_that_declares_skills_gets_the_same_through_the_gateway(stage: Stage) -> None:
    directly = await told_by_fastmcp(stage.directly["fastmcp"])
    assert len(directly["files"]) == 3
    assert await told_by_fastmcp(stage.through["fastmcp"]) == directly


async def test_a_legacy_host_of_a_server_of_both_eras_gets_what_it_gets_directly(stage: Stage) -> None:
    directly = await told_by_sdk(stage.directly["fastmcp"], "legacy")
    assert directly["supported"] is False
    assert await told_by_sdk(stage.through["fastmcp"], "legacy") == directly


@in_either_era
async def test_skills_of_a_modern_server_reach_hosts_of_both_eras(stage: Stage, host: str) -> None:
    directly = await told_by_sdk(stage.directly["fastmcp"], "modern")
    through = await told_by_sdk(stage.through["fastmcp-modern"], host)
    assert {file["verified"] for file in through["files"].values()} == {True}
    assert through["files"] == directly["files"]
    assert through["listing"]["skills"] == directly["listing"]["skills"]
    assert (through["supported"], through["directoryRead"]) == (True, False)


# --- by hand


@before_either_era
@in_either_era
async def test_skills_are_declared_as_their_server_declares_them(stage: Stage, host: str, server: str) -> None:
    async with by_hand(stage.directly["sdk"], host) as directly, by_hand(stage.through[server], host) as through:
        said = directly.declared["extensions"][SKILLS]
        assert said == {"directoryRead": True}
        assert through.declared["extensions"][SKILLS] == said
        assert "resources" in through.declared


@covers("X-SK-4")
@before_either_era
@in_either_era
async def test_entries_and_files_stay_the_text_that_the_server_wrote(stage: Stage, host: str, server: str) -> None:
    async with by_hand(stage.directly["sdk"], host) as directly, by_hand(stage.through[server], host) as through:
        first = await directly.ask("skills/list")
        cursor = first.result["nextCursor"]
        for name, method, params in (
            ("skills", "skills/list", {}),
            ("nextCursor", "skills/list", {}),
            ("skills", "skills/list", {"cursor": cursor}),
            ("skill", "skills/get", {"uri": "skill://audit/SKILL.md"}),
            ("resources", "resources/directory/read", {"uri": "skill://audit"}),
            ("nextCursor", "resources/directory/read", {"uri": "skill://audit"}),
            ("contents", "resources/read", {"uri": "skill://audit/assets/seal.bin"}),
            ("contents", "resources/read", {"uri": "skill://audit/assets/name%20with%20space.txt"}),
        ):
            written = (await directly.ask(method, **params)).member(name)
            assert (await through.ask(method, **params)).member(name) == written, (method, params)


@before_either_era
async def test_a_file_has_the_digest_that_its_entry_tells(stage: Stage, server: str) -> None:
    async with by_hand(stage.through[server], "modern") as through:
        skill = (await through.ask("skills/get", uri="skill://audit/SKILL.md")).result["skill"]
        assert len(skill["resources"]) == 5
        for file in skill["resources"]:
            (block,) = (await through.ask("resources/read", uri=file["uri"])).result["contents"]
            held = block["text"].encode() if "text" in block else base64.b64decode(block["blob"])
            assert (f"sha256:{hashlib.sha256(held).hexdigest()}", len(held)) == (file["digest"], file["size"])


@covers("X-SK-6")
@before_either_era
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("skills/list", {}),
        ("skills/get", {"uri": "skill://report/SKILL.md"}),
        # The released client requires the cache members here, too.
        ("resources/directory/read", {"uri": "skill://report"}),
    ],
)
async def test_results_for_a_modern_host_are_complete_and_private_and_stale_at_once(
    stage: Stage, server: str, method: str, params: dict[str, str]
) -> None:
    async with by_hand(stage.through[server], "modern") as through:
        result = (await through.ask(method, **params)).result
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")


@before_either_era
async def test_results_for_a_legacy_host_have_no_members_of_the_modern_era(stage: Stage, server: str) -> None:
    async with by_hand(stage.through[server], "legacy") as through:
        listed = (await through.ask("skills/list")).result
        got = (await through.ask("skills/get", uri="skill://report/SKILL.md")).result
        read = (await through.ask("resources/directory/read", uri="skill://report")).result
    modern = {"resultType", "ttlMs", "cacheScope"}
    assert [modern & result.keys() for result in (listed, got, read)] == [set(), set(), set()]


@covers("X-SK-5")
@before_either_era
@in_either_era
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("skills/get", {"uri": ABSENT}),
        ("skills/list", {"cursor": "none of the server's"}),
        ("resources/directory/read", {"uri": "skill://audit/SKILL.md"}),
    ],
)
async def test_what_the_server_does_not_know_is_refused_in_its_own_words(
    stage: Stage, host: str, server: str, method: str, params: dict[str, str]
) -> None:
    async with by_hand(stage.directly["sdk"], host) as directly, by_hand(stage.through[server], host) as through:
        said = (await directly.ask(method, **params)).error
        assert said["code"] == -32602
        assert (await through.ask(method, **params)).error == said


# --- denied


@before_either_era
@in_either_era
async def test_denied_skills_are_neither_declared_nor_answered(
    denied: Mapping[str, str], host: str, server: str
) -> None:
    async with by_hand(denied[server], host) as through:
        assert SKILLS not in through.declared.get("extensions", {})
        for method, params in (
            ("skills/list", {}),
            ("skills/get", {"uri": "skill://audit/SKILL.md"}),
            ("resources/directory/read", {"uri": "skill://audit"}),
        ):
            heard = await through.ask(method, **params)
            assert (heard.error["code"], heard.status) == (-32601, 404 if host == "modern" else 200)


@in_either_era
async def test_a_released_host_sees_no_skills_where_they_are_denied(denied: Mapping[str, str], host: str) -> None:
    told = await told_by_sdk(denied["modern"], host)
    assert (told["supported"], told["listing"]["skills"]) == (False, [])


@in_either_era
async def test_files_of_denied_skills_stay_resources(denied: Mapping[str, str], host: str) -> None:
    async with by_hand(denied["modern"], host) as through:
        (block,) = (await through.ask("resources/read", uri="skill://report/SKILL.md")).result["contents"]
    assert block["text"].startswith("---\nname: report\n")
