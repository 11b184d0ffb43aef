"""The checkpoints of calls in task records, and their seals: `CheckpointSeals`.

From a checkpoint another process resumes a call. There are two kinds:

- `RoundCheckpoint`: a modern server has answered with questions, and waits for no request at the
  moment. The next round needs the server's state, and an answer to each question.
- `CallCheckpoint`: the server is working on the call. It is resumed at the resume point (the
  server's task, or an event id). The server may still wait for answers to the questions.

Both have, for each question, the server's key and the key of the input request. The text is sealed:
it has a signature, so that only checkpoints written by this deployment count (T25).
`checkpoint_writer` and `rounds` write them, `takeovers` and `runner` open them,
`execution` resumes the call.
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
    """A question of a server in a checkpoint.

    `key` is the server's own key of it. `input` is the key of the input request in the record;
    None for a question that no host was asked.
    """

    key: str
    method: str
    input: str | None


class RoundCheckpoint(NamedTuple):
    """A call between two rounds: the server's state, to be sent back unchanged, and its questions."""

    state: RawJson | None
    asked: tuple[AskedQuestion, ...]


class CallCheckpoint(NamedTuple):
    """A call at its server: the resume point, and the questions whose answer may be missing there."""

    resume_point: ResumePoint
    asked: tuple[AskedQuestion, ...]


class CheckpointSeals:
    """The writer and reader of sealed checkpoints. A sealed text is valid for one task of one owner."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def seal(self, owner: OwnerKey, task: TaskId, checkpoint: RoundCheckpoint | CallCheckpoint) -> str | None:
        """Return the sealed text for the record; None if it is too large."""
        fields = [*checkpoint] if isinstance(checkpoint, RoundCheckpoint) else [checkpoint]
        text = json.dumps([*owner, task, *fields])
        if len(text) > MAX_SEALED:
            return None
        sealed = urlsafe_b64encode(self._seals.seal(text.encode())).decode()
        return sealed if len(sealed) <= MAX_SEALED else None

    def open(self, record: TaskRecord) -> RoundCheckpoint | CallCheckpoint | None:
        """Return the checkpoint of a record; None if it has none, or not a valid one of this task."""
        if record.checkpoint is None:
            return None
        try:
            text = self._seals.open(urlsafe_b64decode(record.checkpoint.sealed))
            context, mount, task, *fields = json.loads(text or b"null")
            # One field is a whole CallCheckpoint, two are the fields of a RoundCheckpoint.
            checkpoint = _call_checkpoint(*fields) if len(fields) == 1 else _round_checkpoint(*fields)
        except (Error, ValueError, TypeError, RecursionError):
            # Deep arrays exceed the recursion limit. Without a key, any writer to the store can write them.
            return None
        return checkpoint if (OwnerKey(context, mount), task) == (record.owner, record.id) else None


def _round_checkpoint(state: RawJson | None, asked: Iterable[Iterable[Any]]) -> RoundCheckpoint:
    return RoundCheckpoint(state, tuple(AskedQuestion(*each) for each in asked))


def _call_checkpoint(fields: tuple[Iterable[Any], Iterable[Iterable[Any]]]) -> CallCheckpoint:
    at, asked = fields
    return CallCheckpoint(ResumePoint(*at), tuple(AskedQuestion(*each) for each in asked))


UNSEALED: Final = CheckpointSeals(SealKeys())
"""For a gateway without a key: its checkpoints have no signature."""
