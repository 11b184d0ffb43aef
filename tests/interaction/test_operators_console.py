"""The console: its files come with a strict policy, and a cookie stands in for a token, for its own page alone."""

import json
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from http.cookies import SimpleCookie
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer
from interaction.audit_logs import audited, lines, of, told_of
from interaction.operators import OPS, VIEWER, tokens
from requirements import covers

SESSION = "/ui/session"
PAGE_KEY = "Taskgate-Console"
TOKENS = {"operator": OPS.removeprefix("Bearer "), "viewer": VIEWER.removeprefix("Bearer ")}
HOURS = 8


@pytest.fixture
async def gateway(server: ScriptedServer, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Gateway]:
    """A gateway with an audit log and a token of each role, whose clock the test moves."""
    config = configuration({"reports": server.url}, admin=tokens(tmp_path), audit=audited(tmp_path))
    async with serve(config, Environment(clock=clock), source=lambda: config) as gateway:
        yield gateway


def origin(gateway: Gateway) -> dict[str, str]:
    """The headers of a page of the listener."""
    return {"Origin": gateway.operators_origin, "Content-Type": "application/json"}


async def sign_in(
    gateway: Gateway, token: str = TOKENS["operator"], **headers: str
) -> tuple[int, Mapping[str, str], Any]:
    """Status, headers and document of a sign-in by the page."""
    sent = {**origin(gateway), "Authorization": f"Bearer {token}", **headers}
    status, answered, text = await gateway.operators_answer(SESSION, "POST", **sent)
    return status, answered, json.loads(text)


async def signed_in(gateway: Gateway, role: str = "operator", **headers: str) -> dict[str, str]:
    """The two headers of a page that is signed in."""
    status, answered, document = await sign_in(gateway, TOKENS[role], **headers)
    assert (status, document["role"]) == (200, role)
    return {"Cookie": answered["Set-Cookie"].partition(";")[0], PAGE_KEY: document["page_key"]}


async def ask(gateway: Gateway, path: str, method: str = "GET", **headers: str) -> tuple[int, str | None]:
    """Status and code of the refusal, if any."""
    status, _, text = await gateway.operators_answer(path, method, **headers)
    return status, json.loads(text).get("error", {}).get("code")


@covers("T31", "T53")
@pytest.mark.parametrize(
    ("path", "kind"), [("", "text/html"), ("/console.css", "text/css"), ("/console.js", "text/javascript")]
)
async def test_a_file_of_the_console_has_its_type_a_strict_policy_and_a_tag(
    gateway: Gateway, path: str, kind: str
) -> None:
    status, headers, _ = await gateway.operators_answer(f"/ui{path}")
    assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
    policy = set(headers["Content-Security-Policy"].split("; "))
    assert policy >= {
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'",
    }  # fmt: skip
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    again = await gateway.operators_answer(f"/ui{path}", **{"If-None-Match": headers["ETag"]})
    assert (again[0], again[2]) == (304, "")
    assert await ask(gateway, f"/ui{path}", "POST") == (405, "method_not_allowed")


async def test_the_address_of_each_view_has_the_page(gateway: Gateway) -> None:
    _, _, page = await gateway.operators_answer("/ui")
    for view in ("tasks", f"tasks/t_{'a' * 22}", "servers", "callers", "refusals", "sessions", "configuration"):
        status, _, body = await gateway.operators_answer(f"/ui/{view}")
        assert (status, body) == (200, page)
    for view in ("tasks/", "tasks/t_short", "tasks/x", "other", "servers/x"):
        assert (await gateway.operators_answer(f"/ui/{view}"))[0] == 404


async def test_all_files_of_the_console_are_small_as_browsers_get_them(gateway: Gateway) -> None:
    names = [each.name for each in files("taskgate.operators.console").iterdir() if each.name.endswith((".js", ".css"))]
    sizes = []
    for path in ("/ui", *(f"/ui/{name}" for name in names)):
        _, headers, _ = await gateway.operators_answer(path, **{"Accept-Encoding": "gzip"})
        assert (headers["Content-Encoding"], headers["Vary"]) == ("gzip", "Accept-Encoding")
        sizes.append(int(headers["Content-Length"]))
    assert sum(sizes) < 40_000


async def test_other_paths_of_the_console_are_refused(gateway: Gateway) -> None:
    for path in ("/ui/", "/ui/index.html", "/ui/../access.py", "/ui/page.py", "/ui/%2e%2e/x"):
        assert (await gateway.operators_answer(path))[0] == 404
    assert await ask(gateway, SESSION, "PUT") == (405, "method_not_allowed")


