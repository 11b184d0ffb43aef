-- The rows of a file of an earlier layout, with their numbers: large bodies are found by these.

INSERT INTO tasks (
    seq, id, owner, context, tenant, tool, upstream, repeat, created, updated, expires, unfinished, status,
    tool_error, revision, holder, lease_until, body_size, head, params, kind, outcome, reference
)
SELECT
    seq, id, owner, context, tenant, tool, upstream, repeat, created, updated, expires, unfinished, status,
    tool_error, revision, holder, lease_until, body_size, head, params, kind, outcome, reference_of(CAST(id AS BLOB), seq)
FROM tasks_before ORDER BY seq;
DROP TABLE tasks_before;
