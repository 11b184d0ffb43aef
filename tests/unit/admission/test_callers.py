"""Who asks: one token in one header, judged for the mount that is asked, or everybody."""

from dataclasses import replace
from typing import Any, cast

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from taskgate.admission.callers import BearerCallers, principal_of
from taskgate.admission.concurrency import Bulkhead
from taskgate.admission.mounts import Mount
from taskgate.admission.security_alerts import SecurityLog
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.auth.jwt import TokenVerifier, VerifiedToken
from taskgate.errors import AuthReason, KeysUnavailable, Unauthenticated
from taskgate.streams.exchange import Admission, HttpMethod
from taskgate.upstream.base import Upstream
from taskgate.upstream.calls import Principal
from unit.auth.identities import identity
from unit.lifecycle.asked import Asked

RESOURCE = "https://mcp.example.com/reports/mcp"
MOUNT = Mount(
    name="reports",
    path="/reports/mcp",
    upstream=cast("Upstream", None),
    offers_tasks=True,
    resource=RESOURCE,
    bulkhead=cast("Bulkhead", None),
)
ALICE = AuthContext(key="alice")
GOOD = VerifiedToken(cast("TokenVerifier", None), (b"", RESOURCE), ALICE, lambda: None, EPOCH, EPOCH)


class ScriptedJudge:
    """Finds every token good, or raises what it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self._error = error

    async def verify(self, token: str, *, audience: str) -> VerifiedToken:
        self.asked.append((token, audience))
        if self._error is not None:
            raise self._error
        return GOOD


def asked(*authorization: str, query: str = "") -> Asked:
    return Asked(Admission(method=HttpMethod.POST, path=MOUNT.path, authorization=authorization, query=query))


def bearers(judge: ScriptedJudge, refused: list[Any]) -> BearerCallers:
    return BearerCallers(judge, refused.append, SecurityLog(ManualClock()))


async def test_a_token_is_judged_for_the_address_of_the_mount() -> None:
    judge, refused, exchange = ScriptedJudge(), list[AuthReason](), asked("Bearer a.b.c")
    assert await bearers(judge, refused).identify(exchange, MOUNT) is ALICE
    assert exchange.head.token is GOOD
    assert judge.asked == [("a.b.c", RESOURCE)]
    assert refused == []


@pytest.mark.parametrize(
    ("exchange", "reason"),
    [
        pytest.param(asked(), AuthReason.MISSING, id="none"),
        pytest.param(asked("Bearer a", "Bearer a"), AuthReason.MALFORMED, id="two headers"),
        pytest.param(asked("Basic a"), AuthReason.SCHEME, id="another scheme"),
        pytest.param(asked(query="access_token=a"), AuthReason.QUERY_TOKEN, id="in the query"),
        pytest.param(asked("Bearer a", query="access_token=b"), AuthReason.QUERY_TOKEN, id="in both"),
    ],
)
async def test_whoever_does_not_send_one_token_in_one_header_is_heard_of_and_not_judged(
    exchange: Asked, reason: AuthReason, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "taskgate.security")
    judge, refused = ScriptedJudge(), list[AuthReason]()
    with pytest.raises(Unauthenticated) as refusal:
        await bearers(judge, refused).identify(exchange, MOUNT)
    assert (refusal.value.reason, refusal.value.token_sent) == (reason.value, reason is not AuthReason.MISSING)
    assert refused == [reason]
    assert judge.asked == []
    assert told(caplog) == [(reason.value, "reports", "192.0.2.7")]


@pytest.mark.parametrize("error", [Unauthenticated(AuthReason.EXPIRED), KeysUnavailable("corp")])
async def test_what_the_judge_says_is_passed_on_and_heard_of_only_from_the_judge(
    error: Unauthenticated | KeysUnavailable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "taskgate.security")
    refused: list[Any] = []
    with pytest.raises(type(error)) as raised:
        await bearers(ScriptedJudge(error), refused).identify(asked("Bearer a"), MOUNT)
    assert raised.value is error
    assert refused == []
    assert told(caplog) == [(error.reason, "reports", "192.0.2.7")]


async def test_a_refused_audience_is_told_with_what_was_expected_and_what_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "taskgate.security")
    error = Unauthenticated(AuthReason.AUDIENCE, issuer="corp", expected=("https://a",), found=("https://b", "c"))
    with pytest.raises(Unauthenticated):
        await bearers(ScriptedJudge(error), []).identify(asked("Bearer a"), MOUNT)
    [line] = [vars(record) for record in caplog.records]
    assert (line["issuer"], line["expected"], line["found"]) == ("corp", ("https://a",), ("https://b", "c"))


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    """Reason, mount and address of each line about somebody who was not let in."""
    lines = [vars(record) for record in caplog.records if record.name == "taskgate.security"]
    return [(line["reason"], line["upstream"], line["address"]) for line in lines]


def test_servers_may_be_told_of_a_caller_what_its_token_says() -> None:
    somebody = replace(identity("read"), client_id="desk")
    assert principal_of(AuthContext(key="k", identity=somebody, token="planted")) == Principal(
        context="k",
        subject="alice",
        issuer=somebody.issuer,
        client="desk",
        token="planted",
        scopes=frozenset({"read"}),
        good_until=somebody.expires_at,
    )
    assert principal_of(ANONYMOUS) == Principal(context="anonymous")
    assert "planted" not in repr(principal_of(AuthContext(key="k", identity=somebody, token="planted")))
