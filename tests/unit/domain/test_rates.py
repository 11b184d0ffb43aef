"""Which rates are for a request, and whose budget each is taken from."""

import time
from fnmatch import fnmatchcase
from typing import Any

import pytest

from taskgate.domain.rates import OTHER_METHODS, RateEvent, RateLimit, RatePolicies, RatePolicy, RateScope, RateSubject

LIMIT = RateLimit(every=1.0, burst=5)
ALICE = RateSubject("alice", "ann", "gold", "192.0.2.7")
STRAY = RateSubject("stray", "ann", None, "192.0.2.7")


def policy(name: str, scope: RateScope = RateScope.CONTEXT, **more: Any) -> RatePolicy:
    return RatePolicy(name=name, scope=scope, limit=LIMIT, **more)


def names(policies: RatePolicies, method: str = "tools/call", tool: str | None = None, mount: str = "reports") -> str:
    """The names of those that are for a request."""
    return " ".join(each.policy.name for each in policies.demands(ALICE, {}, mount, method, tool))


def test_a_policy_without_narrowing_is_for_every_request() -> None:
    policies = RatePolicies((policy("all"),))
    assert [names(policies, method) for method in ("tools/call", "ping", "tasks/get")] == ["all"] * 3


@pytest.mark.parametrize(
    ("more", "request_", "fits"),
    [
        ({"methods": ("tools/call", "prompts/get")}, {"method": "prompts/get"}, True),
        ({"methods": ("tools/call",)}, {"method": "prompts/get"}, False),
        ({"methods": ("tasks/*",)}, {"method": "tasks/result"}, True),
        ({"methods": ("tasks/*",)}, {"method": "Tasks/result"}, False),
        ({"methods": ("*/list",)}, {"method": "resources/templates/list"}, True),
        ({"upstream": "reports"}, {"mount": "reports"}, True),
        ({"upstream": "reports"}, {"mount": "search"}, False),
        ({"tool": "generate_*"}, {"tool": "generate_pdf"}, True),
        ({"tool": "generate_*"}, {"tool": "read"}, False),
        ({"tool": "*"}, {"tool": None, "method": "ping"}, False),
        ({"tool": "*", "methods": ("prompts/get",)}, {"tool": "read"}, False),
        ({"event": RateEvent.LOOKUP_FAILURE}, {}, False),
        ({"before_auth": True}, {}, False),
    ],
)
def test_a_policy_is_for_what_it_names(more: dict[str, Any], request_: dict[str, Any], fits: bool) -> None:
    assert bool(names(RatePolicies((policy("p", **more),)), **request_)) is fits


class TestTheRest:
    """Calls, polls and the rest are budgets of their own."""

    USUAL = (
        policy("calls", methods=("tools/call",)),
        policy("polls", methods=("tasks/*",)),
        policy("rest", methods=OTHER_METHODS),
    )

    def test_is_what_no_other_policy_names(self) -> None:
        policies = RatePolicies(self.USUAL)
        assert [names(policies, method) for method in ("tools/call", "tasks/get", "ping")] == ["calls", "polls", "rest"]

    def test_is_of_one_scope(self) -> None:
        policies = RatePolicies((*self.USUAL, policy("everybody", RateScope.GLOBAL, methods=OTHER_METHODS)))
        assert names(policies) == "calls everybody"
        assert names(policies, "ping") == "rest everybody"

    @pytest.mark.parametrize(
        ("named", "rest"),
        [(RateScope.CONTEXT, RateScope.SUBJECT), (RateScope.SUBJECT, RateScope.CONTEXT)],
        ids=["of a caller before those of a person", "of a person before those of a caller"],
    )
    def test_leaves_out_what_a_policy_of_callers_or_of_persons_names(self, named: RateScope, rest: RateScope) -> None:
        policies = RatePolicies(
            (policy("calls", named, methods=("tools/call",)), policy("rest", rest, methods=OTHER_METHODS))
        )
        assert [names(policies, method) for method in ("tools/call", "ping")] == ["calls", "rest"]

    @pytest.mark.parametrize(
        "narrow",
        [{"tool": "generate_*", "methods": ("ping",)}, {"upstream": "reports", "methods": ("ping",)}, {}],
        ids=["to a tool", "to a server", "to nothing at all"],
    )
    def test_has_what_only_a_narrower_policy_or_one_for_everything_names(self, narrow: dict[str, Any]) -> None:
        policies = RatePolicies((*self.USUAL, policy("other", **narrow)))
        assert "rest" in names(policies, "ping").split()

    def test_has_what_is_named_in_shadow_so_that_a_shadow_takes_no_limit_away(self) -> None:
        shadow = policy("shadow", methods=("ping",), shadow=True)
        assert names(RatePolicies((*self.USUAL, shadow)), "ping") == "rest shadow"
        resting = (shadow, policy("rest", methods=OTHER_METHODS, shadow=True))
        assert names(RatePolicies(resting), "ping") == "shadow"

    def test_heeds_neither_events_nor_what_comes_before_authentication(self) -> None:
        others = (
            policy("failures", event=RateEvent.LOOKUP_FAILURE, methods=("ping",)),
            policy("ip", before_auth=True, methods=("ping",)),
        )
        assert names(RatePolicies((*self.USUAL, *others)), "ping") == "rest"


