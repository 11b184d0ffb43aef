"""Operators have a call explained by the configuration in force, as `taskgate explain` does it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.gateway.configuration import configuration, write_configuration
from helpers.gateway.gateway import serve
from helpers.gateway.process import GatewayProcess, gateway_process, taskgate
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded
from interaction.audit_logs import audited, lines, of, text, told_of
from interaction.operators import OPS, VIEWER, act, tokens

pytestmark = pytest.mark.program
ASKED = {"upstream": "reports", "tool": "report"}
PUBLIC = "https://mcp.example.com"


async def explained(gateway: GatewayProcess, body: Any, bearer: str = VIEWER) -> tuple[int, dict[str, Any]]:
    """Status and document of the answer."""
    url = f"http://{gateway.admin}/api/v1/explain"
    headers = {"Authorization": bearer}
    async with bounded(), aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        return response.status, await response.json()


async def printed(file: Path, folder: Path, *options: str | Path) -> dict[str, Any]:
    """What the command prints."""
    arguments = ["explain", "--config", file, "--upstream", "reports", "--tool", "report", "--json", *options]
    ended = await asyncio.to_thread(taskgate, *arguments, folder=folder)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    """The issuer whose tokens the gateway takes."""
    return TokenIssuer(tmp_path)


@pytest.fixture
def file(server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path) -> Path:
    """A file with that issuer, a token of each role and an audit log."""
    return write_configuration(
        tmp_path,
        server.url,
        server={"listen": "127.0.0.1:0", "public_url": PUBLIC, "drain": {"delay": "0s", "timeout": "5s"}},
        auth={"mode": "required", "issuers": {"corp": issuer.section}},
        admin=tokens(tmp_path),
        audit=audited(tmp_path),
    )


@pytest.fixture
async def gateway(file: Path, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """`taskgate serve` with that file."""
    async with gateway_process(["--config", file, "--no-watch"], log=tmp_path / "log") as gateway:
        yield gateway


async def test_a_viewer_is_shown_what_the_command_prints_for_the_token_of_a_caller(
    gateway: GatewayProcess, file: Path, issuer: TokenIssuer, tmp_path: Path
) -> None:
    token = issuer.token(f"{PUBLIC}/reports/mcp", "reports.read")
    place = tmp_path / "caller"
    place.write_text(token)
    place.chmod(0o600)
    hints = {"readOnlyHint": True}
    status, found = await explained(gateway, {**ASKED, "token": token, "hints": hints})
    assert (status, found["caller"]["subject"], found["call"]["hints"]) == (200, "alice", hints)
    assert found == await printed(file, tmp_path, "--token", place, "--hint", "readOnlyHint=true")


async def test_claims_stand_for_the_token_of_a_caller(gateway: GatewayProcess, issuer: TokenIssuer) -> None:
    token = issuer.token(f"{PUBLIC}/reports/mcp", "reports.read", subject="bob", client_id="cli")
    claims = {"sub": "bob", "client_id": "cli", "scope": "reports.read"}
    by_token, by_claims = [
        await explained(gateway, {**ASKED, **each}) for each in ({"token": token}, {"claims": claims})
    ]
    assert by_token == by_claims
    assert by_claims[1]["caller"]["subject"] == "bob"


async def test_a_token_is_judged_and_is_in_no_log(gateway: GatewayProcess, issuer: TokenIssuer, tmp_path: Path) -> None:
    good, other = (issuer.token(audience) for audience in (f"{PUBLIC}/reports/mcp", "https://other.example"))
    for token, status, reason in (
        (good, 200, ""),
        (other, 422, "of the issuer corp is refused (audience)"),
        ("no-token-at-all", 422, "is refused (malformed)"),
        (None, 422, "refused (missing)"),
    ):
        answered, found = await explained(gateway, {**ASKED, "token": token})
        assert answered == status
        assert status == 200 or found["error"]["code"] == "token_refused"
        assert reason in found.get("error", {}).get("message", "")
        assert token is None or token not in json.dumps(found)
    await told_of(tmp_path, "admin.request", 4)
    for written in (gateway.log.read_text(), text(tmp_path)):
        assert not [token for token in (good, other, "no-token-at-all") if token in written]
    requests = of(lines(tmp_path), "admin.request")
    assert [(each["http"]["path"], each["data"], each["http"]["status"]) for each in requests] == [
        ("/api/v1/explain", {"operator": "looks"}, status) for status in (200, 422, 422, 422)
    ]


async def test_a_token_may_be_for_the_address_at_which_the_gateway_listens(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    auth = json.dumps({"mode": "required", "issuers": {"corp": issuer.section}})
    file = write_configuration(tmp_path, server.url, auth=auth, admin=tokens(tmp_path))
    async with gateway_process(["--config", file, "--no-watch"], log=tmp_path / "log") as gateway:
        token = issuer.token(gateway.url())
        status, found = await explained(gateway, {**ASKED, "token": f" {token}\n"})
        assert (status, found["caller"]["subject"]) == (200, "alice")


async def test_what_cannot_be_explained_is_refused_with_the_reason(
    gateway: GatewayProcess, issuer: TokenIssuer
) -> None:
    for more, status, code, reason in (
        ({"upstream": "none"}, 404, "upstream_not_found", "there is no upstream of that name"),
        ({"hints": {"kindHint": True}}, 400, "invalid_body", "hints: each must be one of readOnlyHint, "),
        ({"hints": {"readOnlyHint": "true"}}, 400, "invalid_body", "hints.readOnlyHint: "),
        ({"tool": ""}, 400, "invalid_body", "tool: "),
        ({"token": "t" * (32 * 1024 + 1)}, 400, "invalid_body", "token: "),
        ({"token": "t", "claims": {"sub": "bob"}}, 400, "invalid_body", "claims: must not be given with token"),
        ({"claims": {"scope": "a"}}, 422, "token_refused", "a token of the issuer corp with these claims is refused"),
        ({"online": True}, 400, "invalid_body", "online: "),
        ({"hints": {"n" * 70_000: True}}, 413, "body_too_large", ""),
    ):
        answered, found = await explained(gateway, {**ASKED, **more})
        assert (answered, found["error"]["code"]) == (status, code), more
        assert found["error"]["message"].startswith(reason)
    assert (await explained(gateway, ASKED, "Bearer of-a-stranger"))[0] == 401


async def test_the_configuration_in_force_counts_and_not_the_file(server: ScriptedServer, tmp_path: Path) -> None:
    def write(mode: str) -> Path:
        rules = f"{{upgrade: [{{tool: '*', mode: {mode}}}]}}"
        return write_configuration(tmp_path, server.url, admin=tokens(tmp_path), tasks=rules)

    async with gateway_process(["--config", write("auto"), "--no-watch"], log=tmp_path / "log") as gateway:
        write("sync")
        status, found = await explained(gateway, {**ASKED, "token": "ignored"})
        assert (status, found["caller"]["anonymous"], found["promotion"]["mode"]["value"]) == (200, True, "auto")
        url, headers = f"http://{gateway.admin}/api/v1/reload", {"Authorization": OPS}
        async with bounded(), aiohttp.ClientSession() as http, http.post(url, headers=headers) as response:
            assert (await response.json())["result"] == "success"
        assert (await explained(gateway, ASKED))[1]["promotion"]["mode"]["value"] == "sync"


async def test_where_the_gateway_cannot_explain_the_request_is_refused(server: ScriptedServer, tmp_path: Path) -> None:
    async with serve(configuration({"reports": server.url}, admin=tokens(tmp_path))) as gateway:
        status, found = await act(gateway, "/api/v1/explain", ASKED)
        assert (status, found["error"]["code"]) == (409, "cannot_explain")
