"""The auth context: the identity of a caller, reduced to what tasks and sessions are bound to.

Its key is a keyed digest of the identity (`ContextKeys`). Without the deployment key a digest
reveals nothing; with the key one can check whether it belongs to a given identity.
"""

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from taskgate.domain.record import CallerNames, OwnerKey

Claims = Mapping[str, object]
"""The payload of a token, as it was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The caller in a verified token, or of an API key.

    `issuer_name` is the operator's name of the issuer. The token is refused from `expires_at` on,
    which includes the leeway for the issuer's clock; an API key may have no end. `method` is how
    the caller was authenticated, for reports.
    """

    issuer_name: str
    issuer: str
    subject: str
    client_id: str | None
    tenant: str | None
    scopes: frozenset[str]
    expires_at: datetime | None
    claims: Claims = field(repr=False)
    method: str = "jwt"

    @property
    def names(self) -> CallerNames:
        """What operators see of it."""
        return CallerNames(self.issuer_name, self.subject, self.client_id, self.tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthContext:
    """One caller; `key` is not secret and reveals no name.

    `subject` is the reference of its person or service, which may have several clients. Each client
    is a caller of its own. It is `key` where an issuer and a subject are not both bound. `names` are for operators.
    `previous_key` is the caller's key under the deployment key that is being replaced, and None if
    none is. With it earlier tasks are found. `identity` is what the token says, and `token` its text;
    both are None without authentication. An API key has no `token`, so it goes nowhere.
    """

    key: str
    previous_key: str | None = None
    identity: Identity | None = None
    token: str | None = field(default=None, repr=False)
    subject: str = field(default="", compare=False)
    names: CallerNames | None = field(init=False, repr=False, compare=False)
    owners: Callable[[str], tuple[OwnerKey, ...]] = field(init=False, repr=False, compare=False)
    """Return for a mount every owner key under which tasks of this caller are found, the current one
    first. It is a dictionary's, as each request about a task asks for it."""

    def __post_init__(self) -> None:
        keys = (self.key,) if self.previous_key is None else (self.key, self.previous_key)
        object.__setattr__(self, "owners", _Owners(keys).__getitem__)
        object.__setattr__(self, "names", None if self.identity is None else self.identity.names)
        if not self.subject:
            object.__setattr__(self, "subject", self.key)

    @property
    def expires_at(self) -> datetime | None:
        """When answers to requests with this token must end; None for no end."""
        return None if self.identity is None else self.identity.expires_at

    def owner(self, mount: str) -> OwnerKey:
        """The owner key at one mount: ids of one mount are unknown at another (I-ISO-6)."""
        return OwnerKey(self.key, mount)


class _Owners(dict[str, tuple[OwnerKey, ...]]):
    """The owner keys of the caller with these keys by mount, made when a mount is asked for first."""

    __slots__ = ("_keys",)

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__()
        self._keys = keys

    def __missing__(self, mount: str) -> tuple[OwnerKey, ...]:
        found = self[mount] = tuple(OwnerKey(key, mount) for key in self._keys)
        return found


class Credential(Protocol):
    """A token or an API key that was found good: `jwt.VerifiedToken`, `api_keys.VerifiedKey`."""

    @property
    def context(self) -> AuthContext:
        """Its caller."""
        ...

    @property
    def is_revoked(self) -> bool:
        """Whether a reload has removed it, so that what was begun with it ends at once."""
        ...

    def recall(self) -> bool:
        """Whether it is still good. If so, it counts as used now, and is reported."""
        ...


ANONYMOUS = AuthContext(key="anonymous")
"""All callers without authentication: they share one context, and cannot guess others' ids."""


# --- the key of a context ---------------------------------------------------------------------------------------------

CONTEXT_PARTS: Final = ("iss", "tenant", "sub", "client_id")
"""The parts of an identity that can bind an auth context, in the order of the digest."""
_PERSON: Final = frozenset({"iss", "sub"})
"""The parts of an identity that one person has in common, whatever its client."""
KEY_LENGTH: Final = 22
"""Characters of a context's key: 132 bits, and longer than any name of a special context."""


class ContextKeys:
    """The deployment key, the one it replaces, and the parts of an identity that bind a context.

    The operator gives the deployment key to all gateways of one deployment. `bind` are the parts
    (`CONTEXT_PARTS`) by which callers differ: two identities with equal parts are one caller. The
    configuration has checked them, and `key_file` the length of the keys.
    """

    __slots__ = ("_bound", "_current", "_has_subject", "_previous")

    def __init__(self, current: bytes, previous: bytes | None = None, bind: Collection[str] = CONTEXT_PARTS) -> None:
        # A copy costs a third of a new HMAC, which starts with the key.
        self._current = hmac.new(current, digestmod="sha256")
        self._previous = None if previous is None else hmac.new(previous, digestmod="sha256")
        self._bound = frozenset(bind)
        self._has_subject = self._bound >= _PERSON

    def bind(self, identity: Identity, token: str | None) -> AuthContext:
        """The auth context of an identity; it depends on the bound parts alone.

        Parts must be free of surrogates, as those from `read_claims` are: a pair of them has the
        JSON of another character.
        """
        text = _canonical(identity, self._bound)
        previous = None if self._previous is None else _context_key(self._previous, text)
        # Without a bound subject, callers that differ by no more than their clients are not known to be one person.
        subject = _context_key(self._current, _canonical(identity, _PERSON)) if self._has_subject else ""
        return AuthContext(
            key=_context_key(self._current, text),
            previous_key=previous,
            identity=identity,
            token=token,
            subject=subject,
        )


def _canonical(identity: Identity, bound: Collection[str]) -> bytes:
    """All parts in their order as JSON in which every text has one spelling.

    Null for a part that is not bound.
    """
    values = (identity.issuer, identity.tenant, identity.subject, identity.client_id)
    texts = [value if part in bound else None for part, value in zip(CONTEXT_PARTS, values, strict=True)]
    return _ENCODER.encode(texts).encode("ascii")


def _context_key(keyed: hmac.HMAC, text: bytes) -> str:
    digest = keyed.copy()
    digest.update(text)
    return urlsafe_b64encode(digest.digest())[:KEY_LENGTH].decode("ascii")


_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))
