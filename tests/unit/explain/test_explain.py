"""`taskgate explain`: which rule decides what for a caller, in text and in JSON."""

import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from taskgate.explain.render import render
from unit.explain.explain_command import run, said, token, told

ANONYMOUS = """\
Caller: anonymous: auth.mode is none, so all hosts are one caller
Call: export_year of reports at /reports/mcp

Authorization
  allowed  [authorization.default, by default]

Rates before it is known who calls
  ip: 1000/s by ip, burst 2000  [limits.rate[0], by default]

Rates of tools/call
  calls: 10/s by subject, burst 60, wait 3s  [limits.rate[3], by default]

Rates of tasks/get
  polls: 20/s by subject, burst 60, wait 3s  [limits.rate[4], by default]

Rates of refused tokens
  auth_failures: 1/s by ip, burst 20  [limits.rate[1], by default]

Rates of tasks that were not found
  none

Rates of KiB of bodies above 256 KiB
  bodies: 16384/s by subject, burst 65536, wait 3s  [limits.rate[6], by default]

Promotion
  mode:               always  [tasks.upgrade[2].mode]
  announced:          always  [tasks.announce, by default]
  time to live:       1h  [tasks.upgrade[2].ttl]
  at least:           1h  [tasks.upgrade[2].ttl]
  at most:            1d  [tasks.ttl.max, by default]
  kept after the end: 30m  [tasks.ttl.keep, by default]
  deadline:           none  [tasks.upgrade[2].deadline, by default]
  cap of the tool:    3  [tasks.upgrade[2].cap]
  when lost:          rerun  [tasks.upgrade[2].on_lost]
  retries join for:   none  [tasks.upgrade[2].join_retries, by default]
  handed off after:   none  [tasks.upgrade[2].handoff, by default]
  tasks.upgrade[1] would decide, but is in shadow: mode required

Unfinished tasks
  of the caller:      10  [limits.concurrency.tasks_per_context, by default]
  of the subject:     20  [limits.concurrency.tasks_per_subject, by default]
  of the tool:        3  [tasks.upgrade[2].cap]
  of all:             1000  [limits.concurrency.tasks_global, by default]
  kept of the caller: 256MiB  [limits.concurrency.kept_per_context, by default]
  kept of subject:    512MiB  [limits.concurrency.kept_per_subject, by default]
  kept of all:        2GiB  [limits.concurrency.kept_global, by default]

Open at once, of the caller
  sessions:           100  [limits.concurrency.sessions_per_context, by default]
  streams:            100  [server.max_streams_per_context, by default]
  waits:              64  [limits.concurrency.waits_per_context, by default]
  large messages:     32MiB  [limits.concurrency.bytes_in_flight_per_context, by default]
  kept by streams:    16MiB  [limits.concurrency.streams_kept_per_context, by default]

Polls of a task
  wait up to age:     500ms  [tasks.poll_grace, by default]
  advised every:      2s  [tasks.poll_interval.base, by default]
  refused above:      10 times as often  [tasks.early_poll.reject_above, by default]

Failed look-ups of tasks by the caller
  none

Calls of the server
  at once:            4  [upstreams.reports.concurrency]
  that may wait:      256  [upstreams.reports.queue.size, by default]
  for:                5m  [upstreams.reports.queue.max_wait, by default]
  to connect:         5s  [upstreams.reports.timeouts.connect, by default]
  without progress:   1h  [upstreams.reports.timeouts.call, by default]
  altogether:         1d  [upstreams.reports.timeouts.ceiling, by default]
  failures:           5  [upstreams.reports.circuit_breaker.failures, by default]
  within:             30s  [upstreams.reports.circuit_breaker.window, by default]
  then none for:      30s  [upstreams.reports.circuit_breaker.open_for, by default]

Extensions
  io.modelcontextprotocol/ui: crosses between all eras  [AT/ui", by default]
  io.modelcontextprotocol/skills: crosses between all eras  [AT/skills", by default]
    methods: resources/directory/read, skills/get, skills/list
    cacheable: resources/directory/read, skills/get, skills/list
  io.modelcontextprotocol/events: denied  [AT/events", by default]
  io.modelcontextprotocol/tasks: the gateway's own  [AT/tasks", by default]
  io.modelcontextprotocol/dpop: denied  [AT/dpop", by default]
  io.modelcontextprotocol/enterprise-managed-authorization: denied  [AT/enterprise-managed-authorization", by default]
  io.modelcontextprotocol/oauth-client-credentials: denied  [AT/oauth-client-credentials", by default]
  io.modelcontextprotocol/workload-identity-federation: denied  [AT/workload-identity-federation", by default]
  every other: denied  [upstreams.reports.extensions.default, by default]

A limit is told as
  an error of JSON-RPC under HTTP 200  [limits.reject_as, by default]
""".replace("[AT", '[upstreams.reports.extensions."io.modelcontextprotocol')