async def test_a_session_has_the_role_of_its_token_and_its_cookie_has_no_token(gateway: Gateway) -> None:
    _, headers, document = await sign_in(gateway)
    assert document == {"name": "ops", "role": "operator", "page_key": document["page_key"]}
    assert document["page_key"] not in headers["Set-Cookie"]
    [morsel] = SimpleCookie(headers["Set-Cookie"]).values()
    assert (morsel.key, morsel["httponly"], morsel["samesite"], morsel["path"]) == (
        "taskgate_console", True, "Strict", "/",
    )  # fmt: skip
    assert (morsel["max-age"], morsel["secure"]) == (str(HOURS * 3600), "")
    assert TOKENS["operator"] not in headers["Set-Cookie"]
    shown = await signed_in(gateway, "viewer")
    assert await ask(gateway, "/api/v1/tasks", **shown) == (200, None)
    hold = "/api/v1/upstreams/reports/hold"
    assert await ask(gateway, hold, "POST", **shown, **origin(gateway)) == (403, "not_allowed")
    acting = await signed_in(gateway)
    acting["Cookie"] = f"theme=dark; {acting['Cookie']}"
    assert await ask(gateway, hold, "POST", **acting, Origin=gateway.operators_origin) == (200, None)


async def test_the_cookie_is_for_https_alone_where_the_page_came_so(gateway: Gateway) -> None:
    secure = gateway.operators_origin.replace("http:", "https:")
    _, headers, _ = await sign_in(gateway, Origin=secure)
    assert headers["Set-Cookie"].endswith("; Secure")


@covers("T31", "T53")
async def test_the_cookie_serves_no_page_of_another_origin_and_no_program(gateway: Gateway) -> None:
    shown, hold = await signed_in(gateway), "/api/v1/upstreams/reports/hold"
    foreign = (403, "foreign_origin")
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}):
        assert await ask(gateway, "/api/v1/tasks", **shown, **headers) == foreign
    assert await ask(gateway, hold, "POST", **shown) == foreign
    assert (await gateway.operators_answer("/-/reload", "POST", None, **shown))[0] == 403
    assert await ask(gateway, "/api/v1/tasks", **shown, **{"Sec-Fetch-Site": "same-origin"}) == (200, None)
    assert await ask(gateway, "/api/v1/tasks", Cookie="taskgate_console=wrong") == (401, "not_authenticated")


@covers("T31", "T53")
async def test_no_page_of_another_origin_signs_in(gateway: Gateway) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await sign_in(gateway, **headers))[0] == 403
    assert (await gateway.operators_answer(SESSION, "POST", Authorization=OPS))[0] == 403


@covers("T53")
async def test_a_session_ends_when_its_operator_signs_out(gateway: Gateway) -> None:
    shown, other = await signed_in(gateway), await signed_in(gateway)
    _, headers, _ = await gateway.operators_answer(SESSION, "DELETE", **shown, **origin(gateway))
    assert "Max-Age=0" in headers["Set-Cookie"]
    assert await ask(gateway, SESSION, **shown) == (401, "not_authenticated")
    assert await ask(gateway, SESSION, **other) == (200, None)


@covers("T53")
async def test_a_session_ends_with_its_time(gateway: Gateway, clock: ManualClock) -> None:
    shown = await signed_in(gateway)
    clock.advance(timedelta(hours=HOURS, seconds=-1))
    assert await ask(gateway, SESSION, **shown) == (200, None)
    clock.advance(timedelta(seconds=2))
    assert await ask(gateway, SESSION, **shown) == (401, "not_authenticated")


@covers("T53")
async def test_a_session_ends_when_a_reload_replaces_its_token(gateway: Gateway, tmp_path: Path) -> None:
    replaced, retained = await signed_in(gateway), await signed_in(gateway, "viewer")
    (tmp_path / "ops.token").write_text("another-token-of-an-operator")
    assert await ask(gateway, "/api/v1/reload", "POST", **replaced, Origin=gateway.operators_origin) == (
        200, None,
    )  # fmt: skip
    assert await ask(gateway, SESSION, **replaced) == (401, "not_authenticated")
    assert await ask(gateway, SESSION, **retained) == (200, None)


