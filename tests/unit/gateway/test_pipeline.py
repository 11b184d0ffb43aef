"""The order of the first steps of a request."""

from typing import Any, cast

import pytest

from taskgate.auth.context import AuthContext
from taskgate.domain.rates import RateEvent, RatePolicy, RateScope
from taskgate.errors import AuthReason, Unauthenticated
from taskgate.gateway.pipeline import Gateway, GatewayRules
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.streams.event_limits import EventLimits
from unit.admission.limiter_desk import LimiterDesk, policy
from unit.admission.test_callers import MOUNT
from unit.lifecycle.asked import Asked


class Refusing:
    """Authenticates no request, and knows none."""

    async def identify(self, exchange: object, mount: object) -> AuthContext:
        raise Unauthenticated(AuthReason.SIGNATURE)

    def is_known(self, exchange: object, mount: object) -> bool:
        return False


class Modern:
    dialect = ModernDownstream("1")


@pytest.mark.parametrize(
    ("present", "status", "is_looked_up"),
    [
        (policy("calls"), 401, False),
        (policy("tokens", 9, scope=RateScope.IP, event=RateEvent.AUTH_FAILURE), 401, True),
        (policy("requests", 1, scope=RateScope.IP, before_auth=True, cost=2), 429, True),
    ],
)
async def test_the_address_of_a_request_is_found_out_before_its_caller_only_where_something_is_counted_by_it(
    present: RatePolicy, status: int, is_looked_up: bool
) -> None:
    at, host = LimiterDesk(present), Asked()
    gateway = Gateway(
        mounts={MOUNT.path: MOUNT},
        callers=Refusing(),
        gate=at.limiter,
        rules=GatewayRules(
            max_depth=9,
            max_members=9,
            strict_names=False,
            live=at.live,
            access=cast("Any", None),
            in_flight=cast("Any", None),
            pressure=cast("Any", None),
            event_limits=EventLimits(),
        ),
        legacy=cast("Any", None),
        modern=cast("Any", Modern()),
        task_requests=cast("Any", None),
        event_sink=at.emitted,
        clock=at.clock,
    )
    reply = await gateway.answer(host)
    assert (reply.status, host.looked > 0) == (status, is_looked_up)
