-- What a new file has beside its tasks (tasks.sql). The number of the layout stands in PRAGMA user_version.

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
