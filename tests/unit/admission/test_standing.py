"""Where callers stand: tenants never meet, and what is remembered of somebody is that one's alone."""

from dataclasses import replace
from typing import Any

import pytest

from taskgate.admission import standing as module
from taskgate.admission.standing import QuotaSubject, QuotaSubjects
from taskgate.auth.context import ANONYMOUS, AuthContext, Identity
from taskgate.domain.limits import Override, Overrides
from unit.admission.live_rules import live, rules
from unit.auth.identities import identity

GOLD = Override(tenant="gold", caps={"tasks_per_context": 50})
PRO = Override(claims={"plan": frozenset({"pro"})}, caps={"tasks_per_context": 20})


def caller(of: Identity | None = None, **changes: Any) -> AuthContext:
    return AuthContext(key="alice", identity=replace(of or identity(), **changes))


def test_a_tenant_is_the_same_one_for_all_its_callers() -> None:
    standings = QuotaSubjects(live())
    first = standings.of(caller(tenant="gold")).tenant
    assert first is not None
    assert first == standings.of(caller(tenant="gold", subject="bob")).tenant
    assert first == QuotaSubjects(live()).of(caller(tenant="gold")).tenant


def test_tenants_of_the_same_name_at_two_issuers_are_two() -> None:
    standings = QuotaSubjects(live())
    tenants = {
        standings.of(caller(tenant=tenant, issuer=issuer)).tenant
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
    standings = QuotaSubjects(live(overrides=Overrides((GOLD, PRO))))
    assert standings.of(caller(tenant="gold")).override is GOLD
    assert standings.of(caller(identity(plan="pro"))).override is PRO
    assert standings.of(caller()).override is None
    assert standings.of(ANONYMOUS).override is None


def test_a_callers_own_share_of_a_server_is_its_overrides() -> None:
    gold = Override(tenant="gold", calls=24)
    standings = QuotaSubjects(live(overrides=Overrides((gold, PRO))))
    assert [standings.calls(each) for each in (caller(tenant="gold"), caller(identity(plan="pro")), ANONYMOUS)] == [
        24,
        None,
        None,
    ]


def test_an_override_for_all_is_for_who_has_no_identity_too() -> None:
    everybody = Override(caps={"tasks_per_context": 2})
    assert QuotaSubjects(live(overrides=Overrides((everybody,)))).of(ANONYMOUS).override is everybody


def test_a_newer_token_with_other_claims_stands_elsewhere() -> None:
    """The same context, told apart by what its tokens say: what a refresh took away is gone at once."""
    standings = QuotaSubjects(live(overrides=Overrides((PRO,))))
    assert standings.of(caller(identity(plan="pro"))).override is PRO
    assert standings.of(caller(identity(plan="free"))).override is None


def test_other_rules_count_from_the_moment_they_are_there() -> None:
    at = live(overrides=Overrides((GOLD,)))
    standings, gold = QuotaSubjects(at), caller(tenant="gold")
    assert standings.of(gold).override is GOLD
    at.now = rules(overrides=Overrides())
    assert standings.of(gold).override is None
    assert standings.of(ANONYMOUS).override is None


def test_what_is_known_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    standings, one = QuotaSubjects(live()), caller(tenant="gold")
    standings.of(one)
    monkeypatch.setattr(module, "_reference", lambda _: pytest.fail("worked out again"))
    assert standings.of(one).tenant is not None


def test_callers_without_end_are_not_remembered_without_end() -> None:
    standings = QuotaSubjects(live())
    for number in range(12_000):
        standings.of(caller(tenant=str(number)))
    assert len(standings._known) == 10_000


def test_callers_who_differ_in_nothing_that_matters_are_remembered_as_one() -> None:
    standings = QuotaSubjects(live(overrides=Overrides((PRO,))))
    for number in range(100):
        standings.of(caller(identity(plan="pro", jti=str(number)), tenant="gold", subject=str(number)))
    assert len(standings._known) == 1
