"""What a record says of a call that others can go on with: sealed, so that only what one of us wrote counts (T25).

Whoever takes the call over finds what the next round takes, or where at its server the call is, and the server's keys
for our input requests. Pure. What must not live here: when it is written (`round_checkpoints`, `checkpoint_writer`),
and how the call goes on (`continuing`).
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from taskgate.cluster.message_auth import SealKeys, Seals
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.jsontext.spans import RawJson
from taskgate.upstream.resume_points import ResumePoint

MAX_SEALED: Final = 256 * 1024
"""Characters: what is larger is not kept, for the head, written at every change, has it."""


class AskedQuestion(NamedTuple):
    """A question of a server: its own key for it, the method, and the key of our input request, if there is one."""

    key: str
    method: str
    input: str | None


class RoundCheckpoint(NamedTuple):
    """A round whose answers are to come: the server's state, as it wrote it, and what it asked."""

    state: RawJson | None
    asked: tuple[AskedQuestion, ...]


class CallCheckpoint(NamedTuple):
    """A call that is at its server, and what that asked of it and may not have been answered."""

    resume_point: ResumePoint
    asked: tuple[AskedQuestion, ...]


class CheckpointSeals:
    """Seals and opens them; each is good for one task."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def seal(self, owner: OwnerKey, task: TaskId, kept: RoundCheckpoint | CallCheckpoint) -> str | None:
        """The text that a record keeps; None where it is too large."""
        text = json.dumps([*owner, task, *kept] if isinstance(kept, RoundCheckpoint) else [*owner, task, kept])
        if len(text) > MAX_SEALED:
            return None
        sealed = urlsafe_b64encode(self._seals.seal(text.encode())).decode()
        return sealed if len(sealed) <= MAX_SEALED else None

    def open(self, record: TaskRecord) -> RoundCheckpoint | CallCheckpoint | None:
        """What of a call somebody else can go on with; None where nothing is, or nobody who may wrote that."""
        if record.checkpoint is None:
            return None
        try:
            text = self._seals.open(urlsafe_b64decode(record.checkpoint.sealed))
            context, mount, task, *said = json.loads(text or b"null")
            kept = _footing(*said) if len(said) == 1 else _rest(*said)
        except (Error, ValueError, TypeError):
            return None
        return kept if (OwnerKey(context, mount), task) == (record.owner, record.id) else None


def _rest(state: RawJson | None, asked: Iterable[Iterable[Any]]) -> RoundCheckpoint:
    return RoundCheckpoint(state, tuple(AskedQuestion(*each) for each in asked))


def _footing(said: tuple[Iterable[Any], Iterable[Iterable[Any]]]) -> CallCheckpoint:
    at, asked = said
    return CallCheckpoint(ResumePoint(*at), tuple(AskedQuestion(*each) for each in asked))


UNSEALED: Final = CheckpointSeals(SealKeys())
"""For who has no key."""
