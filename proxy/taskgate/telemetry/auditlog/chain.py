"""The hash chain of audit lines: `Chain` numbers, links and signs them.

A written line is canonical JSON: sorted keys, no spaces. `prev` is the SHA-256 of the line before,
without its newline. A `Signer` signs lines, and a `KeyRing` checks signatures. A signature is in
`data.signature`, and covers the line without that member. A line names its key by an id, a digest
of the key; no text or message has anything else of a key. `ChainWriter` extends a chain and
`verification` checks one.

Only a key in PEM form loads `cryptography`: it takes 10 MiB of memory, and most logs have no such
key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest, digest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import orjson

from taskgate.telemetry.auditlog.formats.renderer import native_part

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

HMAC: Final = "hmac-sha256"
ED25519: Final = "ed25519"
_PURPOSE: Final = b"taskgate: signed lines of the audit log"
_NAMING: Final = b"taskgate: id of a key of the audit log"
_ID_BYTES: Final = 8


class SigningKeyError(Exception):
    """A PEM text holds no usable Ed25519 key; the message quotes nothing of it."""


class Signer(Protocol):
    """Signs lines."""

    @property
    def algorithm(self) -> str:
        """`hmac-sha256` or `ed25519`."""
        ...

    @property
    def key_id(self) -> str:
        """16 hexadecimal digits."""
        ...

    def sign(self, text: bytes) -> str:
        """The signature, in hexadecimal digits."""
        ...


class HmacSigner:
    """Signs with the key of the log (HMAC): each holder of the key can sign and check."""

    algorithm = HMAC

    def __init__(self, key: bytes) -> None:
        # A derived key: the given one is the key of digests of tasks and arguments.
        self._key = digest(key, _PURPOSE, sha256)
        self.key_id = _id_of(self._key)

    def sign(self, text: bytes) -> str:
        return digest(self._key, text, sha256).hex()

    def is_valid(self, text: bytes, signature: str) -> bool:
        """Whether this key made the signature."""
        return compare_digest(self.sign(text).encode(), signature.encode())


class Ed25519Signer:
    """Signs with a private Ed25519 key; its public half is enough to check."""

    algorithm = ED25519

    def __init__(self, pem: bytes) -> None:
        """Raises SigningKeyError."""
        self._key = _private(pem)
        self.key_id = _id_of(self._key.public_key().public_bytes_raw())

    def sign(self, text: bytes) -> str:
        return self._key.sign(text).hex()


class _Ed25519Verifier:
    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.key_id = _id_of(key.public_bytes_raw())

    def is_valid(self, text: bytes, signature: str) -> bool:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

        try:
            self._key.verify(bytes.fromhex(signature), text)
        except (InvalidSignature, ValueError):
            return False
        return True


class KeyRing:
    """The keys to check signatures with; may be empty."""

    def __init__(self, *, keys: tuple[bytes, ...] = (), pems: tuple[bytes, ...] = ()) -> None:
        """`keys` are from key files.

        `pems` are Ed25519 keys, private or public. Raises SigningKeyError.
        """
        verifiers: list[HmacSigner | _Ed25519Verifier] = [HmacSigner(key) for key in keys]
        verifiers += [_Ed25519Verifier(_public(pem)) for pem in pems]
        self._verifiers: Mapping[str, HmacSigner | _Ed25519Verifier] = {each.key_id: each for each in verifiers}

    def __bool__(self) -> bool:
        return bool(self._verifiers)

    def has(self, key_id: str) -> bool:
        """Whether the ring has the key."""
        return key_id in self._verifiers

    def is_valid(self, key_id: str, text: bytes, signature: str) -> bool:
        """Whether a key of the ring signed the text; the ring must have the key."""
        return self._verifiers[key_id].is_valid(text, signature)


def signer_of(key: bytes, pem: bytes | None) -> Signer:
    """A signer with the Ed25519 key, or without one with the key of the log.

    Raises SigningKeyError.
    """
    return HmacSigner(key) if pem is None else Ed25519Signer(pem)


def _private(pem: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise SigningKeyError("must hold a private key in PEM form and without a passphrase") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyError("must hold an Ed25519 key")
    return key


def _public(pem: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    if b"PRIVATE KEY" in pem:
        return _private(pem).public_key()
    try:
        key = load_pem_public_key(pem)
    except ValueError:
        raise SigningKeyError("must hold a key in PEM form") from None
    if not isinstance(key, Ed25519PublicKey):
        raise SigningKeyError("must hold an Ed25519 key")
    return key


def _id_of(material: bytes) -> str:
    return digest(_NAMING, material, sha256)[:_ID_BYTES].hex()


# --- the chain -------------------------------------------------------------------------------------------------------


GENESIS: Final = "0" * 64
"""`prev` of the first line."""
CHAIN_STARTED: Final = "audit.chain_started"
CHECKPOINT: Final = "audit.checkpoint"
GAP: Final = "audit.gap"
SIGNED_EVENTS: Final = frozenset({CHAIN_STARTED, CHECKPOINT, GAP})


class ChainHead(NamedTuple):
    """The end of a chain: number and digest of its last line; 0 and GENESIS before the first."""

    seq: int
    digest: str


EMPTY_CHAIN: Final = ChainHead(0, GENESIS)


def canonical(document: Mapping[str, Any]) -> bytes:
    """The bytes of a line, without its newline.

    Raises TypeError for values that JSON does not have.
    """
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def digest_of(line: bytes) -> str:
    """`prev` of the line after this one."""
    return sha256(line).hexdigest()


def head_of(line: bytes) -> ChainHead | None:
    """The head of a chain that ends with this line; None when it is not an audit line."""
    own = parse_line(line)
    return None if own is None else ChainHead(own["seq"], digest_of(line))


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The native part of a written line, in any format; None when it is not an audit line."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    own = native_part(document) if isinstance(document, dict) else None
    if own is None or not _is_number(own.get("seq")) or not isinstance(own.get("event"), str):
        return None
    return own


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_Item = TypeVar("_Item")


class Chain:
    """The maker of chained lines from documents, with the end of the chain.

    `_last` is the last line while its digest is not computed yet. `_end` computes it when the next
    line or the head needs it.
    """

    def __init__(self, head: ChainHead, signer: Signer | None) -> None:
        """Without a `signer`, lines are numbered, but neither linked nor signed."""
        self._seq, self._digest = head
        self._last: bytes | None = None
        self._signer = signer

    @property
    def head(self) -> ChainHead:
        """The current end."""
        return ChainHead(self._seq, self._end())

    def set_signer(self, signer: Signer | None) -> None:
        """Sign with another key from now on."""
        self._signer = signer

    def move_to(self, head: ChainHead) -> None:
        """Continue after another head: the one that an opened sink has found."""
        (self._seq, self._digest), self._last = head, None

    def add_lines(
        self, items: Iterable[_Item], line_of: Callable[[_Item, int, bytes], bytes | None], lines: list[bytes]
    ) -> None:
        """Append to `lines` the next lines, one of each item, up to the first item without one.

        `line_of` returns the canonical line, without a signature, from an item, `seq` and `prev`
        (JSON text). It is a method of `LineTemplates`; `add` is the way for documents. If it raises,
        the lines made before stay.
        """
        is_linked, seq = self._signer is not None, self._seq
        end = self._end() if is_linked else ""
        link = b'"' + end.encode() + b'"' if is_linked else b"null"
        try:
            for item in items:
                line = line_of(item, seq + 1, link)
                if line is None:
                    return
                lines.append(line)
                seq += 1
                if is_linked:
                    end = sha256(line).hexdigest()
                    # Three times as fast as by a format.
                    link = b'"' + end.encode() + b'"'
        finally:
            if seq > self._seq:
                self._seq, self._digest = seq, end
                self._last = None if is_linked else lines[-1]

    def add(self, document: dict[str, Any]) -> bytes:
        """Turn a rendered event into the next line, with its newline; changes the document.

        Raises TypeError for values that JSON does not have; then the chain is unchanged.
        """
        # A part of the document itself: what is set here is in the line.
        own = native_part(document)
        assert own is not None, "a rendered event has a native part"
        own["seq"] = self._seq + 1
        own["prev"] = None if self._signer is None else self._end()
        if self._signer is not None and own["event"] in SIGNED_EVENTS:
            line = self._signed(document, own, self._signer)
        else:
            line = canonical(document)
        self._seq += 1
        self._last = line
        return line + b"\n"

    def _end(self) -> str:
        if self._last is not None:
            self._digest, self._last = sha256(self._last).hexdigest(), None
        return self._digest

    def _signed(self, document: dict[str, Any], own: dict[str, Any], signer: Signer) -> bytes:
        # A copy: several sinks render an event with the same `data`.
        own["data"] = {**own["data"], "algorithm": signer.algorithm, "key": signer.key_id}
        own["data"]["signature"] = signer.sign(canonical(document))
        return canonical(document)


def split_signature(line: bytes) -> tuple[bytes, str, str] | None:
    """The signed text of a line, the id of the key, and the signature; None without a signature.

    A line that is not canonical counts as unsigned: taskgate did not write it in that form. Raises
    JSONDecodeError if it is not JSON.
    """
    document = orjson.loads(line)
    own = native_part(document)
    if own is None or canonical(document) != line or not isinstance(own.get("data"), dict):
        return None
    signature, key = own["data"].pop("signature", None), own["data"].get("key")
    if not isinstance(signature, str) or not isinstance(key, str):
        return None
    return canonical(document), key, signature
