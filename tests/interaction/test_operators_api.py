"""The API of operators: tasks of all callers are listed, shown and cancelled; strangers are refused."""

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, error, in_turn, result
from helpers.waiting import eventually, until
from interaction.audit_logs import audited, lines, of, told_of
from interaction.operators import OPS, VIEWER, act, look, look_at_all, tokens

TASKS = "/api/v1/tasks"
LONGEST_CURSOR = 16_384
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "the-secret-result"}]}


@pytest.fixture(params=["memory", "sqlite"])
async def gateway(
    server: ScriptedServer, other: ScriptedServer, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Gateway]:
    """A gateway with an audit log, a token of each role, and two servers."""
    folder = tmp_path if request.param == "sqlite" else None
    servers = {"reports": server.url, "books": other.url}
    config = configuration(servers, folder=folder, admin=tokens(tmp_path), audit=audited(tmp_path))
    async with serve(config, data_directory=tmp_path / "data", source=lambda: config) as gateway:
        yield gateway


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """The tool `report`, which runs until the test ends it."""
    server.script["report"] = hold = Hold()
    return hold


async def items(gateway: Gateway, query: str = "") -> list[dict[str, Any]]:
    """The tasks of a list."""
    found: list[dict[str, Any]] = (await look(gateway, TASKS + query))["items"]
    return found


async def started(gateway: Gateway, host: Host, tool: str = "report", **arguments: Any) -> tuple[str, str]:
    """The id and the reference of a new task."""
    before = {item["reference"] for item in await items(gateway)}
    task = (await host.start(tool, arguments or None))["taskId"]
    [reference] = {item["reference"] for item in await items(gateway)} - before
    return task, reference


# --- lists


async def test_a_running_task_is_listed_with_all_that_a_table_shows(gateway: Gateway, host: Host, hold: Hold) -> None:
    task, reference = await started(gateway, host, question="the-secret-argument")
    page = await look(gateway, TASKS)
    [item] = page["items"]
    assert item.keys() == {
        "reference", "upstream", "tool", "status", "tool_error", "reason", "is_queued", "queue_position", "progress",
        "caller", "issuer", "subject", "client", "tenant", "created_at", "updated_at", "ended_at", "expires_at",
        "replica", "is_retrieved",
    }  # fmt: skip
    assert (item["upstream"], item["tool"], item["status"]) == ("reports", "report", "working")
    assert (item["caller"], item["is_queued"], page["next"], page["is_complete"]) == ("c_anonymous", False, None, True)
    shown = json.dumps([page, await look(gateway, f"{TASKS}/{reference}")])
    assert task not in shown
    assert "the-secret" not in shown


async def test_filters_choose_the_tasks_of_a_list(gateway: Gateway, host: Host, hold: Hold) -> None:
    _, running_ = await started(gateway, host)
    _, ended = await started(gateway, host, "echo")
    _, elsewhere = await started(gateway, await gateway.greeted(mount="books"), "echo")
    await until(lambda: items(gateway, "?status=completed"), lambda found: len(found) == 2)
    for query, expected in {
        "?upstream=books": {elsewhere},
        "?tool=echo": {ended, elsewhere},
        "?tool=echo&upstream=reports": {ended},
        "?status=working": {running_},
        "?status=working,completed": {running_, ended, elsewhere},
        "?status=working&status=completed": {running_, ended, elsewhere},
        "?caller=c_anonymous": {running_, ended, elsewhere},
        "?caller=c_other": set[str](),
        "?tenant=acme": set(),
        f"?reference={running_[:10]}": {running_},
        "?older_than=3600": set(),
        "?younger_than=3600": {running_, ended, elsewhere},
    }.items():
        assert {item["reference"] for item in await items(gateway, query)} == expected, query


@pytest.mark.parametrize("query", ["limit=2", "limit=2&status=working", "limit=3&status=working&sort=-created"])
async def test_the_pages_of_a_list_have_each_task_once(gateway: Gateway, host: Host, hold: Hold, query: str) -> None:
    made = [(await started(gateway, host))[1] for _ in range(5)]
    found = [item["reference"] for item in await look_at_all(gateway, f"{TASKS}?{query}")]
    assert found == made[::-1]