def keys(subject: RateSubject, tool: str | None = "build", mount: str = "reports") -> dict[str, str]:
    """The key of each scope that has one."""
    policies = RatePolicies(tuple(policy(f"by {scope}", scope) for scope in RateScope))
    demands = policies.demands(subject, {}, mount, "tools/call", tool)
    return {demand.policy.scope.value: demand.key for demand in demands}


def test_a_budget_is_shared_by_all_of_its_scope_and_nobody_else() -> None:
    mine = keys(ALICE)
    assert sorted(mine) == sorted(RateScope)
    assert len(set(mine.values())) == len(RateScope)

    def differ(other: dict[str, str]) -> set[str]:
        return {scope for scope, key in other.items() if key != mine[scope]}

    assert differ(keys(ALICE)) == set()
    assert differ(keys(RateSubject("bob", "ann", "gold", "192.0.2.7"))) == {"context"}
    assert differ(keys(RateSubject("alice", "bea", "gold", "192.0.2.7"))) == {"subject"}
    assert differ(keys(RateSubject("alice", "ann", "silver", "192.0.2.7"))) == {"tenant"}
    assert differ(keys(RateSubject("alice", "ann", "gold", "192.0.2.8"))) == {"ip"}
    assert differ(keys(ALICE, mount="search")) == {"upstream", "tool"}
    assert differ(keys(ALICE, tool="read")) == {"tool"}


def test_who_has_no_tenant_has_no_budget_of_one_and_what_calls_no_tool_none_of_that() -> None:
    assert "tenant" not in keys(STRAY)
    assert "tool" not in keys(ALICE, tool=None)


def test_policies_never_share_a_budget() -> None:
    policies = RatePolicies((policy("one"), policy("two")))
    assert len({demand.key for demand in policies.demands(ALICE, {}, "reports", "ping", None)}) == 2


def test_a_callers_own_rate_stands_for_the_usual_one_and_cost_is_the_policys() -> None:
    own = RateLimit(every=0.02, burst=50)
    policies = RatePolicies((policy("calls", cost=3), policy("other")))
    first, second = policies.demands(ALICE, {"calls": own}, "reports", "tools/call", None)
    assert (first.limit, first.cost, second.limit, second.cost) == (own, 3, LIMIT, 1)


def test_a_look_at_a_caller_takes_nothing_from_each_of_its_own_budgets() -> None:
    policies = RatePolicies((
        policy("calls", methods=("tools/call",), cost=5),
        policy("reports", upstream="reports"),
        policy("guesses", event=RateEvent.LOOKUP_FAILURE),
        policy("early", before_auth=True),
        policy("all", RateScope.GLOBAL),
    ))  # fmt: skip
    own = RateLimit(every=9.0, burst=9)
    found = policies.caller_demands("alice", "ann", {"calls": own})
    assert [(each.key, each.cost) for each in found] == [
        ("calls\nalice", 0),
        ("reports\nalice", 0),
        ("guesses\nalice", 0),
    ]
    assert [each.limit == own for each in found] == [True, False, False]
    assert policies.caller_demands("alice", None, {"calls": own}) == found
    # So it says where calls and failed look-ups take from.
    taken = policies.demands(RateSubject("alice", "ann", None, ""), {}, "reports", "tools/call", None)
    assert {each.key for each in taken} - {"all\n"} == {found[0].key, found[1].key}


def test_an_event_takes_from_its_own_policies() -> None:
    failures = policy("failures", event=RateEvent.LOOKUP_FAILURE)
    logins = policy("logins", RateScope.IP, event=RateEvent.AUTH_FAILURE)
    there = policy("there", event=RateEvent.LOOKUP_FAILURE, upstream="search")
    policies = RatePolicies((failures, logins, there, policy("calls")))

    def taken(event: RateEvent, mount: str = "reports") -> list[RatePolicy]:
        return [demand.policy for demand in policies.event_demands(event, ALICE, {}, mount)]

    assert taken(RateEvent.LOOKUP_FAILURE) == [failures]
    assert taken(RateEvent.LOOKUP_FAILURE, "search") == [failures, there]
    assert taken(RateEvent.AUTH_FAILURE) == [logins]
    own = RateLimit(every=9.0, burst=9)
    assert policies.event_demands(RateEvent.LOOKUP_FAILURE, ALICE, {"failures": own}, "reports")[0].limit == own
    assert RatePolicies(()).event_demands(RateEvent.AUTH_FAILURE, ALICE, {}, "reports") == ()


