-- Put a task back where there is none, or an unfinished one of an older revision that nobody else holds.
-- Returns whether it did.

local task = KEYS[1]
local row, now, _, at = read_row()

local kept_revision, kept_open, kept_holder, transitions =
  unpack(redis.call('HMGET', task, 'rev', 'open', 'holder', 'transitions'))
if kept_revision then
  local foreign = row.holder ~= '' and kept_holder ~= '' and kept_holder ~= row.holder
  if tonumber(kept_revision) >= tonumber(row.rev) or kept_open ~= '1' or foreign then return 0 end
  displace(task, row.id)
end
if row.name ~= '' then
  local _, ends = named(row.name)
  if ends and ends > tonumber(now) then row.name = '' end
end

put_row(task, row, at)
if transitions then redis.call('HSET', task, 'transitions', transitions) end
return 1
