-- One store, layout 4 (the number stands in PRAGMA user_version); the indexes that it changed are in indexes.sql.
-- Times are microseconds since 1970. `owner` (context and mount) and `context` are digests, which keeps index entries
-- short; the names are in the head. So are `tenant`, `tool` and `upstream`, which caps count by, and `repeat`, by which
-- an earlier record of the same call is found. The columns beside a head are what is searched, ordered and counted by,
-- and repeat it.

CREATE TABLE tasks (
    seq         INTEGER PRIMARY KEY,    -- ids are random, rows lie in the order they came: far fewer pages to write
    id          TEXT    NOT NULL UNIQUE,
    owner       BLOB    NOT NULL,
    context     BLOB    NOT NULL,
    tenant      BLOB,
    tool        BLOB,
    upstream    BLOB,
    repeat      BLOB,
    created     INTEGER NOT NULL,
    updated     INTEGER NOT NULL,
    expires     INTEGER NOT NULL,
    unfinished  INTEGER NOT NULL,
    status      TEXT    NOT NULL,
    tool_error  INTEGER NOT NULL,
    revision    INTEGER NOT NULL,
    holder      TEXT,
    lease_until INTEGER NOT NULL,       -- 0 while nobody holds the call
    body_size   INTEGER NOT NULL,       -- of parameters and outcome together, in bytes
    head        BLOB    NOT NULL,
    params      BLOB,                   -- if small: a row of its own costs more than the task's end, which rewrites this
    kind        TEXT,                   -- of a small outcome, and its body
    outcome     BLOB
);
CREATE INDEX tasks_lapsing ON tasks (lease_until, created, expires) WHERE unfinished = 1;
CREATE INDEX tasks_repeated ON tasks (repeat) WHERE repeat IS NOT NULL;

-- Large bodies are written once and never travel with a head.
CREATE TABLE params (
    task INTEGER PRIMARY KEY,
    body BLOB    NOT NULL
);
CREATE TABLE outcomes (
    task INTEGER PRIMARY KEY,
    kind TEXT    NOT NULL,
    body BLOB    NOT NULL
);

CREATE TABLE sessions (
    seq     INTEGER PRIMARY KEY,
    id      TEXT    NOT NULL UNIQUE,
    owner   BLOB    NOT NULL,
    expires INTEGER NOT NULL,
    peer    BLOB    NOT NULL
);
CREATE INDEX sessions_expiring ON sessions (expires);