@pytest.mark.parametrize(("size", "cost"), [(1, 1), (1024, 1), (1025, 2), (4096, 4), (10**9, 5)])
def test_a_large_body_costs_its_kib_and_never_more_than_the_whole_budget(size: int, cost: int) -> None:
    policies = RatePolicies((policy("bodies", RateScope.SUBJECT, event=RateEvent.LARGE_BODY), policy("calls")))
    [demand] = policies.body_demands(size, ALICE, {}, "reports")
    assert (demand.key, demand.cost) == ("bodies\nann", cost)
    own = RateLimit(every=9.0, burst=2)
    [demand] = policies.body_demands(size, ALICE, {"bodies": own}, "reports")
    assert (demand.limit, demand.cost) == (own, min(cost, 2))
    assert names(policies) == "calls"
    assert RatePolicies((policy("calls"),)).body_demands(size, ALICE, {}, "reports") == ()


def test_before_authentication_only_address_and_server_are_known() -> None:
    policies = RatePolicies(
        (
            policy("ip", RateScope.IP, before_auth=True),
            policy("there", RateScope.UPSTREAM, before_auth=True, upstream="search"),
            policy("later", RateScope.IP),
        )
    )
    assert [each.key for each in policies.before_auth("192.0.2.7", "reports")] == ["ip\n192.0.2.7"]
    assert [each.policy.name for each in policies.before_auth("192.0.2.7", "search")] == ["ip", "there"]
    assert RatePolicies((policy("later", RateScope.IP),)).before_auth("192.0.2.7", "reports") == ()


@pytest.fixture
def matches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were compared with a glob, which happens only for what is not cached."""
    compared: list[str] = []

    def compare(name: str, glob: str) -> bool:
        compared.append(name)
        return fnmatchcase(name, glob)

    monkeypatch.setattr("taskgate.domain.rates.fnmatchcase", compare)
    return compared


def test_tools_share_a_cached_result_unless_a_policy_names_tools(matches: list[str]) -> None:
    without, with_tools = (RatePolicies((policy("calls", methods=("tools/*",), tool=tool),)) for tool in (None, "a*"))
    assert [names(without, tool=tool) for tool in ("a", "b")] == ["calls", "calls"]
    assert matches == ["tools/call"]
    assert [names(with_tools, tool=tool) for tool in ("a", "b", "a", "b")] == ["calls", "", "calls", ""]
    assert matches == ["tools/call", "a", "tools/call", "b"]


def test_the_cache_of_names_that_hosts_choose_is_bounded(matches: list[str]) -> None:
    policies = RatePolicies((policy("calls", tool="a*"),))
    for number in range(5_000):
        assert names(policies, tool=f"a{number}") == "calls"
    matches.clear()
    for name in ("a4999", "a1000", "a0"):
        assert names(policies, tool=name) == "calls"
    assert matches == ["a0"]


def test_policies_that_do_not_match_cost_nothing() -> None:
    """The same request, with no other policy and with a thousand: within a factor that leaves room for chance."""
    few = RatePolicies((policy("calls", methods=("tools/call",)),))
    others = tuple(policy(f"p{number}", tool=f"never{number}") for number in range(1000))
    many = RatePolicies((*few.policies, *others))

    def cost(policies: RatePolicies) -> float:
        policies.demands(ALICE, {}, "reports", "tools/call", "build")
        times = []
        for _ in range(20):
            begun = time.perf_counter()
            for _ in range(50):
                policies.demands(ALICE, {}, "reports", "tools/call", "build")
            times.append(time.perf_counter() - begun)
        return min(times)

    assert cost(many) < 5 * cost(few)


def test_it_is_known_whether_arrivals_and_addresses_matter() -> None:
    def heeds(**more: Any) -> tuple[bool, bool]:
        policies = RatePolicies((policy("p", **more),))
        return policies.has_before_auth, policies.has_addresses

    assert heeds() == (False, False)
    assert heeds(scope=RateScope.IP) == (False, True)
    assert heeds(scope=RateScope.IP, before_auth=True) == (True, False)
    assert heeds(scope=RateScope.IP, event=RateEvent.AUTH_FAILURE) == (True, False)
    assert heeds(scope=RateScope.IP, event=RateEvent.LOOKUP_FAILURE) == (False, True)
    assert heeds(event=RateEvent.LOOKUP_FAILURE) == (False, False)


def test_long_names_of_hosts_are_not_cached_and_make_no_long_keys(matches: list[str]) -> None:
    policies = RatePolicies((policy("rest", methods=("*",)), policy("tools", RateScope.TOOL, tool="*")))
    long = 100_000 * "x"
    for number in (1, 1, 2):
        (one,) = policies.demands(ALICE, {}, "reports", f"{long}{number}", None)
        assert one.policy.name == "rest"
        found = policies.demands(ALICE, {}, "reports", "tools/call", f"{long}\ud800{number}")
        assert max(len(each.key) for each in found) < 100
    assert matches == [f"{long}\ud800{number}" for number in (1, 1, 2)]
    keys = {policies.demands(ALICE, {}, "reports", "tools/call", f"{long}{number % 2}")[1].key for number in range(4)}
    assert len(keys) == 2
