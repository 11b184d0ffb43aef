-- What layout 3 has and earlier ones lack; `unfinished` tasks alone are counted, so the others are left as they are.

ALTER TABLE tasks ADD COLUMN tenant BLOB;
ALTER TABLE tasks ADD COLUMN tool BLOB;
ALTER TABLE tasks ADD COLUMN upstream BLOB;
ALTER TABLE tasks ADD COLUMN repeat BLOB;
CREATE INDEX tasks_repeated ON tasks (repeat) WHERE repeat IS NOT NULL;
UPDATE tasks SET tool = tool_of(head), upstream = upstream_of(head) WHERE unfinished = 1;
