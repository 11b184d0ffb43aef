"""What hosts may be told of what is left."""

from datetime import timedelta

import pytest

from taskgate.admission.rates import OverRate, quota_fields
from taskgate.domain.rates import Demand, RateLimit, RateVerdict
from unit.admission.gates import ALICE, HERE, Gate, policy


class TestQuota:
    """The fields that tell hosts what is left, where the operator wants that."""

    async def test_nothing_is_told_unless_the_operator_wants_it(self) -> None:
        at = Gate(policy("calls"))
        assert await at.gate.request(ALICE, HERE, "reports", "tools/call") == ()
        with pytest.raises(OverRate) as refusal:
            await at.gate.request(ALICE, HERE, "reports", "tools/call")
        assert refusal.value.quota == ()

    async def test_every_policy_that_refuses_is_told_the_scarcest_first(self) -> None:
        at = Gate(
            policy("calls", 20, 0.2),
            policy("heavy", 2, 6.0),
            policy("shadow", 1, shadow=True),
            exposes_quota=True,
        )
        assert await at.gate.request(ALICE, HERE, "reports", "tools/call") == (
            ("RateLimit-Policy", '"heavy";q=2;w=12, "calls";q=20;w=4'),
            ("RateLimit", '"heavy";r=1;t=6, "calls";r=19;t=1'),
        )

    async def test_a_refusal_tells_it_too(self) -> None:
        at = Gate(policy("calls", 1, 10.0), policy("all", 5, 1.0), exposes_quota=True)
        await at.asks()
        at.clock.advance(timedelta(seconds=2.5))
        with pytest.raises(OverRate) as refusal:
            await at.gate.request(ALICE, HERE, "reports", "tools/call")
        assert refusal.value.quota == (
            ("RateLimit-Policy", '"calls";q=1;w=10, "all";q=5;w=5'),
            ("RateLimit", '"calls";r=0;t=8, "all";r=5;t=0'),
        )

    async def test_where_all_policies_are_shadows_there_is_nothing_to_tell(self) -> None:
        at = Gate(policy("shadow", shadow=True), exposes_quota=True)
        assert await at.gate.request(ALICE, HERE, "reports", "tools/call") == ()

    def test_a_hair_too_much_is_no_second_more(self) -> None:
        limit = RateLimit(every=0.1, burst=30)
        demand = Demand("k", limit, 1, policy("p"))
        fields = quota_fields((demand,), (RateVerdict(True, 0, 0.0, 3.0000000000000004),))
        assert dict(fields)["RateLimit"] == '"p";r=0;t=3'
        assert dict(fields)["RateLimit-Policy"] == '"p";q=30;w=3'
