-- What layout 4 has and earlier ones lack. Bodies that have a row of their own keep it.

ALTER TABLE tasks ADD COLUMN params BLOB;
ALTER TABLE tasks ADD COLUMN kind TEXT;
ALTER TABLE tasks ADD COLUMN outcome BLOB;
