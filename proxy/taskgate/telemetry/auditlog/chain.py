"""The hash chain of audit lines: `Chain` numbers, links and signs them.

A written line is canonical JSON: sorted keys, no spaces. `prev` is the SHA-256 of the line before,
without its newline. A signature is in `data.signature`, and covers the line without that member.
`ChainWriter` extends a chain and `verification` checks one.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from taskgate.telemetry.auditlog.formats.renderer import native_part
from taskgate.telemetry.auditlog.signing import Signer

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


class Chain:
    """The maker of chained lines from documents, with the end of the chain.

    `_last` is the
    last line while its digest is not computed yet. `_end` computes it when the next line or the
    head needs it.
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

    @property
    def next_link(self) -> tuple[int, bytes]:
        """`seq` and `prev` of the next line; `prev` is JSON text.

        For `LineTemplates`, which write a line as text around these two values, and then pass it to
        `append_line`. `add` is the way for documents.
        """
        return self._seq + 1, b"null" if self._signer is None else f'"{self._end()}"'.encode()

    def append_line(self, line: bytes) -> None:
        """Take a canonical line that has the values of `next_link` and no signature."""
        self._seq += 1
        self._last = line

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
        self.append_line(line)
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
