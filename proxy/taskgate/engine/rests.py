"""What a record says of a call that rests between two rounds: sealed, so that only what one of us wrote is sent (T25).

Whoever takes the call over finds the server's state in it, and its keys for our input requests. Pure. What must not
live here: when it is written (`resting`), and how the call goes on (`continuing`).
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import Final, NamedTuple

from taskgate.engine.replicas.seals import Seals, WordKeys
from taskgate.mcp.jsonrpc import RawJson
from taskgate.tasks.record import OwnerKey, TaskId, TaskRecord

MAX_SEALED: Final = 256 * 1024
"""Characters: what is larger is not kept, for the head, written at every change, has it."""


class Asked(NamedTuple):
    """A question of a round: the server's key, the method, and the key of our input request, if there is one."""

    key: str
    method: str
    input: str | None


class Rest(NamedTuple):
    """A round whose answers are to come: the server's state, as it wrote it, and what it asked."""

    state: RawJson | None
    asked: tuple[Asked, ...]


class Rests:
    """Seals and opens them; each is good for one task."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def seal(self, owner: OwnerKey, task: TaskId, rest: Rest) -> str | None:
        """The text that a record keeps; None where it is too large."""
        text = json.dumps([*owner, task, *rest])
        if len(text) > MAX_SEALED:
            return None
        sealed = urlsafe_b64encode(self._seals.seal(text.encode())).decode()
        return sealed if len(sealed) <= MAX_SEALED else None

    def open(self, record: TaskRecord) -> Rest | None:
        """The round in which a call rests; None where it does not, or nobody who may wrote that."""
        if record.kept_round is None:
            return None
        try:
            text = self._seals.open(urlsafe_b64decode(record.kept_round.sealed))
            context, mount, task, state, asked = json.loads(text or b"null")
            rest = Rest(state, tuple(Asked(*each) for each in asked))
        except (Error, ValueError, TypeError):
            return None
        return rest if (OwnerKey(context, mount), task) == (record.owner, record.id) else None


UNSEALED: Final = Rests(WordKeys())
"""For who has no key."""
