-- The indexes of lists, made anew where a file has those of an earlier layout.
-- A list is read as one run for each state, merged: one index for each order serves lists of all tasks, of one state and
-- of several. The other time is at the end, so that bounds of it can be checked before a row is looked up.

DROP INDEX IF EXISTS tasks_created;
DROP INDEX IF EXISTS tasks_updated;
CREATE INDEX tasks_created ON tasks (owner, status, tool_error, created, id, updated);
CREATE INDEX tasks_updated ON tasks (owner, status, tool_error, updated, id, created);
