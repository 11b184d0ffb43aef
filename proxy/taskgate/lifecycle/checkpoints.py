"""The checkpoints of calls in task records, and their seals: `CheckpointSeals`.

From a checkpoint another process resumes a call. There are two kinds:

- `RoundCheckpoint`: a modern server has asked something in its answer, and the call waits for the
  next round. It has the server's state and the questions.
- `CallCheckpoint`: the server is working on the call. It has the resume point, and the questions
  that may have no answer.

Both have, for each question, the server's key and the key of the input request. The text is sealed,
so that only checkpoints written by this deployment count (T25). `checkpoint_writer` and
`round_checkpoints` write them, `takeovers` and `runner` open them, `continuing` resumes the call.
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
"""Characters of a sealed checkpoint. A larger one is not stored, because every change of a task
writes its head, which contains the checkpoint."""


class AskedQuestion(NamedTuple):
    """A question of a server: the server's key, the method, and the key of the input request, if
    any.
    """

    key: str
    method: str
    input: str | None


class RoundCheckpoint(NamedTuple):
    """A call between two rounds: the server's state, as written, and its questions."""

    state: RawJson | None
    asked: tuple[AskedQuestion, ...]


class CallCheckpoint(NamedTuple):
    """A call at its server: the resume point, and the questions that may have no answer."""

    resume_point: ResumePoint
    asked: tuple[AskedQuestion, ...]


class CheckpointSeals:
    """The seals of checkpoints. A sealed text is valid for one task."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def seal(self, owner: OwnerKey, task: TaskId, kept: RoundCheckpoint | CallCheckpoint) -> str | None:
        """Return the sealed text for the record; None if it is too large."""
        text = json.dumps([*owner, task, *kept] if isinstance(kept, RoundCheckpoint) else [*owner, task, kept])
        if len(text) > MAX_SEALED:
            return None
        sealed = urlsafe_b64encode(self._seals.seal(text.encode())).decode()
        return sealed if len(sealed) <= MAX_SEALED else None

    def open(self, record: TaskRecord) -> RoundCheckpoint | CallCheckpoint | None:
        """Return the checkpoint of a record; None if it has none, or the seal is invalid."""
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
"""For a gateway without a key."""
