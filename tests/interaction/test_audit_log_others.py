"""What the audit log says of servers, keys, rules, operators, and those who behave as attackers would."""

from pathlib import Path

from helpers.exchange_server import ExchangeServer
from helpers.gateway.configuration import configuration
from helpers.key_server import KeyServer
from helpers.key_server import status as answered
from helpers.server import Hold, ScriptedServer, status
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.audit_logs import audited, kept, lines, of, said, text, told_of
from interaction.test_reload_refused import filed
from interaction.test_server_vitals import NOWHERE, OFTEN
from interaction.test_upstream_credentials import exchanging, known
from requirements import covers

BEARER = "operators-own-token-operators-own-token"


async def test_servers_are_told_of_as_they_come_and_go(server: ScriptedServer, tmp_path: Path) -> None:
    upstreams = {
        "reports": {"path": "/reports/mcp", "url": server.url, "health": OFTEN},
        "away": {"path": "/away", "url": NOWHERE, "health": OFTEN},
        "broken": {
            "path": "/broken", "url": NOWHERE, "retries": {"attempts": 1}, "circuit_breaker": {"failures": 1},
        },
    }  # fmt: skip
    async with kept(tmp_path, configuration({}, upstreams=upstreams, audit=audited(tmp_path))) as gateway:
        await told_of(tmp_path, "upstream.up")
        await told_of(tmp_path, "upstream.down")
        await gateway.modern("broken").call("echo")
    written = lines(tmp_path)
    assert [line["mcp"]["upstream"] for line in of(written, "upstream.up")] == ["reports"]
    assert [line["mcp"]["upstream"] for line in of(written, "upstream.down")] == ["away"]
    assert "broken" in {line["mcp"]["upstream"] for line in of(written, "upstream.circuit_opened")}
    assert [line["http"] for line in of(written, "upstream.up", "upstream.down")] == [None, None]


async def test_a_server_that_works_again_is_told(server: ScriptedServer, tmp_path: Path) -> None:
    breaker = {"failures": 1, "open_for": "10ms"}
    section = {"path": "/reports/mcp", "url": server.url, "retries": {"attempts": 1}, "circuit_breaker": breaker}
    async with kept(tmp_path, configuration({}, upstreams={"reports": section}, audit=audited(tmp_path))) as gateway:
        host = await gateway.greeted()
        server.script["echo"] = status(503)
        await host.call("echo")
        del server.script["echo"]
        async with bounded():
            while "upstream.circuit_closed" not in text(tmp_path):
                await host.call("echo")
    circuits = of(lines(tmp_path), "upstream.circuit_opened", "upstream.circuit_closed")
    assert [said(line)[:2] for line in circuits] == [
        ("upstream.circuit_opened", "failure"),
        ("upstream.circuit_closed", "success"),
    ]


async def test_a_session_that_its_server_ended_is_told(server: ScriptedServer, tmp_path: Path) -> None:
    async with kept(tmp_path, configuration({"reports": server.url}, audit=audited(tmp_path))) as gateway:
        host = await gateway.greeted()
        await host.call("echo")
        server.live.clear()
        await host.call("echo")
        await told_of(tmp_path, "upstream.session_lost")
    assert [line["mcp"]["upstream"] for line in of(lines(tmp_path), "upstream.session_lost")] == ["reports"]


