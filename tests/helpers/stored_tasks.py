"""The tasks in the file of a store, as another reader of it finds them: the layout that outlives every version.

A head is a JSON array; what its fields are stands in `taskgate.stores.codec`, and never changes, since files are older
than the gateways that read them.
"""

import json
import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from hashlib import sha256
from hmac import digest
from pathlib import Path
from typing import Any, NamedTuple

from helpers.waiting import eventually
from taskgate.auth.key_file import read_keys
from taskgate.cluster.encryption import is_box, joined
from taskgate.cluster.message_auth import SealKeys

_TAG_BYTES = 32


class Checkpoint(NamedTuple):
    """From where another process goes on with a call: `event` of its stream, or the `state` of a round.

    `revision` is that of a stream; a round has none, since only one era has rounds.
    `asked` are its server's open questions: each its own key, the method, and the key of the host's input request.
    """

    event: str | None
    state: Any
    asked: list[list[Any]]
    revision: str | None = None


class StoredTask(NamedTuple):
    """One task. `inputs` are the keys of its open input requests; `answers` what hosts said to others."""

    status: str
    host_session: str | None
    progress_token: Any
    was_sent: bool
    inputs: list[str]
    answers: dict[str, Any]
    deadline: timedelta | None
    reruns: int
    checkpoint: Checkpoint | None


def stored_tasks(folder: Path) -> dict[str, StoredTask]:
    """All that are in the file of that folder, by their ids."""
    file = folder / "taskgate.db"
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=5)) as reader:
        return dict(_task(head, folder) for (head,) in reader.execute("SELECT head FROM tasks").fetchall())


async def stored_task(folder: Path, id: str, suits: Callable[[StoredTask], object] = lambda _: True) -> StoredTask:
    """One of them, once it is there and suits."""
    found: list[StoredTask] = []

    def look() -> bool:
        task = stored_tasks(folder).get(id)
        found[:] = [] if task is None or not suits(task) else [task]
        return bool(found)

    await eventually(look)
    return found[0]


def copied(folder: Path, target: Path) -> None:
    """Put into `target` what a process that falls now leaves in `folder`."""
    target.mkdir(exist_ok=True)
    source = (folder / "taskgate.db").as_uri()
    with (
        closing(sqlite3.connect(f"{source}?mode=ro", uri=True, timeout=5)) as here,
        closing(sqlite3.connect(target / "taskgate.db")) as there,
    ):
        here.backup(there)


def with_another_question(folder: Path, id: str, key: str, method: str) -> None:
    """Write into a stored round, of a gateway without a key, that its server asked one more thing, of nobody."""
    with closing(sqlite3.connect(folder / "taskgate.db")) as file, file:
        ((head,),) = file.execute("SELECT head FROM tasks WHERE id = ?", (id,)).fetchall()
        fields = json.loads(head)
        kept = fields[20][7]
        said = json.loads(urlsafe_b64decode(kept[0]))
        said[4].append([key, method, None])
        kept[0] = urlsafe_b64encode(json.dumps(said).encode()).decode()
        file.execute("UPDATE tasks SET head = ? WHERE id = ?", (json.dumps(fields).encode(), id))


def _task(head: bytes, folder: Path) -> tuple[str, StoredTask]:
    fields = json.loads(head)
    # Tenant, deadline, reruns, repeat key, trace, waiting since, retrieved, checkpoint: as far as there is any.
    rare = [*(fields[20] if len(fields) > 20 else ()), *[None] * 8]
    deadline, reruns, kept = rare[1], rare[2], rare[7]
    return fields[1], StoredTask(
        status=fields[8],
        host_session=fields[6],
        progress_token=fields[7],
        was_sent=fields[15],
        inputs=[asked[0] for asked in fields[16]],
        answers=fields[18],
        deadline=None if deadline is None else timedelta(microseconds=deadline),
        reruns=reruns or 0,
        checkpoint=None if kept is None else _checkpoint(kept[0], folder, [fields[1], *fields[2:4]]),
    )


def _checkpoint(sealed: str, folder: Path, of: list[str]) -> Checkpoint:
    text = urlsafe_b64decode(sealed)
    if is_box(text):
        text = _decrypted(text, folder, of)
    # Where a gateway of an earlier version has a key, a tag stands before the text.
    said = json.loads(text if text.startswith(b'["') else text[_TAG_BYTES:])
    if len(said) == 4:
        (_, revision, _, _, event), asked = said[3]
        return Checkpoint(event, None, asked, revision)
    return Checkpoint(None, said[3], said[4])


def _decrypted(box: bytes, folder: Path, of: list[str]) -> bytes:
    """What was encrypted for a task, by a key in the folder or in the one above it."""
    id, context, mount = of
    subject = joined(context.encode(), mount.encode(), id.encode())
    for file in (*folder.glob("*.key"), *folder.parent.glob("*.key")):
        key = digest(read_keys(file).current, b"taskgate: rounds in records", sha256)
        if (text := SealKeys(key).decrypt_record(box, subject)) is not None:
            return text
    raise AssertionError("no key of the folder opens the checkpoint")
