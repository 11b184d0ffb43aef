"""The operator's rules, applied: what is raised, what is counted, and which tools a caller is told of."""

from typing import Any

import pytest

from taskgate.admission.access import OPEN, AccessControl
from taskgate.auth.authorization import AccessEffect, AccessPolicy, AccessRule
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.errors import Forbidden, InsufficientScope
from taskgate.system import log_throttle
from taskgate.telemetry.events import AccessRefused
from unit.admission.live_rules import live
from unit.admission.live_rules import rules as generation
from unit.auth.identities import identity
from unit.lifecycle.recorded_events import RecordedEvents


def rule(name: str = "r", *scopes: str, **changes: Any) -> AccessRule:
    return AccessRule(name=name, require_scopes=frozenset(scopes), **changes)


def caller(*scopes: str) -> AuthContext:
    return AuthContext(key="alice", identity=identity(*scopes))


def access(*rules: AccessRule, default: AccessEffect = AccessEffect.ALLOW) -> tuple[AccessControl, RecordedEvents]:
    emitted = RecordedEvents()
    return AccessControl(live(access=AccessPolicy(rules=rules, default=default)), emitted), emitted


def test_what_a_rule_allows_passes_and_nothing_is_counted() -> None:
    rules, emitted = access(rule("r", "read"), default=AccessEffect.DENY)
    rules.check(caller("read"), "reports", "tools/call", "build")
    assert emitted.all == []


@pytest.mark.parametrize("method", ["initialize", "server/discover", "ping"])
def test_no_rule_refuses_what_tells_a_host_what_it_may_do(method: str) -> None:
    rules, emitted = access(rule(effect=AccessEffect.DENY), default=AccessEffect.DENY)
    rules.check(caller(), "reports", method)
    assert emitted.all == []


def test_missing_scopes_are_all_told_at_once_and_counted() -> None:
    rules, emitted = access(rule("r", "read", "write"))
    with pytest.raises(InsufficientScope) as refusal:
        rules.check(caller("read"), "reports", "tools/call", "build")
    assert refusal.value.scopes == {"read", "write"}
    assert emitted.all == [AccessRefused("reports", "tools/call", shadow=False, rule="r", tool="build")]


@pytest.mark.parametrize(
    ("rules", "by"),
    [(access(rule(effect=AccessEffect.DENY)), "r"), (access(default=AccessEffect.DENY), None)],
    ids=["a rule", "the default"],
)
def test_what_no_scope_would_help_is_refused_in_words_that_name_no_rule(
    rules: tuple[AccessControl, RecordedEvents], by: str | None
) -> None:
    with pytest.raises(Forbidden, match=r'^The operator.s access rules do not allow tools/call of "build"$'):
        rules[0].check(caller("read"), "reports", "tools/call", "build")
    assert rules[1].all == [AccessRefused("reports", "tools/call", shadow=False, rule=by, tool="build")]


def test_a_rule_in_shadow_refuses_nothing_and_each_is_counted() -> None:
    rules, emitted = access(rule("a", "admin", shadow=True), rule("b", shadow=True, effect=AccessEffect.DENY))
    rules.check(caller("read"), "reports", "tasks/get", "build")
    assert emitted.all == [
        AccessRefused("reports", "tasks/get", shadow=True, rule=name, tool="build") for name in ("a", "b")
    ]


def test_the_log_names_the_rule_that_refused_or_would_have(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "taskgate.access")
    rules, _ = access(rule("a", "admin", shadow=True), rule("b", "write"), default=AccessEffect.DENY)
    with pytest.raises(InsufficientScope):
        rules.check(caller("read"), "reports", "tools/call", "build")
    told = [vars(record) for record in caplog.records]
    assert [(each["rule"], each["shadow"], each["upstream"], each["method"]) for each in told] == [
        ("a", True, "reports", "tools/call"),
        ("b", False, "reports", "tools/call"),
    ]
    assert {each["message"] for each in told} == {"request refused by an access rule"}


def test_a_refusal_behind_a_rule_in_shadow_is_counted_beside_it() -> None:
    rules, emitted = access(rule("a", "admin", shadow=True), rule("b", "write"))
    with pytest.raises(InsufficientScope):
        rules.check(caller("read"), "reports", "tools/call", "build")
    assert emitted.all == [
        AccessRefused("reports", "tools/call", shadow=shadow, rule=name, tool="build")
        for name, shadow in (("a", True), ("b", False))
    ]


def test_mount_method_and_tool_are_those_of_the_operation() -> None:
    rules, _ = access(rule(upstream="reports", methods=("tasks/get",), tool="build"), default=AccessEffect.DENY)
    rules.check(caller(), "reports", "tasks/get", "build")
    for other in (("books", "tasks/get", "build"), ("reports", "tools/call", "build"), ("reports", "tasks/get", None)):
        with pytest.raises(Forbidden):
            rules.check(caller(), *other)


def test_to_ask_whether_something_would_pass_counts_nothing() -> None:
    rules, emitted = access(rule("s", "x", shadow=True), rule("r", "read"))
    assert rules.is_allowed(caller("read"), "reports", "tasks/get", "build")
    assert not rules.is_allowed(caller(), "reports", "tasks/get", "build")
    assert emitted.all == []


def test_without_rules_everybody_is_told_of_every_tool() -> None:
    assert AccessControl(live(access=OPEN), RecordedEvents()).tool_filter(caller(), "reports") is None
    assert access()[0].tool_filter(ANONYMOUS, "reports") is None


def test_a_caller_is_told_of_the_tools_it_could_call_there() -> None:
    rules, emitted = access(
        rule("list", methods=("tasks/*",), effect=AccessEffect.DENY),
        rule("r", "admin", upstream="reports", methods=("tools/call",), tool="delete_*"),
    )
    shown, elsewhere = rules.tool_filter(caller("read"), "reports"), rules.tool_filter(caller("read"), "books")
    assert shown is not None
    assert elsewhere is not None
    assert [shown(tool) for tool in ("build", "delete_all")] == [True, False]
    assert elsewhere("delete_all")
    assert emitted.all == []


def test_other_rules_count_from_the_moment_they_are_there() -> None:
    at = live()
    rules = AccessControl(at, RecordedEvents())
    rules.check(caller(), "reports", "tools/call", "build")
    assert rules.tool_filter(caller(), "reports") is None
    at.current = generation(access=AccessPolicy(rules=(rule(effect=AccessEffect.DENY),)))
    with pytest.raises(Forbidden):
        rules.check(caller(), "reports", "tools/call", "build")
    assert not rules.is_allowed(caller(), "reports", "tools/call", "build")
    shown = rules.tool_filter(caller(), "reports")
    assert shown is not None
    assert not shown("build")


def test_a_flood_of_refusals_by_one_rule_is_one_line_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "taskgate.access")
    now = [100.0]
    monkeypatch.setattr(log_throttle, "monotonic", lambda: now[0])
    rules, emitted = access(rule("a", "write"), rule("b", "admin", tool="drop"))
    for _ in range(500):
        with pytest.raises(InsufficientScope):
            rules.check(caller("read"), "reports", "tools/call", "build")
    now[0] += 1.0
    with pytest.raises(InsufficientScope):
        rules.check(caller("read"), "reports", "tools/call", "build")
    assert [vars(record).get("left_out") for record in caplog.records] == [None, 499]
    assert len(emitted.all) == 501, "each is counted and in the audit log"
