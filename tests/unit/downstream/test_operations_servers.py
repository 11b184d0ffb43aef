"""How each server does, as operators are told, and the configuration that they have read again."""

import pytest

from helpers.waiting import bounded
from taskgate.telemetry.audit import OperatorAsked
from unit.downstream.operating import SERVERS, TOKEN, Operated, told

# --- how each server does -----------------------------------------------------------------------------------------


async def test_how_each_server_does_is_told_on_request_and_keeps_nobody_from_being_ready(operated: Operated) -> None:
    answer = await operated.ask("/readyz?verbose")
    checks = {"started": True, "store": True}
    assert (answer.status, told(answer)) == (200, {"status": "ready", "checks": checks, "upstreams": SERVERS})


@pytest.mark.parametrize("status", ["draining", "not ready"])
async def test_how_each_server_does_is_told_by_who_is_not_ready(operated: Operated, status: str) -> None:
    if status == "draining":
        operated.listener.drain()
    else:
        operated.checks["store"] = False
    answer = await operated.ask("/readyz?verbose=1")
    document = told(answer)
    assert isinstance(document, dict)
    assert (answer.status, document["status"], document["upstreams"]) == (503, status, SERVERS)


# --- reading the configuration again ------------------------------------------------------------------------------

BEARER = f"Bearer {TOKEN}"


@pytest.mark.parametrize("result", ["success", "unchanged", "needs_restart"])
async def test_whoever_has_the_token_has_the_configuration_read_again_and_hears_what_came_of_it(
    operated: Operated, result: str
) -> None:
    operated.reloaded = {"result": result, "needs_restart": ["server.listen"], "problems": []}
    answer = await operated.ask("/-/reload", "POST", Authorization=BEARER)
    assert (answer.status, told(answer), operated.reloads) == (200, operated.reloaded, 1)


async def test_a_configuration_that_was_not_taken_over_is_a_failed_request(operated: Operated) -> None:
    operated.reloaded = {"result": "invalid", "needs_restart": [], "problems": ["taskgate.yaml:3: limits: is wrong"]}
    answer = await operated.ask("/-/reload", "POST", Authorization=BEARER)
    assert (answer.status, told(answer)) == (422, operated.reloaded)


async def test_where_there_is_no_file_that_is_said(operated: Operated) -> None:
    operated.reloaded = None
    answer = await operated.ask("/-/reload", "POST", Authorization=BEARER)
    assert (answer.status, told(answer)) == (409, {"error": "there is no configuration file to read again"})


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="none"),
        pytest.param({"Authorization": f"Bearer {TOKEN}x"}, id="another"),
        pytest.param({"Authorization": f"Bearer {TOKEN[:-1]}"}, id="the beginning"),
        pytest.param({"Authorization": "Bearer"}, id="empty"),
        pytest.param({"Authorization": f"Basic {TOKEN}"}, id="another scheme"),
        pytest.param({"Authorization": TOKEN}, id="no scheme"),
        pytest.param({"Authorization": f"Bearer {TOKEN}\xe9"}, id="no ASCII"),
        pytest.param({"Authorization": BEARER, "authorization": BEARER}, id="two"),
    ],
)
async def test_nothing_is_read_again_for_who_does_not_show_the_token(
    operated: Operated, headers: dict[str, str]
) -> None:
    answer = await operated.ask("/-/reload", "POST", **headers)
    assert (answer.status, told(answer), operated.reloads) == (401, {"error": "not authenticated"}, 0)
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_nobody_has_it_read_again_where_no_token_is_configured() -> None:
    operated = Operated()
    operated.address = await operated.listener.start("127.0.0.1", 0)
    answer = await operated.ask("/-/reload", "POST", Authorization="Bearer ")
    assert (answer.status, operated.reloads) == (403, 0)
    assert told(answer) == {"error": "not allowed: admin.token_file is not configured"}
    async with bounded():
        await operated.listener.close()


async def test_reading_it_again_is_a_post(operated: Operated) -> None:
    answer = await operated.ask("/-/reload", Authorization=BEARER)
    assert (answer.status, answer.headers["allow"], operated.reloads) == (405, "POST", 0)


# --- who asked for it -----------------------------------------------------------------------------------------------


async def test_whoever_asks_for_what_needs_the_token_is_told_of_with_what_they_got(operated: Operated) -> None:
    for headers in ({"Authorization": BEARER}, {"Authorization": "Bearer wrong"}, {}):
        await operated.ask("/-/reload", "POST", **headers)
    operated.reloaded = None
    await operated.ask("/-/reload", "POST", Authorization=BEARER)
    assert operated.noted == [
        OperatorAsked("POST", "/-/reload", status, "127.0.0.1") for status in (200, 401, 401, 409)
    ]


async def test_of_probes_and_scrapes_nobody_is_told(operated: Operated) -> None:
    for path in ("/livez", "/readyz", "/metrics", "/nowhere"):
        await operated.ask(path)
    await operated.ask("/-/reload")
    assert operated.noted == []
