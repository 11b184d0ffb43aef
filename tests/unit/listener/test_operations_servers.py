"""How each server does, as operators are told, and the configuration that they have read again."""

import pytest

from helpers.waiting import bounded
from taskgate.operators.access import Operator, Role
from taskgate.operators.routes import Answer, ApiCall, Route
from taskgate.telemetry.events import OperatorRequestAnswered
from unit.listener.operating import SERVERS, TOKEN, Operated, operating, told


async def answered(_: ApiCall) -> Answer:
    """Answer without content."""
    return Answer()


ROUTE = Route(
    method="POST",
    path="/tasks",
    summary="Act",
    description="Acts.",
    role=Role.OPERATOR,
    answer=Answer,
    handler=answered,
)

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


async def test_details_are_told_on_request_alone(operated: Operated) -> None:
    operated.details = {"replicas": 3}
    document = told(await operated.ask("/readyz?verbose"))
    assert isinstance(document, dict)
    assert document["replicas"] == 3
    assert told(await operated.ask("/readyz")) == {"status": "ready", "checks": operated.checks}


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


async def test_a_reload_at_the_wrong_time_may_be_tried_again(operated: Operated) -> None:
    operated.reloaded = {"result": "not_now", "needs_restart": [], "problems": ["the gateway is starting"]}
    answer = await operated.ask("/-/reload", "POST", Authorization=BEARER)
    assert (answer.status, answer.headers["retry-after"], told(answer)) == (503, "1", operated.reloaded)


async def test_where_there_is_no_file_that_is_said(operated: Operated) -> None:
    operated.reloaded = None
    answer = await operated.ask("/-/reload", "POST", Authorization=BEARER)
    assert (answer.status, told(answer)) == (
        409,
        {"error": "cannot reload: the gateway was started without a configuration file"},
    )


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
@pytest.mark.parametrize("path", ["/-/reload", "/-/drain"])
async def test_nothing_is_done_for_who_does_not_show_the_token(
    operated: Operated, path: str, headers: dict[str, str]
) -> None:
    answer = await operated.ask(path, "POST", **headers)
    assert (answer.status, told(answer)) == (401, {"error": "not authenticated"})
    assert answer.headers["www-authenticate"] == "Bearer"
    assert (operated.reloads, operated.ends) == (0, 0)


@pytest.mark.parametrize("path", ["/-/reload", "/-/drain"])
async def test_nothing_is_done_for_anybody_where_no_token_is_configured(path: str) -> None:
    operated = Operated()
    operated.address = await operated.listener.start("127.0.0.1", 0)
    answer = await operated.ask(path, "POST", Authorization="Bearer ")
    assert (answer.status, operated.reloads, operated.ends) == (403, 0, 0)
    assert told(answer) == {"error": "not allowed: no token is configured (admin.token_file, admin.tokens)"}
    async with bounded():
        await operated.listener.close()


@pytest.mark.parametrize("path", ["/-/reload", "/-/drain"])
async def test_what_changes_something_is_a_post(operated: Operated, path: str) -> None:
    answer = await operated.ask(path, Authorization=BEARER)
    assert (answer.status, answer.headers["allow"], operated.reloads, operated.ends) == (405, "POST", 0, 0)


# --- the end --------------------------------------------------------------------------------------------------------


async def test_whoever_has_the_token_has_the_gateway_drain(operated: Operated) -> None:
    """Asked twice, it is told twice: whoever asks again means the same end."""
    for count in (1, 2):
        answer = await operated.ask("/-/drain", "POST", Authorization=BEARER)
        assert (answer.status, told(answer), operated.ends) == (202, {"status": "draining"}, count)
    assert operated.noted == [OperatorRequestAnswered("POST", "/-/drain", 202, "127.0.0.1", "token_file")] * 2


async def test_a_gateway_that_cannot_end_itself_says_so() -> None:
    async with operating(Operated(can_end=False)) as operated:
        answer = await operated.ask("/-/drain", "POST", Authorization=BEARER)
    assert (answer.status, told(answer)) == (
        409,
        {"error": "cannot drain here: stop the process that started the gateway"},
    )


# --- who asked for it -----------------------------------------------------------------------------------------------


async def test_whoever_asks_for_what_needs_the_token_is_told_of_with_what_they_got(operated: Operated) -> None:
    for headers in ({"Authorization": BEARER}, {"Authorization": "Bearer wrong"}, {}):
        operated.elapsed += 1.0
        await operated.ask("/-/reload", "POST", **headers)
    operated.reloaded = None
    await operated.ask("/-/reload", "POST", Authorization=BEARER)
    assert operated.noted == [
        OperatorRequestAnswered("POST", "/-/reload", status, "127.0.0.1", name)
        for status, name in ((200, "token_file"), (401, None), (401, None), (409, "token_file"))
    ]


@pytest.mark.parametrize("path", ["/-/reload", "/api/v1/tasks"])
async def test_a_flood_of_refusals_without_a_token_is_one_event_a_second_for_each_cause(
    operated: Operated, path: str
) -> None:
    operated.serve_api(ROUTE)
    foreign = {"Authorization": BEARER, "Origin": "https://evil.example"}
    for _ in range(3):
        assert (await operated.ask(path, "POST")).status == 401
        assert (await operated.ask(path, "POST", **foreign)).status == 403
    operated.elapsed += 1.0
    await operated.ask(path, "POST")
    shown = [(event.status, event.left_out) for event in operated.noted if isinstance(event, OperatorRequestAnswered)]
    assert shown == [(401, 0), (403, 0), (401, 2)]


async def test_requests_with_a_token_are_never_left_out(operated: Operated) -> None:
    operated.access.replace({TOKEN.encode(): Operator("looks", Role.VIEWER)})
    for _ in range(3):
        await operated.ask("/-/reload", "POST", Authorization=BEARER)
    assert operated.noted == [OperatorRequestAnswered("POST", "/-/reload", 403, "127.0.0.1", "looks")] * 3


async def test_a_listener_that_closes_ends_what_the_api_has_begun(operated: Operated) -> None:
    operated.serve_api(ROUTE)
    async with bounded():
        await operated.listener.close()
    assert operated.api_closed == 1


async def test_of_probes_and_scrapes_nobody_is_told(operated: Operated) -> None:
    for path in ("/livez", "/readyz", "/metrics", "/nowhere"):
        await operated.ask(path)
    await operated.ask("/-/reload")
    assert operated.noted == []
