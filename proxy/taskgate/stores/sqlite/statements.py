"""The SQL statements of the SQLite store, except those of pages, and the encoding of their values.

Values only: no connection and no transaction. The layout is in schema.sql. Digests stand for owners
and contexts. An id that no column can hold (a lone surrogate, a NUL) becomes NULL, which equals
nothing. A task is found by the number of its reference, and its id is compared then.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from taskgate.domain.record import OwnerKey
from taskgate.stores.codec import pack_names

Values = tuple[Any, ...]

# For a file that was just opened, where no lease is held: that is what the index finds.
UNFINISHED: Final = """
    SELECT context, subject, tenant, tool, upstream, expires FROM tasks WHERE unfinished = 1 AND lease_until = 0
"""
# Not grouped: to sort a large file, SQLite needs a folder for temporary files.
KEPT: Final = "SELECT context, subject, status, body_size FROM tasks"
INSERT_TASK: Final = """
    INSERT INTO tasks (id, reference, owner, context, subject, tenant, tool, upstream, repeat, created, updated,
                       expires, unfinished, status, tool_error, revision, holder, lease_until, body_size, head, params,
                       caller)
    VALUES (?, ?, ?, ?, nullif(?, x''), nullif(?, x''), ?, ?, nullif(?, x''), ?, ?, ?, ?, ?, ?, ?, nullif(?, ''), ?,
            ?, ?, nullif(?, x''), nullif(?, ''))
"""
INSERT_PARAMS: Final = "INSERT INTO params (task, body) VALUES (?, ?)"
SET_OUTCOME: Final = "UPDATE tasks SET kind = ?, outcome = ? WHERE seq = ?"
PUT_OUTCOME: Final = "INSERT OR REPLACE INTO outcomes (kind, body, task) VALUES (?, ?, ?)"

# For a swap that changes no indexed column: naming one makes SQLite rewrite its indexes, even with
# an equal value.
UPDATE_UNCHANGED: Final = """
    UPDATE tasks SET revision = ?, head = ?
    WHERE reference = ? AND id = ? AND revision = ? AND status = ? AND tool_error = ? AND updated = ? AND holder IS ?
          AND lease_until = ?
"""
FIND_SWAPPED: Final = """
    SELECT seq, repeat IS NOT NULL, subject, holder, lease_until, expires, updated, unfinished, status, tool_error
    FROM tasks WHERE reference = ? AND id = ? AND revision = ?
"""
FORGET_REPEAT: Final = "UPDATE tasks SET repeat = NULL WHERE seq = ?"
UPDATE_TASK: Final = """
    UPDATE tasks SET updated = ?, unfinished = ?, status = ?, tool_error = ?, revision = ?, holder = ?, lease_until = ?,
                     body_size = body_size + ?, head = ?
    WHERE seq = ?
"""
# Apart: an index has it, and only the end of a task changes it.
SET_EXPIRY: Final = "UPDATE tasks SET expires = ? WHERE seq = ?"
# The row is found by its number, and checked: a number may be used again. An end removes the lease.
END_KNOWN: Final = """
    UPDATE tasks SET updated = ?, expires = ?, unfinished = 0, status = ?, tool_error = ?, revision = ?, holder = NULL,
                     lease_until = 0, body_size = body_size + ?, head = ?, kind = ?, outcome = ?
    WHERE seq = ? AND id = ? AND revision = ? AND unfinished = 1 AND holder = ?
"""
UPDATE_HEAD: Final = """
    UPDATE tasks SET revision = ?, holder = ?, body_size = body_size + ?, head = ? WHERE seq = ?
"""

ADD_TRANSITION: Final = "UPDATE tasks SET transitions = substr(coalesce(transitions, '') || ?, ?) WHERE seq = ?"

# The names of a caller as bytes: damaged text would fail the whole statement.
LOAD_HEAD: Final = """
    SELECT head, holder, lease_until, expires, CAST(caller AS BLOB) FROM tasks
    WHERE reference = ? AND id = ? AND owner = ? AND expires > ?
"""
# The bodies only up to a size, the first two values: larger ones are not read on the event loop.
LOAD_WHOLE: Final = """
    SELECT head, holder, lease_until, expires, CAST(caller AS BLOB), revision, body_size,
           CASE WHEN body_size <= ? THEN coalesce(params, params.body) END, coalesce(tasks.kind, outcomes.kind),
           CASE WHEN body_size <= ? THEN coalesce(outcome, outcomes.body) END
    FROM tasks LEFT JOIN params ON params.task = seq LEFT JOIN outcomes ON outcomes.task = seq
    WHERE reference = ? AND id = ? AND owner = ? AND expires > ?
"""
LOAD_LARGE: Final = """
    SELECT seq, head, holder, lease_until, expires, CAST(caller AS BLOB), coalesce(params, params.body),
           tasks.kind, outcome, outcomes.kind
    FROM tasks LEFT JOIN params ON params.task = seq LEFT JOIN outcomes ON outcomes.task = seq
    WHERE reference = ? AND id = ? AND owner = ? AND expires > ?