async def test_ended_tasks_are_among_the_others_by_their_creation(gateway: Gateway, host: Host, hold: Hold) -> None:
    made = [(await started(gateway, host, tool))[1] for tool in ("echo", "report", "echo", "report")]
    await until(lambda: items(gateway, "?status=completed"), lambda found: len(found) == 2)
    for query in ("", "?sort=-created", "?status=working,completed"):
        assert [item["reference"] for item in await items(gateway, query)] == made[::-1], query


async def test_failed_tasks_are_those_that_hosts_see_so_with_the_reason_and_their_end(
    gateway: Gateway, host: Host, server: ScriptedServer, hold: Hold
) -> None:
    server.script["broken"] = in_turn(result({"content": [], "isError": True}), error(-32000, "the-secret-error"))
    wrong, broken, fine, running_ = [
        (await started(gateway, host, tool))[1] for tool in ("broken", "broken", "echo", "report")
    ]
    failed = await until(lambda: items(gateway, "?status=failed"), lambda found: len(found) == 2)
    assert [(item["reference"], item["status"], item["reason"]) for item in failed] == [
        (broken, "failed", "jsonrpc_error"),
        (wrong, "completed", "tool_error"),
    ]
    assert all(item["created_at"] <= item["ended_at"] == item["updated_at"] for item in failed)
    completed = await until(lambda: items(gateway, "?status=completed"), bool)
    assert [item["reference"] for item in completed] == [fine]
    assert {item["reference"] for item in await items(gateway, "?status=failed,completed")} == {wrong, broken, fine}
    [working] = await items(gateway, "?status=working")
    assert (working["reference"], working["reason"], working["ended_at"]) == (running_, None, None)
    assert (await look(gateway, f"{TASKS}/{broken}"))["reason"] == "jsonrpc_error"


async def test_running_tasks_are_sorted_by_either_time(gateway: Gateway, host: Host, hold: Hold) -> None:
    made = [(await started(gateway, host))[1] for _ in range(3)]
    for sort, expected in {"created": made, "-created": made[::-1], "-updated": made[::-1]}.items():
        found = await items(gateway, f"?status=working,input_required&sort={sort}")
        assert [item["reference"] for item in found] == expected, sort


async def test_a_list_that_cannot_be_had_is_refused_with_the_reason(gateway: Gateway) -> None:
    for query, text in {
        "sort=created": "sort: needs status=working",
        "status=done": "status.0: ",
        "limit=0": "limit: ",
        "limit=101": "limit: ",
        "unknown=1": "unknown: ",
        "tool=a&tool=b": "tool: must be given once",
        "reference=x": "reference: ",
        "older_than=-1": "older_than: ",
        "older_than=nan": "older_than: ",
        **{f"limit={number}": "limit: " for number in ("5_0", "%2B5", "1.0", "%205", "05", "%D9%A5")},
        **{f"older_than={number}": "older_than: " for number in ("1_000", "%2B5", "1.", "infinity", "%D9%A5", "")},
        "cursor=abc": "start again without one",
        "cursor=abc!": "cursor: ",
        f"cursor={'A' * LONGEST_CURSOR}&tool={'%F0%9F%90%A2' * 256}": "start again without one",
        "&".join(f"a{number}=1" for number in range(40)): "at most 32 parameters",
    }.items():
        status, body = await gateway.operators(f"{TASKS}?{query}", Authorization=VIEWER)
        error = json.loads(body)["error"]
        assert (status, error["code"] in ("invalid_query", "invalid_cursor")) == (400, True), query
        assert text in error["message"], query


async def test_a_cursor_is_for_its_own_list_alone(gateway: Gateway, host: Host, hold: Hold) -> None:
    for _ in range(3):
        await started(gateway, host)
    cursor = (await look(gateway, f"{TASKS}?limit=2"))["next"]
    status, _ = await gateway.operators(f"{TASKS}?limit=2&tool=echo&cursor={cursor}", Authorization=VIEWER)
    assert status == 400
    assert len(await items(gateway, f"?limit=1&cursor={cursor}")) == 1


# --- one task


async def test_a_task_is_shown_with_its_timeline_and_its_host(gateway: Gateway, host: Host, hold: Hold) -> None:
    _, reference = await started(gateway, host)
    await hold.begun.wait()
    hold.release(DONE)
    shown = await until(
        lambda: look(gateway, f"{TASKS}/{reference}"), lambda found: bool(found["status"] == "completed")
    )
    assert [change["status"] for change in shown["timeline"]] == ["working", "completed"]
    assert shown["timeline"][0]["time"] == shown["created_at"]
    assert shown["host"]["revision"] == "2025-11-25"
    assert (shown["failure"], shown["lease"], shown["progress"], shown["questions"]) == (None, None, None, [])


