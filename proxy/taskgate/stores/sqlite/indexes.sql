-- Indexes of columns that do not change while a task runs: its end moves one entry of a small index, and no other.
-- A list reads the rows of its owner in order, and skips those that it does not want. The time of the last change moves
-- as long as a task runs, and stays when it has ended: so there is one index for each, and a list merges both.

CREATE INDEX tasks_created ON tasks (owner, created, id);
CREATE INDEX tasks_ended ON tasks (owner, updated, id) WHERE unfinished = 0;
CREATE INDEX tasks_unfinished ON tasks (owner, updated, id) WHERE unfinished = 1;
CREATE INDEX tasks_expiring ON tasks (expires);