"""
FIND_HEAD: Final = "SELECT head, transitions FROM tasks WHERE reference = ? AND id = ?"
REFERRED: Final = "SELECT id FROM tasks WHERE reference = ?"
REPEATED: Final = "SELECT id FROM tasks WHERE repeat = ? AND expires > ?"
REVISION: Final = "SELECT revision FROM tasks WHERE reference = ? AND id = ?"

# Records without a lease are read apart from those with a lapsed one. Each half is read in the
# order of its index, and the second is nearly always empty. They start after a position, so that a repeated query
# advances past unreadable records.
LAPSED: Final = """
    SELECT created, seq FROM (
        SELECT * FROM (SELECT seq, created FROM tasks
                       WHERE unfinished = 1 AND lease_until = 0 AND expires > :now
                             AND (created, seq) > (:created, :seq)
                       ORDER BY created, seq LIMIT :limit)
        UNION ALL
        SELECT * FROM (SELECT seq, created FROM tasks
                       WHERE unfinished = 1 AND lease_until > 0 AND lease_until <= :now AND expires > :now
                             AND (created, seq) > (:created, :seq)
                       ORDER BY created, seq LIMIT :limit)
    ) ORDER BY created, seq LIMIT :limit
"""
TAKE: Final = "UPDATE tasks SET holder = ?, lease_until = ? WHERE seq = ?"
TAKEN: Final = "SELECT id, head, expires, CAST(caller AS BLOB) FROM tasks WHERE seq = ?"
LOAD_PARAMS: Final = "SELECT coalesce(params, body) FROM tasks LEFT JOIN params ON task = seq WHERE seq = ?"
RENEW: Final = "UPDATE tasks SET lease_until = ? WHERE holder = ? AND reference IN (SELECT value FROM json_each(?))"

# The newest first. Numbers of rows begin at 1, so no part but the first starts at 0.
SCAN: Final = """
    SELECT seq, head, holder, lease_until, expires, CAST(caller AS BLOB) FROM tasks
    WHERE seq < coalesce(nullif(?, 0), 9223372036854775807) ORDER BY seq DESC LIMIT ?
"""
# The numbers alone are sorted, which the index of all unfinished tasks has.
SCAN_UNFINISHED: Final = """
    SELECT tasks.seq, head, holder, lease_until, expires, CAST(caller AS BLOB)
    FROM (SELECT seq FROM tasks INDEXED BY tasks_lapsing WHERE unfinished = 1 AND seq > ? ORDER BY seq LIMIT ?) AS found
    CROSS JOIN tasks ON tasks.seq = found.seq
"""

EXPIRED: Final = """
    SELECT seq, id, head, holder, lease_until, CAST(caller AS BLOB), status, context, body_size, unfinished, subject,
           tenant, tool, upstream, expires
    FROM tasks WHERE expires <= ? ORDER BY expires LIMIT ?
"""
DELETES: Final = (
    "DELETE FROM outcomes WHERE task = ?",
    "DELETE FROM params WHERE task = ?",
    "DELETE FROM tasks WHERE seq = ?",
)

PUT_SESSION: Final = "INSERT INTO sessions (id, owner, expires, peer) VALUES (?, ?, ?, ?)"
FIND_SESSION: Final = "SELECT peer, expires FROM sessions WHERE id = ? AND owner = ? AND expires > ?"
TOUCH_SESSIONS: Final = "UPDATE sessions SET expires = ? WHERE id IN (SELECT value FROM json_each(?))"
DROP_SESSION: Final = "DELETE FROM sessions WHERE id = ? AND owner = ?"
PURGE_SESSIONS: Final = "DELETE FROM sessions WHERE expires <= ?"

# No task has a number below 1. The body takes pages of its own, as many as most results need.
PUT_CHECK: Final = "INSERT OR REPLACE INTO outcomes (task, kind, body) VALUES (-1, '', zeroblob(65536))"
DROP_CHECK: Final = "DELETE FROM outcomes WHERE task = -1"

SIZE: Final = """
    SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
"""The size of the pages in use: `max_page_count` bounds those, since free ones are used first."""


@lru_cache(maxsize=1024)
def owner_digest(owner: OwnerKey) -> bytes:
    """The digest of an owner."""
    return _digest_of_two(owner.context, owner.mount)


@lru_cache(maxsize=1024)
def owner_value(owner: OwnerKey) -> bytearray:
    """The digest of an owner as a value that the driver takes as it is."""
    return bytearray(owner_digest(owner))


@lru_cache(maxsize=1024)
def context_digest(context: str) -> bytes:
    """The digest of a context."""
    return _digest(_bytes(context))


@lru_cache(maxsize=1024)
def subject_digest(subject: str) -> bytes:
    """The digest of a person."""
    return _digest(_bytes(subject))


@lru_cache(maxsize=1024)
def tenant_digest(tenant: str) -> bytes:
    """The digest of a tenant."""
    return _digest(_bytes(tenant))


@lru_cache(maxsize=256)
def upstream_digest(mount: str) -> bytes:
    """The digest of an upstream."""
    return _digest(_bytes(mount))


@lru_cache(maxsize=1024)
def tool_digest(mount: str, tool: str) -> bytes:
    """The digest of a tool of an upstream."""
    return _digest_of_two(mount, tool)


def repeat_digest(owner: OwnerKey, key: str) -> bytes:
    """The digest of an owner's idempotency key."""
    return _digest(owner_digest(owner) + _bytes(key))


def names(ids: Iterable[str]) -> bytes:
    """Ids as one value of a lookup for any of them."""
    return pack_names(frozenset(id for id in ids if id.isprintable()))


def _digest_of_two(one: str, other: str) -> bytes:
    # The length in front separates the two names.
    text = _bytes(one)
    return _digest(b"%d:%b%b" % (len(text), text, _bytes(other)))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=16).digest()