async def test_why_a_task_failed_is_shown_but_not_what_the_server_wrote(
    gateway: Gateway, host: Host, server: ScriptedServer
) -> None:
    server.script["broken"] = error(-32000, "the-secret-error")
    _, reference = await started(gateway, host, "broken")
    shown = await until(lambda: look(gateway, f"{TASKS}/{reference}"), lambda found: bool(found["status"] == "failed"))
    assert shown["failure"] == {"reason": "jsonrpc_error", "message": None}
    assert "the-secret" not in json.dumps(shown)


async def test_a_task_that_is_not_there_is_not_found(gateway: Gateway) -> None:
    for path in ("t_" + "A" * 22, "t_short", "x", "t_" + "A" * 22 + "/other"):
        status, body = await gateway.operators(f"{TASKS}/{path}", Authorization=VIEWER)
        assert (status, json.loads(body)["error"]["code"] in ("task_not_found", "not_found")) == (404, True), path


# --- cancel


async def test_a_cancel_reaches_the_server_and_the_host_sees_a_cancelled_task(
    gateway: Gateway, host: Host, server: ScriptedServer, hold: Hold, tmp_path: Path
) -> None:
    task, reference = await started(gateway, host)
    await hold.begun.wait()
    status, body = await act(gateway, f"{TASKS}/{reference}/cancel")
    assert (status, body["status"]) == (200, "cancelled")
    assert (await host.task(task))["status"] == "cancelled"
    await eventually(lambda: server.cancelled == [hold.turns[0].id])
    assert await gateway.count("taskgate_tasks_finished_total", status="cancelled", reason="operator") == 1
    status, body = await act(gateway, f"{TASKS}/{reference}/cancel")
    assert (status, body["error"]["code"]) == (409, "already_ended")
    await told_of(tmp_path, "admin.request", 2)
    done, late = of(lines(tmp_path), "admin.request")
    assert (done["outcome"], done["data"], done["http"]["verb"]) == ("success", {"operator": "ops"}, "POST")
    assert (late["outcome"], late["http"]["status"]) == ("failure", 409)
    assert reference in done["http"]["path"]
    [asked] = of(lines(tmp_path), "task.cancel_requested")
    assert (asked["task"]["ref"], asked["data"]) == (reference, {"operator": "ops"})


@pytest.mark.parametrize("reason", [None, "the database\n is \u202edown"])
async def test_the_host_hears_that_an_operator_cancelled_its_task_and_why(
    gateway: Gateway, host: Host, hold: Hold, tmp_path: Path, reason: str | None
) -> None:
    task, reference = await started(gateway, host)
    await hold.begun.wait()
    await act(gateway, f"{TASKS}/{reference}/cancel", {} if reason is None else {"reason": reason})
    told = "by an operator" if reason is None else "by an operator: the database  is \ufffddown"
    assert (await host.task(task))["statusMessage"] == f"Cancelled {told}"
    answer = await host.ask("tasks/result", {"taskId": task})
    assert answer.error == {"code": -32800, "message": f"Task was cancelled {told}"}
    await told_of(tmp_path, "task.cancel_requested", 1)
    [asked] = of(lines(tmp_path), "task.cancel_requested")
    assert asked["data"]["operator"] == "ops"
    assert ("stated_reason" in asked["data"]) == (reason is not None)


@pytest.mark.parametrize("reason", ["", "  ", "x" * 201, 1])
async def test_a_reason_is_a_short_text(gateway: Gateway, host: Host, hold: Hold, reason: object) -> None:
    task, reference = await started(gateway, host)
    status, told = await act(gateway, f"{TASKS}/{reference}/cancel", {"reason": reason})
    assert (status, told["error"]["code"]) == (400, "invalid_body")
    assert (await host.task(task))["status"] == "working"


# --- cancel many


