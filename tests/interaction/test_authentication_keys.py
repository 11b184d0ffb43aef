"""Tokens are judged by keys that come, change and fail to come; what belongs to whom by a key of the gateway's own."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import serve
from helpers.host.host import Host
from helpers.key_server import KeyServer, status
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually, until
from interaction.bare_requests import ask
from interaction.reloads import SUCCESS

HASTY = {"refresh": "1h", "cooldown": "20ms", "timeout": "5s"}


def keys_from(keys: KeyServer, **jwks: str) -> dict[str, Any]:
    return {"issuer": keys.issuer, "jwks_uri": keys.url("/keys"), "jwks": {**HASTY, **jwks}}


async def test_without_keys_a_token_cannot_be_judged_and_that_is_503_and_no_reason_to_throw_it_away(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async with KeyServer() as keys:
        keys.serve("/keys", status(500))
        issuer = TokenIssuer(tmp_path, issuer=keys.issuer)
        config = guarded({"reports": server.url}, auth={"issuers": {"corp": keys_from(keys)}})
        async with serve(config) as gateway:
            for verb in ("POST", "GET", "DELETE"):
                token = issuer.token(gateway.url())
                code, headers, body = await ask(gateway, verb, authorization=f"Bearer {token}")
                assert (code, headers["Retry-After"]) == (503, "2")
                assert "WWW-Authenticate" not in headers
                assert body["error"]["data"] == {
                    "origin": "gateway",
                    "reason": "jwks_unavailable",
                    "retryAfterMs": 2000,
                }
            assert await gateway.ready() == 503
            state = (await gateway.readiness())["issuers"]["corp"]
            assert (state["place"], state["cause"], state["refused"]) == (keys.url("/keys"), "HTTP 500", 3)
            assert state["since"].endswith("Z")
            assert await gateway.counts("taskgate_http_rejections_total", "reason") == {"jwks_unavailable": 3}
            assert await gateway.counts("taskgate_auth_requests_total", "issuer", "reason") == {
                ("corp", "jwks_unavailable"): 3
            }
            keys.publish(issuer.jwk())
            await until(gateway.ready, lambda status: status == 200)
            state = (await gateway.readiness())["issuers"]["corp"]
            assert (state["keys"], state["cause"], state["since"], state["refused"]) == (1, None, None, 0)
            assert (await (await gateway.greeted(token=issuer.token(gateway.url()))).ask("ping")).result == {}
    assert server.heard("initialize") != []


async def test_a_gateway_is_ready_once_every_issuers_keys_were_had_and_stays_so_without_the_issuer(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async with KeyServer() as first, KeyServer() as second:
        issuers = TokenIssuer(tmp_path, issuer=first.issuer), TokenIssuer(tmp_path, issuer=second.issuer, number=1)
        first.publish(issuers[0].jwk())
        known = {"first": keys_from(first, refresh="25ms"), "second": keys_from(second)}
        async with serve(guarded({"reports": server.url}, auth={"issuers": known})) as gateway:
            await eventually(lambda: second.count("/keys"))
            assert await gateway.ready() == 503
            second.publish(issuers[1].jwk())
            await until(gateway.ready, lambda status: status == 200)
            await first.down()
            await second.down()
            for issuer in issuers:
                host = await gateway.greeted(token=issuer.token(gateway.url()))
                assert (await host.ask("ping")).result == {}
            assert await gateway.ready() == 200


async def test_keys_are_exchanged_without_a_request_that_fails(server: ScriptedServer, tmp_path: Path) -> None:
    async with KeyServer() as keys:
        old, new = (TokenIssuer(tmp_path, issuer=keys.issuer, number=number) for number in (0, 1))
        keys.publish(old.jwk())
        config = guarded({"reports": server.url}, auth={"issuers": {"corp": keys_from(keys)}})
        async with serve(config) as gateway:
            host = await gateway.greeted(token=old.token(gateway.url()))
            keys.publish(old.jwk(), new.jwk())
            # The first token of the new key waits for the fetch; all others share it.
            tokens = [new.token(gateway.url(), jti=str(number)) for number in range(20)]
            hosts = [Host(gateway.http, gateway.url(), token) for token in [*tokens, old.token(gateway.url())]]
            for each in hosts:
                each.session, each.revision = host.session, host.revision
            answers = await asyncio.gather(*(each.ask("ping") for each in hosts))
            assert [answer.status for answer in answers] == [200] * 21
            assert keys.count("/keys") == 2


async def test_a_stray_token_does_not_keep_the_gateway_from_a_key_that_is_published_right_after_it(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async with KeyServer() as keys:
        old, new = (TokenIssuer(tmp_path, issuer=keys.issuer, number=number) for number in (0, 1))
        keys.publish(old.jwk())
        config = guarded({"reports": server.url}, auth={"issuers": {"corp": keys_from(keys, cooldown="1h")}})
        async with serve(config) as gateway:
            host = await gateway.greeted(token=old.token(gateway.url()))
            code, _, _ = await ask(gateway, "POST", authorization=f"Bearer {new.token(gateway.url())}")
            assert code == 401
            keys.publish(old.jwk(), new.jwk())
            host.token = new.token(gateway.url(), jti="next")
            assert (await host.ask("ping")).result == {}
            for number in range(10):
                stray = TokenIssuer(tmp_path, issuer=keys.issuer, number=2).token(gateway.url(), jti=str(number))
                assert (await ask(gateway, "POST", authorization=f"Bearer {stray}"))[0] == 401
            assert keys.count("/keys") == 1 + 3


async def test_keys_are_fetched_again_in_the_background(server: ScriptedServer, tmp_path: Path) -> None:
    async with KeyServer() as keys:
        issuer = TokenIssuer(tmp_path, issuer=keys.issuer)
        keys.publish(issuer.jwk())
        config = guarded({"reports": server.url}, auth={"issuers": {"corp": keys_from(keys, refresh="25ms")}})
        async with serve(config):
            await eventually(lambda: keys.count("/keys") >= 3)


# --- the key of contexts -------------------------------------------------------------------------------------------


async def test_a_task_and_its_session_are_still_their_owners_after_a_restart(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    config = guarded(
        {"reports": server.url}, issuer, folder=tmp_path, auth={}, server={"public_url": "https://m.example"}
    )
    audience = "https://m.example/reports/mcp"
    async with serve(config, data_directory=tmp_path / "data") as gateway:
        key = tmp_path / "data" / "context.key"
        assert key.stat().st_mode & 0o777 == 0o600
        host = await gateway.greeted(token=issuer.token(audience))
        task = await host.start("echo", {"a": 1})
        before = (await host.ask("tasks/result", {"taskId": task["taskId"]})).result
    made = key.read_bytes()
    async with serve(config, data_directory=tmp_path / "data") as gateway:
        again = gateway.host(token=issuer.token(audience))
        again.session, again.revision = host.session, host.revision
        assert (await again.ask("tasks/result", {"taskId": task["taskId"]})).result == before
        again.token = issuer.token(audience, subject="bob")
        assert (await again.ask("ping")).status == 404
    assert key.read_bytes() == made


async def test_a_key_is_replaced_by_putting_another_before_it(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    config = guarded(
        {"reports": server.url},
        issuer,
        folder=tmp_path,
        auth={"context": {"key_file": str(file)}},
        server={"public_url": "https://m.example"},
    )
    old, new = 43 * "b", 43 * "c"
    tasks: list[str] = []
    found = []
    for text in (old, f"{new}\n{old}", new):
        file.write_text(text)
        file.chmod(0o600)
        async with serve(config) as gateway:
            host = await gateway.greeted(token=issuer.token("https://m.example/reports/mcp"))
            answers = [await host.ask("tasks/get", {"taskId": task}) for task in tasks]
            found.append(["result" in (answer.message or {}) for answer in answers])
            listed = (await host.ask("tasks/list")).result["tasks"]
            assert sorted(task["taskId"] for task in listed) == sorted(
                task for task, is_found in zip(tasks, found[-1], strict=True) if is_found
            )
            tasks.append((await host.start("echo"))["taskId"])
    # The first task is lost with the key that it was bound to, and not before.
    assert found == [[], [True], [False, True]]


async def test_a_store_in_memory_needs_no_place_for_a_key(server: ScriptedServer, issuer: TokenIssuer) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        task = await host.start("echo")
        assert (await host.task(task["taskId"]))["taskId"] == task["taskId"]


async def test_a_reload_reads_a_changed_file_of_keys_though_nothing_else_changed(
    server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = (TokenIssuer(tmp_path, number=number) for number in (0, 1))
    config = guarded({"reports": server.url}, old)
    async with serve(config) as gateway:
        await gateway.greeted(token=old.token(gateway.url()))
        old.file.write_text(json.dumps({"keys": [new.jwk()]}))
        assert await gateway.reload(config) == SUCCESS
        await gateway.greeted(token=new.token(gateway.url()))
        assert (await gateway.host(token=old.token(gateway.url(), jti="2")).ask("ping")).status == 401
        assert (await gateway.reload(config)).result == "unchanged"
        old.file.write_text("{}")
        assert (await gateway.reload(config)).result == "unchanged"
        await gateway.greeted(token=new.token(gateway.url(), jti="3"))
    [line] = [vars(record) for record in caplog.records if record.getMessage().endswith("could not be fetched")]
    assert (line["file"], line["problem"]) == (str(old.file), "is no JSON object with an array `keys`")
    reloads = [vars(record) for record in caplog.records if record.getMessage() == "configuration reloaded"]
    assert [line.get("files") for line in reloads] == [["JWKS file of corp"], None, None]


async def test_a_reload_that_is_refused_leaves_the_keys_as_they_are(server: ScriptedServer, tmp_path: Path) -> None:
    old, new = (TokenIssuer(tmp_path, number=number) for number in (0, 1))
    foreign = tmp_path / "notes"
    foreign.write_text("notes\n")
    config = guarded({"reports": server.url}, old)
    sinks = [{"name": "file", "type": "file", "path": str(foreign)}]
    async with serve(config) as gateway:
        await gateway.greeted(token=old.token(gateway.url()))
        old.file.write_text(json.dumps({"keys": [new.jwk()]}))
        refused = await gateway.reload(guarded({"reports": server.url}, old, audit={"sinks": sinks}))
        assert (refused.result, "is no audit log" in refused.problems[0]) == ("invalid", True)
        await gateway.greeted(token=old.token(gateway.url(), jti="2"))
        assert foreign.read_text() == "notes\n"


async def test_a_refused_audience_is_told_with_what_was_expected_and_what_came(
    server: ScriptedServer, issuer: TokenIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        assert (await gateway.host(token=issuer.token("https://other.example")).ask("ping")).status == 401
    [line] = [vars(record) for record in caplog.records if record.name == "taskgate.security"]
    assert (line["reason"], line["issuer"]) == ("audience", "corp")
    assert (line["expected"], line["found"]) == ((gateway.url(),), ("https://other.example",))
