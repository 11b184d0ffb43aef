-- The table of tasks, layout 5. Times are microseconds since 1970. `owner` (context and mount) and `context` are digests,
-- which keeps index entries short; the names are in the head. So are `tenant`, `tool` and `upstream`, which caps count
-- by, and `repeat`, by which an earlier record of the same call is found. `reference` has the first 64 bits of the public
-- reference, which is a digest of the id. All look-ups go by it: those of hosts, which name an id, and those of operators.
-- The columns beside a head are what is searched, ordered and counted by, and repeat it.

CREATE TABLE tasks (
    seq         INTEGER PRIMARY KEY,    -- ids are random, rows lie in the order they came: far fewer pages to write
    id          TEXT    NOT NULL,
    reference   INTEGER NOT NULL UNIQUE,
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
    outcome     BLOB,
    subject     BLOB,                   -- the digest of the caller's person; files of earlier releases get the column
    transitions TEXT,                   -- to statuses that are not terminal; NULL of most tasks, which have none
    caller      TEXT                    -- the names of the caller, as JSON; files of earlier releases get the column
);
CREATE INDEX tasks_lapsing ON tasks (lease_until, created, expires) WHERE unfinished = 1;
CREATE INDEX tasks_repeated ON tasks (repeat) WHERE repeat IS NOT NULL;