async def test_tokens_for_servers_are_told_of_and_never_shown(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    async with ExchangeServer() as endpoint:
        config = guarded({}, issuer, upstreams={"reports": exchanging(server, endpoint)}, audit=audited(tmp_path))
        async with kept(tmp_path, config) as gateway:
            await gateway.greeted(token=known(gateway, endpoint, issuer))
            await gateway.modern(token=issuer.token(gateway.url(), subject="unknown")).call("echo")
            await told_of(tmp_path, "credential.exchanged")
            await told_of(tmp_path, "credential.failed")
    written = lines(tmp_path)
    assert {said(line) for line in of(written, "credential.exchanged", "credential.failed")} == {
        ("credential.exchanged", "success", None),
        ("credential.failed", "failure", None),
    }


async def test_keys_that_come_and_fail_to_come_are_told(server: ScriptedServer, tmp_path: Path) -> None:
    async with KeyServer() as keys:
        keys.serve("/keys", answered(500))
        issuer = TokenIssuer(tmp_path, issuer=keys.issuer)
        jwks = {"refresh": "1h", "cooldown": "20ms", "timeout": "5s"}
        section = {"issuer": keys.issuer, "jwks_uri": keys.url("/keys"), "jwks": jwks}
        config = guarded({"reports": server.url}, auth={"issuers": {"corp": section}}, audit=audited(tmp_path))
        async with kept(tmp_path, config):
            await told_of(tmp_path, "auth.jwks_failed")
            keys.publish(issuer.jwk())
            await told_of(tmp_path, "auth.jwks_refreshed")
    written = lines(tmp_path)
    assert said(of(written, "auth.jwks_failed")[0]) == ("auth.jwks_failed", "failure", "failed")
    assert of(written, "auth.jwks_refreshed")[0]["data"] == {"issuer": "corp", "keys": 1}
    assert all(line["http"] is None for line in of(written, "auth.jwks_failed", "auth.jwks_refreshed"))


@covers("O-AUD-5")
async def test_a_rule_that_refuses_is_told_by_name_and_so_is_one_in_shadow(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    rules = [
        {"tool": "echo", "effect": "deny", "shadow": True},
        {"tool": "echo", "require_scopes": ["reports.write"]},
    ]
    config = guarded({"reports": server.url}, issuer, authorization={"rules": rules}, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        await host.call("echo")
    written = lines(tmp_path)
    [shadow], [refused] = of(written, "access.shadow_refused"), of(written, "access.refused")
    assert (shadow["data"], refused["data"]) == ({"rule": "rules[0]"}, {"rule": "rules[1]"})
    [line] = of(written, "rpc.rejected")
    assert line["reason"] == "insufficient_scope"
    assert line["http"]["request_id"] == refused["http"]["request_id"] == shadow["http"]["request_id"]


async def test_operators_are_told_of_whether_they_have_the_token_or_not(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(BEARER)
    admin = {"listen": "127.0.0.1:0", "token_file": str(tmp_path / "token")}
    config = configuration({"reports": server.url}, admin=admin, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        for token in ("wrong", BEARER):
            await gateway.operators("/-/reload", "POST", Authorization=f"Bearer {token}")
    denied, *asked = of(lines(tmp_path), "admin.request")
    assert said(denied) == ("admin.request", "denied", None)
    assert (denied["http"]["peer"], denied["http"]["path"], denied["actor"]) == ("127.0.0.1", "/-/reload", None)
    assert len(asked) == 1


async def test_a_file_that_cannot_be_used_is_told_of_with_what_is_wrong(server: ScriptedServer, tmp_path: Path) -> None:
    config = configuration({"reports": server.url}, audit=audited(tmp_path, redact=[]))
    async with filed(tmp_path, config, tmp_path) as gateway:
        await gateway.again("version: 1\nlimits: {unheard: 1}\n")
    [rejected] = of(lines(tmp_path), "config.rejected")
    assert said(rejected) == ("config.rejected", "failure", "invalid")
    assert any("limits.unheard" in problem for problem in rejected["data"]["problems"])


# --- who behaves as an attacker would --------------------------------------------------------------------------------


@covers("O-AUD-2")
async def test_who_looks_for_many_tasks_is_told_of(server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path) -> None:
    auth = {"lookup_failures": {"threshold": 2, "window": "1m", "penalty": "5m"}}
    config = guarded({"reports": server.url}, issuer, auth=auth, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        for number in range(5):
            await host.ask("tasks/get", {"taskId": str(number) * 32})
    written = lines(tmp_path)
    [suspicion] = of(written, "security.enumeration_suspected")
    assert (suspicion["severity"], suspicion["actor"]["sub"]) == ("high", "alice")
    assert [line["reason"] for line in of(written, "rpc.rejected")] == ["task_not_found"] * 3 + ["penalty"] * 2


@covers("O-AUD-2")
async def test_who_polls_far_too_often_is_told_of(server: ScriptedServer, tmp_path: Path) -> None:
    tasks = {"poll_interval": {"adaptive": False, "jitter": 0, "base": "10s"}, "early_poll": {"reject_above": 1.5}}
    config = configuration({"reports": server.url}, tasks=tasks, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        host = await gateway.greeted()
        task = await host.start("report")
        for _ in range(40):
            await host.ask("tasks/get", {"taskId": task["taskId"]})
    assert len(of(lines(tmp_path), "security.excessive_polling")) == 1


@covers("O-AUD-2")
async def test_tokens_that_are_tried_in_numbers_are_told_of(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    rate = {"name": "auth_failures", "scope": "ip", "rate": "1/m", "burst": 3, "event": "auth_failure"}
    config = guarded({"reports": server.url}, issuer, limits={"rate": [rate]}, audit=audited(tmp_path))
    async with kept(tmp_path, config) as gateway:
        for _ in range(8):
            await gateway.host(token=issuer.token("https://elsewhere.example/")).ask("tools/list")
    written = lines(tmp_path)
    [suspicion] = of(written, "security.auth_bruteforce")
    assert (suspicion["actor"], suspicion["http"]["peer"]) == (None, "127.0.0.1")


@covers("O-AUD-2")
async def test_headers_that_contradict_the_body_are_told_of(server: ScriptedServer, tmp_path: Path) -> None:
    async with kept(tmp_path, configuration({"reports": server.url}, audit=audited(tmp_path))) as gateway:
        await gateway.modern().ask("tools/list", headers={"Mcp-Method": "tools/call"})
    written = lines(tmp_path)
    assert [line["mcp"]["method"] for line in of(written, "security.header_mismatch")] == ["tools/list"]
    assert [line["reason"] for line in of(written, "rpc.rejected")] == ["header_mismatch"]


@covers("O-AUD-2")
async def test_who_answers_what_was_never_asked_is_told_of(server: ScriptedServer, tmp_path: Path) -> None:
    tasks = {"upgrade": [{"tool": "*", "mode": "always"}]}
    async with kept(tmp_path, configuration({"reports": server.url}, tasks=tasks, audit=audited(tmp_path))) as gateway:
        server.script["report"] = hold = Hold()
        host = gateway.modern()
        task = (await host.start("report"))["taskId"]
        await host.update(task, {"input-7": {"action": "accept"}})
        hold.release({"content": []})
    assert [line["mcp"]["method"] for line in of(lines(tmp_path), "security.input_key_unknown")] == ["tasks/update"]