def test_everything_that_decides_over_a_call_is_told_with_its_key(anonymous: Path) -> None:
    assert told("--config", anonymous, "--upstream", "reports", "--tool", "export_year") == ANONYMOUS


def test_a_tool_of_the_gateway_is_told_as_one_at_every_upstream_where_a_rule_hands_off(tmp_path: Path) -> None:
    rules = [{"upstream": "search", "tool": "*", "mode": "auto", "handoff": {"after": "45s"}}]
    upstreams = {name: {"path": f"/{name}", "url": "http://127.0.0.1:9/mcp"} for name in ("reports", "search")}
    tools = {"cancel": {"name": "end"}}
    document = {"version": 1, "auth": {"mode": "none"}, "upstreams": upstreams}
    file = tmp_path / "taskgate.yaml"
    file.write_text(json.dumps(document | {"tasks": {"upgrade": rules, "handoff": {"tools": tools}}}))
    options = ("--config", file, "--upstream", "reports", "--json", "--tool")
    for tool, key in (("taskgate_wait", "wait.name, by default"), ("end", "cancel.name")):
        found = json.loads(told(*options, tool))
        assert render({**found, "caps": []}).splitlines()[2] == (
            f"No server gets it: that is a tool of the gateway  [tasks.handoff.tools.{key}]"
        )
    assert "reserved" not in json.loads(told(*options, "taskgate_cancel"))["call"]
    assert json.loads(told(*options, "taskgate_tasks"))["call"]["reserved"]["from"] == "tasks.upgrade"
    file.write_text(json.dumps(document))
    assert "reserved" not in json.loads(told(*options, "taskgate_wait"))["call"]


def test_a_name_with_control_characters_cannot_write_to_the_terminal(anonymous: Path) -> None:
    options = ("--config", anonymous, "--upstream", "reports", "--tool", "a\x1b[31m\u202e\nCaller: admin")
    assert told(*options).splitlines()[1] == "Call: a\ufffd[31m\ufffd Caller: admin of reports at /reports/mcp"
    as_json = told(*options, "--json")
    assert not {"\x1b", "\u202e"} & {*as_json}
    assert json.loads(as_json)["call"]["tool"] == options[-1]


