"""Verified identities as the tests of this folder need them."""

from datetime import timedelta

from helpers.manual_clock import EPOCH
from taskgate.auth.context import Identity


def identity(*scopes: str, **claims: object) -> Identity:
    """Somebody with these scopes and these claims."""
    return Identity(
        issuer_name="corp",
        issuer="https://idp.example.com/",
        subject="alice",
        client_id=None,
        tenant=None,
        scopes=frozenset(scopes),
        expires_at=EPOCH + timedelta(hours=1),
        claims=claims,
    )