async def test_many_tasks_are_counted_first_and_cancelled_by_their_number_and_selection(
    gateway: Gateway, host: Host, hold: Hold, tmp_path: Path
) -> None:
    made = {(await started(gateway, host))[1] for _ in range(3)}
    await started(gateway, host, "echo")
    path, select = f"{TASKS}/cancel", {"upstream": "reports", "tool": "report"}
    status, counted = await act(gateway, path, {**select, "dry_run": True})
    selection = counted.pop("selection")
    assert (status, set(counted.pop("references"))) == (200, made)
    assert selection == sha256("".join(f"{each}\n" for each in sorted(made)).encode()).hexdigest()
    assert counted == {"matched": 3, "cancelled": 0, "ended": 0, "failed": 0}
    assert len(await items(gateway, "?status=working&tool=report")) == 3
    status, told = await act(gateway, path, {**select, "confirm": 2, "selection": selection})
    assert (status, told["error"]["code"]) == (409, "count_differs")
    assert len(await items(gateway, "?status=working&tool=report")) == 3
    why = {"reason": "the database is down"}
    status, done = await act(gateway, path, {**select, **why, "confirm": 3, "selection": selection})
    assert (status, done["matched"], done["cancelled"]) == (200, 3, 3)
    assert {item["reference"] for item in await items(gateway, "?status=cancelled")} == made
    await told_of(tmp_path, "admin.request", 3)
    asked = of(lines(tmp_path), "task.cancel_requested")
    assert [line["data"] for line in asked] == [{"operator": "ops", "stated_reason": "the database is down"}] * 3
    assert [line["data"] for line in of(lines(tmp_path), "admin.request")] == [
        {"operator": "ops", "dry_run": True, "matched": 3, "cancelled": 0},
        {"operator": "ops", "dry_run": False, "matched": 3},
        {"operator": "ops", "dry_run": False, "matched": 3, "cancelled": 3},
    ]


async def test_as_many_other_tasks_than_were_counted_are_not_cancelled(
    gateway: Gateway, host: Host, hold: Hold
) -> None:
    (_, kept), (task, _) = [await started(gateway, host) for _ in range(2)]
    path, select = f"{TASKS}/cancel", {"upstream": "reports", "tool": "report"}
    _, counted = await act(gateway, path, {**select, "dry_run": True})
    await host.ask("tasks/cancel", {"taskId": task})
    _, new = await started(gateway, host)
    confirmed = {**select, "confirm": 2, "selection": counted["selection"]}
    status, told = await act(gateway, path, confirmed)
    assert (status, told["error"]["code"]) == (409, "selection_differs")
    assert {item["reference"] for item in await items(gateway, "?status=working")} == {kept, new}


@pytest.mark.parametrize(("age", "matched"), [("older_than", 1), ("younger_than", 0)])
async def test_an_age_of_0_selects_tasks_to_cancel(
    gateway: Gateway, host: Host, hold: Hold, age: str, matched: int
) -> None:
    await started(gateway, host)
    status, counted = await act(gateway, f"{TASKS}/cancel", {age: 0, "dry_run": True})
    assert (status, counted["matched"]) == (200, matched)


async def test_a_reason_selects_no_task(gateway: Gateway, host: Host, hold: Hold) -> None:
    await started(gateway, host)
    status, told = await act(gateway, f"{TASKS}/cancel", {"reason": "all of them", "dry_run": True})
    assert (status, told["error"]["code"]) == (400, "invalid_body")


async def test_many_tasks_are_not_cancelled_without_a_selection_or_a_number(
    gateway: Gateway, host: Host, hold: Hold
) -> None:
    await started(gateway, host)
    for body, text in [
        ({"dry_run": True}, "at least one parameter"),
        ({"confirm": 1}, "at least one parameter"),
        ({"status": [], "confirm": 1}, "at least one parameter"),
        ({"upstream": "reports"}, "confirm: "),
        ({"upstream": "reports", "confirm": 1}, "selection: "),
        ({"upstream": "reports", "selection": "0" * 64}, "confirm: "),
        ({"confirm": 1, "selection": "0" * 64}, "at least one parameter"),
        ({"upstream": "reports", "confirm": 1, "selection": "0"}, "selection: "),
        ({"upstream": "reports", "confirm": -1}, "confirm: "),
        ({"upstream": "reports", "confirm": True}, "confirm: "),
        ({"upstream": "reports", "confirm": "1"}, "confirm: "),
        ({"upstream": "reports", "confirm": 1.5}, "confirm: "),
        ({"upstream": "reports", "dry_run": "yes"}, "dry_run: "),
        ({"upstream": "reports", "confirm": 1, "force": True}, "force: "),
        ([], "Input should be"),
    ]:
        status, told = await act(gateway, f"{TASKS}/cancel", body)
        assert (status, told["error"]["code"]) == (400, "invalid_body")
        assert text in told["error"]["message"], body
    for data, content_type, expected in ((b"{", "application/json", 400), (b"{}", "text/plain", 415)):
        headers = {"Authorization": OPS, "Content-Type": content_type}
        assert (await gateway.operators_answer(f"{TASKS}/cancel", "POST", data, **headers))[0] == expected
    assert len(await items(gateway, "?status=working")) == 1