def test_a_caller_is_who_the_token_says_with_limits_of_their_own(
    known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    out = told("--config", known, "--upstream", "reports", "--tool", "export_year", "--token", token(tmp_path, key))
    assert out.splitlines()[0] == (
        "Caller: alice of the issuer corp, client desk, tenant gold, scopes reports.admin reports.read, "
        "limits of limits.overrides[0]"
    )
    assert said(out, "Rates of tools/call") == [
        "calls: 50/s by context, burst 200, wait 3s  [limits.overrides[0].rate.calls]",
        "tenants: 600/m by tenant, burst 600, in shadow  [limits.rate[2]]",
        "exports: 10/m by upstream, burst 10, wait 3s, cost 2  [limits.rate[3]]",
    ]
    assert said(out, "Rates of tasks/get") == ["tenants: 600/m by tenant, burst 600, in shadow  [limits.rate[2]]"]
    assert said(out, "Rates of tasks that were not found") == ["guesses: 10/m by context, burst 10  [limits.rate[4]]"]
    assert said(out, "Promotion")[2:5] == [
        "time to live:       1h  [tasks.upgrade[2].ttl]",
        "at least:           1h  [tasks.upgrade[2].ttl]",
        "at most:            7d  [limits.overrides[0].ttl_max]",
    ]
    assert said(out, "Unfinished tasks")[:3] == [
        "of the caller:      50  [limits.overrides[0].concurrency.tasks_per_context]",
        "of the subject:     100  [limits.concurrency.tasks_per_subject, by default]",
        "of the tenant:      100  [limits.concurrency.tasks_per_tenant, by default]",
    ]
    mine = "while others wait:  3  [limits.overrides[0].concurrency.calls_per_context]"
    assert mine in said(out, "Calls of the server")


def test_a_time_to_live_that_is_cut_short_for_a_caller_comes_from_what_cuts_it(
    known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    known.write_text(known.read_text().replace("ttl_max: 7d", "ttl_max: 10m"))
    out = told("--config", known, "--upstream", "reports", "--tool", "export_year", "--token", token(tmp_path, key))
    assert said(out, "Promotion")[2] == "time to live:       10m  [limits.overrides[0].ttl_max]"


def test_a_built_in_rate_beside_those_of_the_file_is_told_as_a_default(anonymous: Path) -> None:
    mine = "limits: {rate: [{name: mine, scope: context, methods: [tools/call], rate: 9/s}]}\n"
    anonymous.write_text(anonymous.read_text() + mine)
    out = told("--config", anonymous, "--upstream", "reports", "--tool", "export_year")
    assert said(out, "Rates of tools/call") == [
        "mine: 9/s by context, burst 9, wait 3s  [limits.rate[0]]",
        "calls: 10/s by subject, burst 60, wait 3s  [limits.rate[4], by default]",
    ]


def test_another_tenant_has_the_usual_limits(known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    tin = token(tmp_path, key, {"org": "tin", "scope": ""})
    out = told("--config", known, "--upstream", "reports", "--tool", "delete_year", "--token", tin)
    assert out.startswith("Caller: alice of the issuer corp, client desk, tenant tin, scopes none\n")
    assert said(out, "Rates of tools/call")[0] == "calls: 5/s by context, burst 20, wait 3s  [limits.rate[1]]"
    assert said(out, "Authorization") == [
        "refused, for want of the scopes reports.admin  [authorization.rules[1]] (deleting)",
        "would be refused by authorization.rules[0], which is in shadow",
    ]


def test_a_call_that_is_refused_unless_its_server_lists_the_tool_is_told_of_it(
    known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    asked = ("--config", known, "--upstream", "reports", "--token", token(tmp_path, key))
    allowed = "allowed  [authorization.default, by default]"
    assert said(told(*asked, "--tool", "export_year"), "Authorization") == [
        allowed,
        "refused if the server does not list the tool  [authorization.only_listed_tools, by default]",
    ]
    known.write_text(known.read_text().replace("authorization:\n", "authorization:\n  only_listed_tools: false\n"))
    assert said(told(*asked, "--tool", "export_year"), "Authorization") == [allowed]
    found = json.loads(told(*asked, "--tool", "export_year", "--json"))["authorization"]["only_listed_tools"]
    assert found == {"value": False, "from": "authorization.only_listed_tools", "default": False}


def test_a_rule_that_depends_on_what_the_server_lists_says_so(anonymous: Path) -> None:
    asked = ("--config", anonymous, "--upstream", "reports", "--tool", "list_years")
    out = told(*asked)
    assert said(out, "Promotion")[0] == "mode:               auto  [tasks.upgrade[3].mode]"
    assert said(out, "Promotion")[-2:] == [
        "tasks.upgrade[1] would decide, but is in shadow: mode required",
        "tasks.upgrade[0] would decide if the server lists readOnlyHint: true: mode sync",
    ]
    out = told(*asked, "--hint", "readOnlyHint=true")
    assert "\nAnnotations: readOnlyHint: true\n" in out
    assert said(out, "Promotion") == [
        "mode:               sync  [tasks.upgrade[0].mode]",
        "announced:          always  [tasks.announce, by default]",
        "retries join for:   none  [tasks.upgrade[0].join_retries, by default]",
    ]
    assert "would decide" not in told(*asked, "--hint", "readOnlyHint=false").replace("[1] would decide", "")


def test_what_a_rule_does_for_hosts_without_tasks_is_told(tmp_path: Path) -> None:
    file = tmp_path / "handoff.yaml"

    def rows(rule: str) -> list[str]:
        file.write_text(
            "{version: 1, auth: {mode: none}, upstreams: {reports: {path: /mcp, url: 'http://127.0.0.1:3000/mcp'}}, "
            f"tasks: {{upgrade: [{{tool: '*', mode: auto, {rule}}}]}}}}"
        )
        return said(told("--config", file, "--upstream", "reports", "--tool", "export_year"), "Promotion")[-4:]

    assert rows("handoff: {after: 45s}") == [
        "when lost:          fail  [tasks.upgrade[0].on_lost, by default]",
        "handed off after:   45s  [tasks.upgrade[0].handoff]",
        "ceiling:            50s, or that of the host's name  [tasks.handoff.ceiling, by default]",
        "equal calls join:   until 5m after their end  [tasks.handoff.retry_window, by default]",
    ]
    assert rows("join_retries: never, handoff: {after: 2s, ceiling: 4s}")[-2:] == [
        "ceiling:            4s  [tasks.upgrade[0].handoff.ceiling]",
        "equal calls join:   never  [tasks.upgrade[0].join_retries]",
    ]


def test_a_tool_for_views_alone_is_never_a_task_where_no_glob_names_it(anonymous: Path) -> None:
    asked = ("--config", anonymous, "--upstream", "search", "--tool", "find")
    assert said(told(*asked), "Promotion")[0] == "mode:               auto  [tasks.upgrade[3].mode]"
    out = told(*asked, "--hint", "app_only=true")
    assert said(out, "Promotion")[0] == "sync: no rule is for this tool, so it is never a task  [tasks.upgrade]"


def test_a_tool_that_no_rule_is_for_is_never_a_task(anonymous: Path) -> None:
    text = anonymous.read_text()
    anonymous.write_text(text.replace('{tool: "*", mode: auto}', "{tool: a, mode: auto}"))
    out = told("--config", anonymous, "--upstream", "search", "--tool", "find")
    assert said(out, "Promotion") == ["sync: no rule is for this tool, so it is never a task  [tasks.upgrade]"]


def test_the_same_is_there_for_machines(known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    asked = ("--config", known, "--upstream", "reports", "--tool", "export_year", "--token", token(tmp_path, key))
    found = json.loads(told(*asked, "--json"))
    assert found["caller"] == {
        "anonymous": False,
        "issuer": "corp",
        "subject": "alice",
        "client": "desk",
        "tenant": "gold",
        "scopes": ["reports.admin", "reports.read"],
        "override": "limits.overrides[0]",
    }
    assert found["promotion"]["mode"] == {"value": "always", "from": "tasks.upgrade[2].mode", "default": False}
    assert found["promotion"]["shadow"] == [
        {"rule": "tasks.upgrade[1]", "mode": "required", "shadow": True, "hints": {}}
    ]
    assert [each["policy"] for each in found["rates"]["tools/call"]] == ["calls", "tenants", "exports"]
    assert found["authorization"]["allowed"] is True
    assert list(found) == [
        *("caller", "call", "promotion", "authorization", "rates", "caps"),
        *("open", "polls", "lookups", "server", "extensions", "refusals"),
    ]


def test_the_bounds_of_a_tool_are_those_of_the_first_rule_that_names_it(anonymous: Path) -> None:
    tools = '[{tool: "x*", call: 9m}, {tool: "export_*", call: 30h, idle: 1m}, {tool: "*", ceiling: 5m}]'
    section = f"concurrency: 4, circuit_breaker: null, timeouts: {{call: 2h, tools: {tools}}}"
    anonymous.write_text(anonymous.read_text().replace("concurrency: 4", section))
    asked = ("--config", anonymous, "--upstream", "reports", "--tool")
    at = "[upstreams.reports.timeouts"
    assert said(told(*asked, "export_year"), "Calls of the server")[3:] == [
        f"to connect:         5s  {at}.connect, by default]",
        f"silent for:         1m  {at}.tools[1].idle]",
        f"without progress:   30h  {at}.tools[1].call]",
        f"altogether:         30h  {at}.ceiling, by default]",
        "failures:           none  [upstreams.reports.circuit_breaker]",
    ]
    assert said(told(*asked, "other"), "Calls of the server")[4:6] == [
        f"without progress:   2h  {at}.call]",
        f"altogether:         5m  {at}.tools[2].ceiling]",
    ]


def test_failed_look_ups_count_where_callers_are_told_apart(
    known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    out = told("--config", known, "--upstream", "reports", "--tool", "export_year", "--token", token(tmp_path, key))
    assert said(out, "Failed look-ups of tasks by the caller") == [
        "passed over:        20  [auth.lookup_failures.threshold, by default]",
        "within:             1m  [auth.lookup_failures.window, by default]",
        "then none for:      5m  [auth.lookup_failures.penalty, by default]",
    ]


def test_what_lists_say_of_a_tool_is_told_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "announced.yaml"

    def row(rule: str, keys: str = "") -> str:
        file.write_text(
            "{version: 1, auth: {mode: none}, upstreams: {reports: {path: /mcp, url: 'http://127.0.0.1:3000/mcp'}}, "
            f"tasks: {{{keys} upgrade: [{{tool: '*', {rule}}}]}}}}"
        )
        return said(told("--config", file, "--upstream", "reports", "--tool", "export_year"), "Promotion")[1]

    assert row("mode: auto, announce: never") == "announced:          never  [tasks.upgrade[0].announce]"
    assert row("mode: sync", "announce: never,") == "announced:          never  [tasks.announce]"


def test_a_token_that_nobody_asks_for_is_said_to_be_ignored(
    anonymous: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    file = token(tmp_path, key)
    status, out, err = run("--config", anonymous, "--upstream", "reports", "--tool", "export_year", "--token", file)
    assert (status, out) == (0, ANONYMOUS)
    assert err == "taskgate: --token is ignored: auth.mode is none, so all hosts are one caller\n"


def test_a_program_is_started_where_others_are_connected_to(tmp_path: Path) -> None:
    file = tmp_path / "programs.yaml"
    server = "{path: /a, transport: stdio, command: [a], processes: 2, timeouts: {first_byte: 1m}}"
    file.write_text(f"version: 1\nauth: {{mode: none}}\nupstreams: {{a: {server}}}\n")
    assert said(told("--config", file, "--upstream", "a", "--tool", "b"), "Calls of the server") == [
        "at once:            32  [upstreams.a.concurrency, by default]",
        "that may wait:      256  [upstreams.a.queue.size, by default]",
        "for:                5m  [upstreams.a.queue.max_wait, by default]",
        "to connect:         5s  [upstreams.a.timeouts.connect, by default]",
        "to greet:           1m  [upstreams.a.timeouts.first_byte]",
        "processes:          2  [upstreams.a.processes]",
        "their sessions:     isolated  [upstreams.a.sessions, by default]",
        "without progress:   1h  [upstreams.a.timeouts.call, by default]",
        "altogether:         1d  [upstreams.a.timeouts.ceiling, by default]",
        "failures:           none  [upstreams.a.circuit_breaker]",
    ]
