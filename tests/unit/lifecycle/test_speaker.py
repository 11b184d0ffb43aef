"""What servers may be told of a caller."""

from datetime import UTC, datetime

from taskgate.admission.callers import principal_of
from taskgate.auth.context import ANONYMOUS, AuthContext, Identity
from taskgate.upstream.calls import Principal

EXPIRY = datetime(2026, 1, 2, tzinfo=UTC)
ALICE = Identity(
    issuer_name="corp",
    issuer="https://idp.example.com/",
    subject="alice",
    client_id="desk",
    tenant="acme",
    scopes=frozenset({"read"}),
    expires_at=EXPIRY,
    claims={"email": "alice@example.com"},
)


def test_a_caller_is_told_by_context_and_subject_and_their_token_kept_with_its_bounds() -> None:
    told = principal_of(AuthContext(key="key", previous_key="old", identity=ALICE, token="a token"))
    assert told == Principal(
        context="key",
        subject="alice",
        issuer="https://idp.example.com/",
        client="desk",
        token="a token",
        scopes=frozenset({"read"}),
        good_until=EXPIRY,
    )
    assert "a token" not in repr(told)


def test_of_anybody_there_is_only_the_one_context_to_tell() -> None:
    assert principal_of(ANONYMOUS) == Principal(context="anonymous")