# --- who may


async def test_a_viewer_looks_and_does_not_act(gateway: Gateway, host: Host, hold: Hold, tmp_path: Path) -> None:
    task, reference = await started(gateway, host)
    for path in (f"{TASKS}/{reference}/cancel", "/-/reload", "/-/drain"):
        status, _ = await gateway.operators(path, "POST", Authorization=VIEWER)
        assert status == 403, path
    assert (await host.task(task))["status"] == "working"
    await told_of(tmp_path, "admin.request", 3)
    told = of(lines(tmp_path), "admin.request")
    assert [(line["data"]["operator"], line["outcome"]) for line in told] == [("looks", "denied")] * 3


@pytest.mark.parametrize(
    ("expected", "headers"),
    [
        (401, {}),
        (401, {"Authorization": "Bearer wrong"}),
        (403, {"Authorization": OPS, "Origin": "https://evil.example"}),
        (403, {"Authorization": OPS, "Sec-Fetch-Site": "cross-site"}),
        (421, {"Authorization": OPS, "Host": "evil.example"}),
    ],
)
async def test_strangers_learn_nothing_and_change_nothing(
    gateway: Gateway, host: Host, hold: Hold, expected: int, headers: dict[str, str]
) -> None:
    task, reference = await started(gateway, host)
    for path in (f"{TASKS}/{reference}/cancel", f"{TASKS}/t_unknown/cancel", "/api/v1/nowhere", "/api/"):
        status, body = await gateway.operators(path, "POST", **headers)
        assert status == expected
        assert reference not in body
    assert (await host.task(task))["status"] == "working"


async def test_no_page_of_another_origin_gets_a_preflight_through(gateway: Gateway) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    status, answered, _ = await gateway.operators_answer(TASKS, "OPTIONS", **headers)
    assert status == 403
    assert not [name for name in answered if name.lower().startswith("access-control")]


async def test_after_many_wrong_tokens_an_address_has_others_refused_and_a_right_one_passes(
    gateway: Gateway,
) -> None:
    statuses = [(await gateway.operators(TASKS, Authorization=f"Bearer guess-{each}"))[0] for each in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert (await gateway.operators(TASKS, Authorization=OPS))[0] == 200
    assert (await gateway.operators("/-/reload", "POST", Authorization=OPS))[0] == 200
    assert await gateway.ready() == 200


async def test_tokens_are_read_again_at_a_reload(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "looks.token").write_text("another-token-of-a-viewer")
    status, body = await act(gateway, "/-/reload")
    assert (status, body["result"]) == (200, "success")
    assert (await gateway.operators(TASKS, Authorization=VIEWER))[0] == 401
    assert (await gateway.operators(TASKS, Authorization="Bearer another-token-of-a-viewer"))[0] == 200


# --- requests that are no good


async def test_another_method_is_refused_with_the_right_one(gateway: Gateway) -> None:
    status, answered, _ = await gateway.operators_answer(TASKS, "DELETE", Authorization=OPS)
    assert (status, answered["Allow"]) == (405, "GET")


async def test_a_body_that_is_too_large_or_no_json_is_refused(gateway: Gateway) -> None:
    for body, expected in ((b"x" * 70_000, 413), (b"x", 415)):
        path = f"{TASKS}/t_{'A' * 22}/cancel"
        status, _, answered = await gateway.operators_answer(path, "POST", body, Authorization=OPS)
        assert (status, bool(json.loads(answered)["error"]["code"])) == (expected, True)


async def test_a_body_in_a_broken_encoding_is_refused_in_the_form_of_the_api(gateway: Gateway) -> None:
    path = f"{TASKS}/cancel"
    status, _, answered = await gateway.operators_answer(
        path, "POST", b"zz", Authorization=OPS, **{"Content-Encoding": "gzip"}
    )
    assert (status, json.loads(answered)["error"]["code"]) == (400, "invalid_body")


async def test_without_a_token_the_api_is_refused(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url})) as gateway:
        status, body = await gateway.operators(TASKS, Authorization=OPS)
        assert (status, json.loads(body)["error"]["code"]) == (403, "no_token_configured")
