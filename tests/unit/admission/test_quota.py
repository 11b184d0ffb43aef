"""Quotas: the subject that a caller counts as, and the HTTP fields that report what is left."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taskgate.admission import rates as module
from taskgate.admission.rates import QuotaSubject, QuotaSubjects, RateLimitExceeded, quota_fields
from taskgate.auth.context import ANONYMOUS, AuthContext, Identity
from taskgate.domain.limits import Override, Overrides
from taskgate.domain.rates import Demand, RateLimit, RateVerdict
from unit.admission.limiter_desk import ALICE, HERE, LimiterDesk, policy
from unit.admission.live_rules import live, rules
from unit.auth.identities import identity

GOLD = Override(tenant="gold", caps={"tasks_per_context": 50})
PRO = Override(claims={"plan": frozenset({"pro"})}, caps={"tasks_per_context": 20})


def caller(of: Identity | None = None, **changes: Any) -> AuthContext:
    return AuthContext(key="alice", identity=replace(of or identity(), **changes))


def test_a_tenant_is_the_same_one_for_all_its_callers() -> None:
    subjects = QuotaSubjects(live())
    first = subjects.of(caller(tenant="gold")).tenant
    assert first is not None
    assert first == subjects.of(caller(tenant="gold", subject="bob")).tenant
    assert first == QuotaSubjects(live()).of(caller(tenant="gold")).tenant


def test_tenants_of_the_same_name_at_two_issuers_are_two() -> None:
    subjects = QuotaSubjects(live())
    tenants = {
        subjects.of(caller(tenant=tenant, issuer=issuer)).tenant
        for tenant in ("gold", "silver", 'a","b')
        for issuer in ("https://one.example", "https://two.example", 'https://one.example","a')
    }
    assert len(tenants) == 9


def test_a_reference_does_not_show_the_tenants_name() -> None:
    assert "gold" not in (QuotaSubjects(live()).of(caller(tenant="gold")).tenant or "")


@pytest.mark.parametrize("nobody", [ANONYMOUS, caller()], ids=["without authentication", "without a tenant"])
def test_who_has_no_tenant_is_counted_with_none(nobody: AuthContext) -> None:
    assert QuotaSubjects(live()).of(nobody) == QuotaSubject(None, None)


def test_the_first_override_that_fits_is_a_callers_own() -> None:
    subjects = QuotaSubjects(live(overrides=Overrides((GOLD, PRO))))
    assert subjects.of(caller(tenant="gold")).override is GOLD
    assert subjects.of(caller(identity(plan="pro"))).override is PRO
    assert subjects.of(caller()).override is None
    assert subjects.of(ANONYMOUS).override is None


def test_a_callers_own_share_of_a_server_is_its_overrides() -> None:
    gold = Override(tenant="gold", calls=24)
    subjects = QuotaSubjects(live(overrides=Overrides((gold, PRO))))
    assert [
        subjects.concurrency_share(each) for each in (caller(tenant="gold"), caller(identity(plan="pro")), ANONYMOUS)
    ] == [
        24,
        None,
        None,
    ]


def test_an_override_for_all_is_for_who_has_no_identity_too() -> None:
    everybody = Override(caps={"tasks_per_context": 2})
    assert QuotaSubjects(live(overrides=Overrides((everybody,)))).of(ANONYMOUS).override is everybody


def test_a_newer_token_with_other_claims_stands_elsewhere() -> None:
    """The same context, told apart by what its tokens say: what a refresh took away is gone at once."""
    subjects = QuotaSubjects(live(overrides=Overrides((PRO,))))
    assert subjects.of(caller(identity(plan="pro"))).override is PRO
    assert subjects.of(caller(identity(plan="free"))).override is None


def test_other_rules_count_from_the_moment_they_are_there() -> None:
    at = live(overrides=Overrides((GOLD,)))
    subjects, gold = QuotaSubjects(at), caller(tenant="gold")
    assert subjects.of(gold).override is GOLD
    at.current = rules(overrides=Overrides())
    assert subjects.of(gold).override is None
    assert subjects.of(ANONYMOUS).override is None


def test_what_is_known_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects, one = QuotaSubjects(live()), caller(tenant="gold")
    subjects.of(one)
    monkeypatch.setattr(module, "_reference", lambda _: pytest.fail("worked out again"))
    assert subjects.of(one).tenant is not None


def test_callers_without_end_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects, worked_out = QuotaSubjects(live()), list[str | None]()
    monkeypatch.setattr(module, "_reference", lambda identity: worked_out.append(identity.tenant))
    for number in (*range(10_001), 10_000, 0):
        subjects.of(caller(tenant=str(number)))
    assert worked_out == [*map(str, range(10_001)), "0"]


def test_callers_who_differ_in_nothing_that_matters_are_remembered_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects, worked_out = QuotaSubjects(live(overrides=Overrides((PRO,)))), list[str]()
    monkeypatch.setattr(module, "_reference", lambda identity: worked_out.append(identity.subject))
    for number in range(100):
        subjects.of(caller(identity(plan="pro", jti=str(number)), tenant="gold", subject=str(number)))
    assert worked_out == ["0"]


# --- the HTTP fields --------------------------------------------------------------------------------------------------


async def test_nothing_is_told_unless_the_operator_wants_it() -> None:
    at = LimiterDesk(policy("calls"))
    assert await at.limiter.on_request(ALICE, HERE, "reports", "tools/call") == ((), None)
    with pytest.raises(RateLimitExceeded) as refusal:
        await at.limiter.on_request(ALICE, HERE, "reports", "tools/call")
    assert refusal.value.quota == ()


async def test_every_policy_that_refuses_is_told_the_scarcest_first() -> None:
    at = LimiterDesk(
        policy("calls", 20, 0.2),
        policy("heavy", 2, 6.0),
        policy("shadow", 1, shadow=True),
        exposes_quota=True,
    )
    assert (await at.limiter.on_request(ALICE, HERE, "reports", "tools/call"))[0] == (
        ("RateLimit-Policy", '"heavy";q=2;w=12, "calls";q=20;w=4'),
        ("RateLimit", '"heavy";r=1;t=6, "calls";r=19;t=1'),
    )


async def test_a_refusal_tells_it_too() -> None:
    at = LimiterDesk(policy("calls", 1, 10.0), policy("all", 5, 1.0), exposes_quota=True)
    await at.asks()
    at.clock.advance(timedelta(seconds=2.5))
    with pytest.raises(RateLimitExceeded) as refusal:
        await at.limiter.on_request(ALICE, HERE, "reports", "tools/call")
    assert refusal.value.quota == (
        ("RateLimit-Policy", '"calls";q=1;w=10, "all";q=5;w=5'),
        ("RateLimit", '"calls";r=0;t=8, "all";r=5;t=0'),
    )


async def test_where_all_policies_are_shadows_there_is_nothing_to_tell() -> None:
    at = LimiterDesk(policy("shadow", shadow=True), exposes_quota=True)
    assert await at.limiter.on_request(ALICE, HERE, "reports", "tools/call") == ((), None)


def test_a_hair_too_much_is_no_second_more() -> None:
    limit = RateLimit(every=0.1, burst=30)
    demand = Demand("k", limit, 1, policy("p"))
    fields = quota_fields((demand,), (RateVerdict(True, 0, 0.0, 3.0000000000000004),))
    assert dict(fields)["RateLimit"] == '"p";r=0;t=3'
    assert dict(fields)["RateLimit-Policy"] == '"p";q=30;w=3'
