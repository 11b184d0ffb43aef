"""Good tokens are told whose they are, remembered for a while, and never longer than they are good."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from jwt import PyJWK

from helpers.manual_clock import EPOCH, ManualClock
from requirements import covers
from taskgate.auth.claims import IssuerSettings
from taskgate.auth.context import CONTEXT_PARTS
from taskgate.auth.jwt import OTHER
from taskgate.errors import AuthReason, KeysUnavailable, Unauthenticated
from unit.auth.tokens import (
    ALGORITHMS,
    BINDING,
    CORP,
    ISSUER,
    MOUNT,
    NOW,
    Gate,
    KnownKeys,
    all_keys,
    claims,
    header,
    public,
    token,
)

LABS = IssuerSettings(name="labs", issuer="https://labs.example.com")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_good_token_stands_for_an_auth_context(algorithm: str) -> None:
    gate, sent = Gate(), token(signed_as=algorithm)
    context = await gate.verify(sent)
    assert context.identity is not None
    assert (context.identity.subject, context.identity.claims) == ("alice", claims())
    assert context == BINDING.bind(context.identity, sent)
    assert gate.keys.asked == [(algorithm, algorithm)]
    assert gate.heard == [("corp", "ok")]


async def test_every_key_is_tried_for_a_token_that_names_none() -> None:
    keys = KnownKeys(public("ES256", 1), public("ES256"))
    gate = Gate((CORP, keys))
    assert (await gate.who(token(header(kid=...)))).subject == "alice"
    assert keys.asked == [(None, "ES256")]


async def test_each_issuer_is_judged_by_its_own_keys_and_rules() -> None:
    gate = Gate((CORP, KnownKeys(public("ES256"))), (LABS, KnownKeys(public("ES256", 1))))
    of_labs = claims(iss=LABS.issuer)
    assert (await gate.who(token())).issuer_name == "corp"
    assert (await gate.who(token(payload=of_labs, number=1))).issuer_name == "labs"
    assert await gate.refused(token(number=1)) == AuthReason.SIGNATURE
    assert await gate.refused(token(payload=of_labs)) == AuthReason.SIGNATURE
    assert [issuer for issuer, _ in gate.heard] == ["corp", "labs", "corp", "labs"]


@covers("A-AUTH-17")
async def test_an_issuer_that_is_not_configured_is_named_to_nobody() -> None:
    gate = Gate()
    assert await gate.refused(token(payload=claims(iss="https://evil.example.com/"))) == AuthReason.ISSUER
    assert gate.keys.asked == []
    assert gate.heard == [(OTHER, "issuer")]


async def test_a_token_that_cannot_be_judged_is_not_refused() -> None:
    gate = Gate((CORP, KnownKeys(unavailable=True)))
    with pytest.raises(KeysUnavailable):
        await gate.verify(token())
    assert gate.heard == [("corp", "jwks_unavailable")]


async def test_time_that_keys_take_to_come_counts() -> None:
    clock = ManualClock()

    class SlowKeys(KnownKeys):
        async def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
            clock.advance(timedelta(minutes=10))
            return await super().find(kid, algorithm)

    assert await Gate((CORP, SlowKeys(*all_keys())), clock=clock).refused(token()) == AuthReason.EXPIRED


async def test_the_clock_that_is_handed_in_is_the_only_one() -> None:
    gate = Gate(clock=ManualClock(EPOCH - timedelta(days=9000)))
    assert await gate.refused(token()) == AuthReason.NOT_YET_VALID
    gate.clock.set_wall(EPOCH + timedelta(days=9000))
    assert await gate.refused(token()) == AuthReason.EXPIRED
    gate.clock.set_wall(EPOCH)
    assert await gate.verify(token())


# --- what binds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "payload"), [("tenant", claims(org=["s3cret"])), ("client_id", claims(org="acme", client_id=["s3cret"]))]
)
async def test_the_log_names_the_setting_whose_claim_is_missing_and_nothing_of_the_token(
    part: str, payload: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate((IssuerSettings(name="corp", issuer=ISSUER, tenant_claim="org"), KnownKeys(*all_keys())))
    with pytest.raises(Unauthenticated) as refusal:
        await gate.verify(token(payload=payload))
    assert type(refusal.value) is Unauthenticated
    assert (refusal.value.reason, refusal.value.issuer) == (AuthReason.CLAIM, "corp")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("taskgate.auth", "WARNING")
    assert f"auth.issuers.corp.claims.{part}" in record.getMessage()
    assert not [word for word in ("s3cret", "alice", "acme") if word in record.getMessage()]


async def test_a_client_may_be_missing_where_the_operator_does_not_bind_it() -> None:
    sent = token(payload=claims(client_id=...))
    assert await Gate().refused(sent) == AuthReason.CLAIM
    assert (await Gate(bound=tuple(part for part in CONTEXT_PARTS if part != "client_id")).who(sent)).client_id is None


async def test_the_same_caller_is_one_context_whatever_token_it_sends() -> None:
    gate = Gate()
    contexts = [await gate.verify(token(payload=claims(jti=jti, scope=jti, exp=NOW + 60))) for jti in ("a", "b")]
    assert contexts[0].key == contexts[1].key != (await gate.verify(token(payload=claims(sub="bob")))).key


# --- memory -----------------------------------------------------------------------------------------------------------


async def test_a_good_token_is_checked_once_and_told_of_each_time() -> None:
    gate, sent = Gate(), token()
    assert await gate.verify(sent) == await gate.verify(sent)
    assert gate.keys.asked == [("ES256", "ES256")]
    assert gate.heard == 2 * [("corp", "ok")]


async def test_it_is_told_whether_a_token_was_known_and_whose_it_is() -> None:
    gate, sent = Gate(), token()
    context = await gate.verify(sent)
    await gate.verify(sent)
    with pytest.raises(Unauthenticated):
        await gate.verify(f"{sent[:-4]}AAAA")
    assert gate.known == [(False, context), (True, None), (False, None)]


async def a_memory_of(gate: Gate, sent: str, audience: str = MOUNT) -> bool:
    """Whether a token that is good was taken without looking at it."""
    before = len(gate.keys.asked)
    assert await gate.verify(sent, audience)
    return len(gate.keys.asked) == before


async def test_a_memory_lasts_so_long_and_no_longer() -> None:
    gate, sent = Gate(), token()
    assert not await a_memory_of(gate, sent)
    gate.clock.advance(timedelta(seconds=59.999))
    assert await a_memory_of(gate, sent)
    gate.clock.advance(timedelta(seconds=0.001))
    assert not await a_memory_of(gate, sent)
    gate.clock.advance(timedelta(seconds=59))
    assert await a_memory_of(gate, sent)


async def test_a_memory_ends_with_the_token_and_its_leeway() -> None:
    gate, sent = Gate(), token(payload=claims(exp=NOW + 5))
    assert await gate.verify(sent)
    gate.clock.set_wall(EPOCH.replace(microsecond=0) + timedelta(seconds=34.999))
    assert await a_memory_of(gate, sent)
    gate.clock.advance(timedelta(seconds=0.001))
    assert await gate.refused(sent) == AuthReason.EXPIRED


async def test_a_memory_ends_when_the_token_becomes_too_old() -> None:
    keys, sent = KnownKeys(*all_keys()), token()
    gate = Gate((IssuerSettings(name="corp", issuer=ISSUER, max_token_age=timedelta(seconds=20)), keys))
    assert await gate.verify(sent)
    gate.clock.advance(timedelta(seconds=39))
    assert await gate.verify(sent)
    (_only_once,) = keys.asked
    gate.clock.advance(timedelta(seconds=1))
    assert await gate.refused(sent) == AuthReason.EXPIRED


async def test_a_token_without_an_end_in_sight_is_remembered_no_longer() -> None:
    gate, sent = Gate(), token(payload=claims(exp=253402300799))
    assert await gate.verify(sent)
    gate.clock.advance(timedelta(seconds=60))
    assert not await a_memory_of(gate, sent)


async def test_a_clock_that_was_set_back_makes_a_memory_worthless() -> None:
    gate, sent = Gate(), token(payload=claims(nbf=NOW))
    assert await gate.verify(sent)
    gate.clock.set_wall(EPOCH - timedelta(minutes=1))
    assert await gate.refused(sent) == AuthReason.NOT_YET_VALID


async def test_a_memory_is_of_one_mount() -> None:
    gate, both = Gate(), token(payload=claims(aud=[MOUNT, "https://other"]))
    assert await gate.verify(token())
    assert await gate.refused(token(), "https://other") == AuthReason.AUDIENCE
    assert not await a_memory_of(gate, both)
    assert not await a_memory_of(gate, both, "https://other")
    assert await a_memory_of(gate, both, "https://other")


async def test_the_token_that_was_used_last_is_forgotten_last() -> None:
    gate = Gate(cache_size=2)
    one, two, three = (token(payload=claims(sub=name)) for name in ("one", "two", "three"))
    await gate.verify(one)
    await gate.verify(two)
    assert await a_memory_of(gate, one)
    assert not await a_memory_of(gate, three)
    assert await a_memory_of(gate, one)
    assert await a_memory_of(gate, three)
    assert not await a_memory_of(gate, two)


async def test_a_token_that_had_to_be_checked_again_was_used_last() -> None:
    gate = Gate(cache_size=2)
    one, two, three = (token(payload=claims(sub=name)) for name in ("one", "two", "three"))
    await gate.verify(one)
    await gate.verify(two)
    gate.clock.advance(timedelta(seconds=60))
    await gate.verify(one)
    await gate.verify(three)
    assert await a_memory_of(gate, one)


async def test_a_token_that_made_room_for_another_is_recalled_by_nobody() -> None:
    gate = Gate(cache_size=1)
    one, two = (token(payload=claims(sub=name)) for name in ("one", "two"))
    first = await gate.verifier.verify(one, audience=MOUNT)
    assert first.recall()
    second = await gate.verifier.verify(two, audience=MOUNT)
    assert [first.recall(), second.recall(), first.recall()] == [False, True, False]


async def test_of_a_token_that_was_verified_twice_at_once_the_last_one_is_recalled() -> None:
    class FetchedKeys(KnownKeys):
        async def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
            await asyncio.sleep(0)
            return await super().find(kid, algorithm)

    gate, sent = Gate((CORP, FetchedKeys(*all_keys()))), token()
    found = await asyncio.gather(*(gate.verifier.verify(sent, audience=MOUNT) for _ in range(3)))
    assert [each.recall() for each in found] == [False, False, True]


@pytest.mark.parametrize("moved", [timedelta(seconds=60), timedelta(seconds=-1)], ids=["forward", "back"])
async def test_a_token_is_not_recalled_when_its_time_is_over_or_has_not_begun(moved: timedelta) -> None:
    gate = Gate()
    found = await gate.verifier.verify(token(), audience=MOUNT)
    gate.clock.set_wall(EPOCH + moved)
    assert not found.recall()
    gate.clock.set_wall(EPOCH)
    assert not found.recall()


@pytest.mark.parametrize("options", [{"cache_size": 0}, {"cache_ttl": timedelta(0)}])
async def test_there_need_be_no_memory(options: dict[str, Any]) -> None:
    gate, sent = Gate(**options), token()
    assert not await a_memory_of(gate, sent)
    assert not await a_memory_of(gate, sent)


async def test_refusals_are_not_remembered() -> None:
    gate, sent = Gate(), token(payload=claims(nbf=NOW + 31))
    assert await gate.refused(sent) == AuthReason.NOT_YET_VALID
    gate.clock.advance(timedelta(seconds=1))
    assert await gate.verify(sent)


async def test_the_same_token_many_times_at_once_is_good_each_time() -> None:
    gate = Gate()
    found = await asyncio.wait_for(asyncio.gather(*(gate.verify(token()) for _ in range(20))), 10)
    assert len({context.key for context in found}) == 1
    assert gate.heard == 20 * [("corp", "ok")]
