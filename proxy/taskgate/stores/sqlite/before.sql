-- A table with an index of its ids, which layouts before 5 have, cannot lose it: its rows move to another one.

DROP INDEX IF EXISTS tasks_created;
DROP INDEX IF EXISTS tasks_updated;
DROP INDEX IF EXISTS tasks_ended;
DROP INDEX IF EXISTS tasks_unfinished;
DROP INDEX IF EXISTS tasks_expiring;
DROP INDEX IF EXISTS tasks_lapsing;
DROP INDEX IF EXISTS tasks_repeated;
ALTER TABLE tasks RENAME TO tasks_before;