@covers("T53")
async def test_wrong_tokens_of_sign_ins_and_of_requests_are_counted_together(gateway: Gateway) -> None:
    for _ in range(5):
        assert (await sign_in(gateway, "wrong"))[0] == 401
        assert await ask(gateway, "/api/v1/tasks", Authorization="Bearer wrong") == (401, "not_authenticated")
    status, headers, _ = await sign_in(gateway, "wrong")
    assert (status, headers["Retry-After"]) == (429, "6")
    assert (await sign_in(gateway))[0] == 200, "others at its address do not shut an operator out"


async def test_sign_ins_are_in_the_audit_log_with_the_name_of_the_token(gateway: Gateway, tmp_path: Path) -> None:
    await sign_in(gateway, "wrong")
    shown = await signed_in(gateway)
    await gateway.operators_answer(SESSION, "DELETE", **shown, **origin(gateway))
    await told_of(tmp_path, "admin.request", 3)
    found = [(each["outcome"], each["data"]["operator"]) for each in of(lines(tmp_path), "admin.request")]
    assert found == [("denied", None), ("success", "ops"), ("success", "ops")]


async def test_without_a_token_in_the_configuration_there_is_no_console(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url})) as gateway:
        assert await ask(gateway, "/ui") == (403, "no_token_configured")
        assert await ask(gateway, SESSION, "POST") == (403, "no_token_configured")


async def test_a_browser_keeps_no_connection_so_that_probes_find_one(gateway: Gateway) -> None:
    shown = await signed_in(gateway)
    for path, headers, kept in (
        ("/ui", {}, False),
        ("/api/v1/upstreams", shown, False),
        ("/api/v1/upstreams", {"Authorization": VIEWER}, True),
        ("/readyz", {}, True),
    ):
        _, answered, _ = await gateway.operators_answer(path, **headers)
        assert (answered.get("Connection") != "close") is kept, path


@covers("T31", "T53")
async def test_the_cookie_alone_which_every_port_of_the_host_gets_is_worth_nothing(gateway: Gateway) -> None:
    shown = await signed_in(gateway)
    missing = (401, "not_authenticated")
    page = {"Origin": gateway.operators_origin, "Sec-Fetch-Site": "same-origin"}
    for half in ({}, {PAGE_KEY: ""}, {PAGE_KEY: "A" * 43}, {PAGE_KEY: shown["Cookie"].partition("=")[2]}):
        sent = {"Cookie": shown["Cookie"], **half, **page}
        for path, method in (
            ("/api/v1/tasks", "GET"),
            ("/api/v1/events", "GET"),
            ("/api/v1/upstreams/reports/hold", "POST"),
            (SESSION, "GET"),
            (SESSION, "DELETE"),
        ):
            assert await ask(gateway, path, method, **sent) == missing, (path, half)
        assert (await gateway.operators_answer("/-/drain", "POST", **sent))[0] == 401
    assert await ask(gateway, "/api/v1/tasks", **{PAGE_KEY: shown[PAGE_KEY]}, **page) == missing
    assert await ask(gateway, SESSION, **shown, **page) == (200, None)


@covers("T31", "T53")
async def test_the_parts_of_two_sessions_are_worth_nothing_together(gateway: Gateway) -> None:
    one, other = await signed_in(gateway), await signed_in(gateway, "viewer")
    mixed = {"Cookie": one["Cookie"], PAGE_KEY: other[PAGE_KEY]}
    assert await ask(gateway, SESSION, **mixed) == (401, "not_authenticated")


async def test_two_pages_of_a_browser_share_the_session_of_one_token(gateway: Gateway) -> None:
    one = await signed_in(gateway)
    assert await signed_in(gateway, Cookie=one["Cookie"]) == one
    other = await signed_in(gateway, "viewer", Cookie=one["Cookie"])
    assert await ask(gateway, SESSION, **one) == (401, "not_authenticated")
    assert await ask(gateway, SESSION, **other) == (200, None)


async def test_a_page_asks_whose_token_it_has_without_a_session(gateway: Gateway, tmp_path: Path) -> None:
    status, headers, text = await gateway.operators_answer(SESSION, Authorization=VIEWER)
    assert (status, json.loads(text)) == (200, {"name": "looks", "role": "viewer"})
    assert "Set-Cookie" not in headers
    assert await ask(gateway, SESSION, Authorization="Bearer wrong") == (401, "not_authenticated")
    await told_of(tmp_path, "admin.request", 1)
    assert [each["outcome"] for each in of(lines(tmp_path), "admin.request")] == ["denied"]
