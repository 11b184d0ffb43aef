"""`taskgate check --online`: servers, issuers and a shared store are asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.key_server import KeyServer, signing_key, status
from helpers.server import ScriptedServer
from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from taskgate.cli import main

DEAD = "http://127.0.0.1:9"


@pytest.fixture(params=["legacy", "modern"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ScriptedServer]:
    """A server of that era."""
    async with ScriptedServer(request.param) as server:
        yield server


async def asked(file: Path, *options: str) -> tuple[int, list[str], list[str]]:
    """Status of `check --online`, its lines after the first five, and those on standard error."""

    def run() -> tuple[int, list[str], list[str]]:
        environment = {"TASKGATE_DATA_DIR": str(file.parent / "data")}
        ended = CliRunner(env=environment).invoke(main, ["check", "--config", str(file), "--online", *options])
        return ended.exit_code, ended.stdout.splitlines(), ended.stderr.splitlines()

    async with bounded():
        return await asyncio.to_thread(run)


def written(folder: Path, upstream: str, auth: str = "{mode: none}", more: str = "") -> Path:
    file = folder / "taskgate.yaml"
    listeners = 'server: {listen: "127.0.0.1:0"}\nadmin: {listen: "127.0.0.1:0"}\n'
    file.write_text(f"version: 1\n{listeners}auth: {auth}\nupstreams: {{reports: {{path: /a, {upstream}}}}}\n{more}")
    return file


async def test_a_server_that_answers_is_told_with_its_revision_and_no_session_is_left(
    server: ScriptedServer, tmp_path: Path
) -> None:
    ended, out, err = await asked(written(tmp_path, f"url: '{server.url}'"))
    revision = "2026-07-28" if server.era == "modern" else "2025-11-25"
    assert (ended, out[5:], err) == (0, [f"upstreams.reports: ok: it speaks {revision}"], [])
    assert server.live == set()


@pytest.mark.parametrize(
    ("upstream", "told"),
    [
        (
            f"url: '{DEAD}/mcp'",
            f"FAILED: (unreachable): The server could not be reached: connection refused (ECONNREFUSED) at {DEAD}/mcp",
        ),
        pytest.param(
            "transport: stdio, command: [/bin/true]",
            "FAILED: (closed): The server's program exited with status 0",
            marks=pytest.mark.program,
        ),
    ],
    ids=["nothing listens", "a program that ends"],
)
async def test_a_server_that_does_not_answer_is_told_with_the_reason_and_what_to_do(
    tmp_path: Path, upstream: str, told: str
) -> None:
    ended, out, [line] = await asked(written(tmp_path, upstream))
    assert (ended, len(out), out[4]) == (1, 5, "result:  1 of 1 FAILED")
    assert line.startswith(f"upstreams.reports: {told}")
    assert line.endswith("; check that the server runs, and its url or command")


async def test_the_result_as_json_is_failed_where_a_server_does_not_answer(tmp_path: Path) -> None:
    ended, out, err = await asked(written(tmp_path, f"url: '{DEAD}/mcp'"), "--json")
    document = json.loads("\n".join(out))
    assert (ended, document["result"], document["errors"], err) == (1, "failed", [], [])


async def test_a_server_that_needs_the_token_of_a_caller_is_not_asked(tmp_path: Path) -> None:
    grant = f"{{mode: token_exchange, token_url: '{DEAD}/t', client_id: a, client_secret: b, audience: c}}"
    auth = f"{{mode: required, issuers: {{corp: {{issuer: '{DEAD}', jwks_file: keys.json}}}}}}"
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [signing_key("EC").jwk("k")]}))
    ended, out, _ = await asked(written(tmp_path, f"url: '{DEAD}/mcp', credentials: {grant}", auth))
    assert (ended, out[5].startswith("upstreams.reports: not asked: ")) == (0, True)
    assert out[4].split(maxsplit=1) == ["result:", "no problems, 1 of 2 not asked"]


@pytest.mark.parametrize("published", [True, False], ids=["keys", "404"])
async def test_an_issuer_is_asked_for_its_keys(tmp_path: Path, published: bool) -> None:
    async with ScriptedServer() as server, KeyServer() as keys:
        if published:
            keys.publish(signing_key("EC").jwk("k"))
        else:
            keys.serve("/keys", status(404))
        auth = f"{{mode: required, issuers: {{corp: {{issuer: '{DEAD}', jwks_uri: '{keys.url('/keys')}'}}}}}}"
        ended, out, err = await asked(written(tmp_path, f"url: '{server.url}'", auth))
    if published:
        assert (ended, out[6:], err) == (0, ["auth.issuers.corp: ok: 1 usable key"], [])
    else:
        advice = "it does not answer with HTTP 200; check issuer or jwks_uri"
        failed = f"(status) {keys.url('/keys')}: HTTP 404; {advice}"
        assert (ended, err) == (1, [f"auth.issuers.corp: FAILED: {failed}"])


async def test_a_shared_store_is_asked_whether_it_is_fit(valkey_server: SharedServer, tmp_path: Path) -> None:
    options = valkey_server.options()
    (tmp_path / "key").write_text("A" * 43)
    (tmp_path / "key").chmod(0o600)
    async with ScriptedServer() as server:
        for port, status_ in ((options.port, 0), (9, 1)):
            more = (
                f"store: {{backend: redis, redis: {{url: 'redis://127.0.0.1:{port}/0'}}}}\naudit: {{enabled: false}}\n"
            )
            auth = "{mode: none, context: {key_file: key}}"
            ended, out, err = await asked(written(tmp_path, f"url: '{server.url}'", auth, more), "--json")
            answer = json.loads("\n".join(out))["online"][1]
            assert (ended, answer["key"], answer["passed"]) == (status_, "store.redis", status_ == 0), err


async def test_nothing_is_asked_where_the_gateway_would_not_start(server: ScriptedServer, tmp_path: Path) -> None:
    more = "audit: {hmac_key_file: none}\n"
    assert (await asked(written(tmp_path, f"url: '{server.url}'", more=more)))[0] == 2
    assert server.requests == []


@pytest.mark.parametrize("upstream", ["reports", "other"])
@pytest.mark.parametrize(
    ("tool", "renamed"), [("taskgate_wait", "that of tasks.handoff.tools"), ("taskgate_tasks", "that of the server")]
)
async def test_a_tool_with_the_name_of_one_of_the_gateway_fails_though_another_server_hands_off(
    server: ScriptedServer, tmp_path: Path, upstream: str, tool: str, renamed: str
) -> None:
    server.tools.append({"name": tool, "inputSchema": {"type": "object"}})
    rule = f"{{upstream: {upstream}, tool: '*', mode: auto, handoff: {{after: 45s}}}}"
    file = written(tmp_path, "", more=f"tasks: {{upgrade: [{rule}, {{tool: '*', mode: auto}}]}}\n")
    both = ", ".join(f"{name}: {{path: /{name}, url: '{server.url}'}}" for name in ("reports", "other"))
    file.write_text(file.read_text().replace("{reports: {path: /a, }}", f"{{{both}}}"))
    ended, out, err = await asked(file)
    advice = f"which hosts do not get, as the gateway has; rename {renamed}"
    assert (ended, [*out[5:], *err]) == (
        1,
        [f"upstreams.{name}: FAILED: it has a tool {tool}, {advice}" for name in ("reports", "other")],
    )
