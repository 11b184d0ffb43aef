"""Operators see the configuration in force, have it read again, and have the gateway drain."""

import json
from pathlib import Path

from helpers.gateway.configuration import configuration, load, written
from helpers.gateway.gateway import serve
from helpers.secrets import noted
from helpers.server import ScriptedServer
from interaction.operators import OPS, VIEWER, act, look, tokens
from requirements import covers

HIDDEN = "the-secret-of-a-server"


async def test_the_configuration_in_force_is_shown_without_secrets(server: ScriptedServer, tmp_path: Path) -> None:
    credentials = {"mode": "header", "header": "X-Key", "value": HIDDEN}
    section = {"reports": {"path": "/reports/mcp", "url": server.url, "credentials": credentials}}
    first = configuration({}, upstreams=section, admin=tokens(tmp_path))
    then = configuration({}, upstreams=section, admin=tokens(tmp_path), tasks={"inline_grace": "7s"})
    async with serve(first, source=lambda: then) as gateway:
        before = (await look(gateway, "/api/v1/config"))["yaml"]
        assert "value: '********'" in before
        assert HIDDEN not in before
        assert "inline_grace: 5s" in before
        assert await act(gateway, "/api/v1/reload") == (200, {"result": "success", "needs_restart": []})
        assert "inline_grace: 7s" in (await look(gateway, "/api/v1/config"))["yaml"]
        assert await act(gateway, "/api/v1/reload") == (200, {"result": "unchanged", "needs_restart": []})


@covers("T38")
async def test_a_viewer_sees_nothing_that_came_from_a_reference(server: ScriptedServer, tmp_path: Path) -> None:
    origin, secret = server.url.removesuffix("/mcp"), noted("the-key-in-a-path")
    raw = written(configuration({"reports": f"{origin}/s/${{KEY}}/mcp"}, admin=tokens(tmp_path)))
    file = tmp_path / "taskgate.yaml"
    file.write_text(json.dumps(raw))
    first = load(file, {"KEY": secret})
    raw["tracing"] = {"enabled": False, "endpoint": f"{origin}/${{KEY}}"}
    raw["audit"]["sinks"] = [{"name": "own", "type": "file", "path": f"{tmp_path}/${{KEY}}/audit.jsonl"}]
    file.write_text(json.dumps(raw))
    async with serve(first, source=lambda: load(file, {"KEY": secret})) as gateway:
        pages = ("/api/v1/config", "/api/v1/upstreams", "/api/v1/upstreams/reports")
        shown = [str(await look(gateway, page)) for page in pages]
        assert f"{origin}/s/********/mcp" in shown[0]
        status, told = await act(gateway, "/api/v1/reload")
        assert (status, told["error"]["code"]) == (422, "invalid_configuration")
        assert secret not in str((shown, told))


async def test_a_configuration_that_cannot_be_used_is_refused_with_the_reason(
    server: ScriptedServer, tmp_path: Path
) -> None:
    first = configuration({"reports": server.url}, admin=tokens(tmp_path))
    async with serve(first, source=lambda: first) as gateway:
        (tmp_path / "ops.token").chmod(0o604)
        status, told = await act(gateway, "/api/v1/reload")
        assert (status, told["error"]["code"]) == (422, "invalid_configuration")
        assert "admin.tokens[0].file: may be read or written by every user" in told["error"]["message"]


async def test_a_token_that_is_removed_or_gets_another_role_does_so_at_a_reload(
    server: ScriptedServer, tmp_path: Path
) -> None:
    admin = tokens(tmp_path)
    first, then = admin, {**admin, "tokens": [each for each in admin["tokens"] if each["name"] == "ops"]}
    demoted = {**admin, "tokens": [{**each, "role": "viewer"} for each in then["tokens"]]}
    source = [demoted, then]
    files = {"reports": server.url}
    async with serve(
        configuration(files, admin=first), source=lambda: configuration(files, admin=source.pop())
    ) as gateway:
        (tmp_path / "looks.token").unlink()
        assert await act(gateway, "/api/v1/reload") == (200, {"result": "success", "needs_restart": []})
        assert (await gateway.operators("/api/v1/config", Authorization=VIEWER))[0] == 401
        assert await act(gateway, "/api/v1/reload") == (200, {"result": "success", "needs_restart": []})
        status, told = await act(gateway, "/api/v1/reload")
        assert (status, told["error"]["code"]) == (403, "not_allowed")


async def test_a_reload_while_the_gateway_shuts_down_may_be_tried_again(server: ScriptedServer, tmp_path: Path) -> None:
    first = configuration({"reports": server.url}, admin=tokens(tmp_path))
    async with serve(first, source=lambda: first) as gateway:
        await gateway.drain()
        status, headers, told = await gateway.operators_answer("/api/v1/reload", "POST", Authorization=OPS)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert json.loads(told)["error"]["code"] == "not_now"


async def test_the_first_token_of_operators_may_come_with_a_reload(server: ScriptedServer, tmp_path: Path) -> None:
    admin = tokens(tmp_path)
    none = configuration({"reports": server.url}, admin={"listen": admin["listen"]})
    async with serve(none) as gateway:
        assert (await gateway.operators("/api/v1/upstreams", Authorization=VIEWER))[0] == 403
        await gateway.reload(configuration({"reports": server.url}, admin=admin))
        assert len((await look(gateway, "/api/v1/upstreams"))["items"]) == 1
        assert (await gateway.operators("/ui"))[0] == 200


async def test_where_it_is_not_possible_a_reload_or_a_drain_is_refused(server: ScriptedServer, tmp_path: Path) -> None:
    async with serve(configuration({"reports": server.url}, admin=tokens(tmp_path))) as gateway:
        for path, code in (("/api/v1/reload", "no_file"), ("/api/v1/drain", "cannot_drain")):
            assert (await gateway.operators(path, "POST", Authorization=VIEWER))[0] == 403
            status, told = await act(gateway, path)
            assert (status, told["error"]["code"]) == (409, code)
