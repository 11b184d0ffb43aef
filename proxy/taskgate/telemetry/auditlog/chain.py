"""The chain: each line numbered and tied to the one before, and some of them signed.

A line as written is its canonical form: JSON with sorted keys and no spaces. `prev` is the SHA-256 of the line before,
newline excluded. A signature stands in `data.signature` of a line and is of the line without it. What must not live
here: files, threads, and what lines say otherwise.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from taskgate.telemetry.auditlog.formats.renderer import native_part
from taskgate.telemetry.auditlog.signing import Signer

GENESIS: Final = "0" * 64
"""What the first line has for `prev`."""
CHAIN_STARTED: Final = "audit.chain_started"
CHECKPOINT: Final = "audit.checkpoint"
GAP: Final = "audit.gap"
SIGNED_EVENTS: Final = frozenset({CHAIN_STARTED, CHECKPOINT, GAP})


class ChainHead(NamedTuple):
    """The end of a chain: the number of its last line, and the digest of that; 0 and GENESIS before there is any."""

    seq: int
    digest: str


EMPTY_CHAIN: Final = ChainHead(0, GENESIS)


def canonical(document: Mapping[str, Any]) -> bytes:
    """A line, without its newline. Raises TypeError for what JSON cannot say."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def digest_of(line: bytes) -> str:
    """What the next line has for `prev`."""
    return sha256(line).hexdigest()


def head_of(line: bytes) -> ChainHead | None:
    """The head of a chain that ends with that line; None for what is no line of a log."""
    own = parse_line(line)
    return None if own is None else ChainHead(own["seq"], digest_of(line))


def parse_line(line: bytes) -> dict[str, Any] | None:
    """What is ours of a line that was written, whatever its format; None for what is no line of a log."""
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
    """Ties documents together. Without links, lines are numbered alone."""

    def __init__(self, head: ChainHead, signer: Signer | None) -> None:
        """Without a `signer` there are no links and no signatures."""
        self._seq, self._digest = head
        self._last: bytes | None = None
        self._signer = signer

    @property
    def head(self) -> ChainHead:
        """Where it ends now."""
        return ChainHead(self._seq, self._end())

    def set_signer(self, signer: Signer | None) -> None:
        """Sign with that from now on."""
        self._signer = signer

    def move_to(self, head: ChainHead) -> None:
        """Go on from there."""
        (self._seq, self._digest), self._last = head, None

    @property
    def next_link(self) -> tuple[int, bytes]:
        """`seq` and `prev` of the next line, as JSON has them."""
        return self._seq + 1, b"null" if self._signer is None else f'"{self._end()}"'.encode()

    def append_line(self, line: bytes) -> None:
        """That is the next line, a canonical one, which has what is `due` and no signature."""
        self._seq += 1
        self._last = line

    def add(self, document: dict[str, Any]) -> bytes:
        """The next line, its newline included, of a rendered event, which becomes part of it.

        Raises TypeError for what JSON cannot say; the chain is as before then.
        """
        own = native_part(document)
        assert own is not None, "what is rendered is of ours"
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
        # Another dictionary: an event that several sinks get is rendered with the same one.
        own["data"] = {**own["data"], "algorithm": signer.algorithm, "key": signer.key_id}
        own["data"]["signature"] = signer.sign(canonical(document))
        return canonical(document)


def split_signature(line: bytes) -> tuple[bytes, str, str] | None:
    """What of a line was signed, the key's id, and the signature; None where it has no signature.

    A line that says the same in another form has none: that is not how it was written.
    """
    document = orjson.loads(line)
    own = native_part(document)
    if own is None or canonical(document) != line or not isinstance(own.get("data"), dict):
        return None
    signature, key = own["data"].pop("signature", None), own["data"].get("key")
    if not isinstance(signature, str) or not isinstance(key, str):
        return None
    return canonical(document), key, signature
