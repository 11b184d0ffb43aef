-- Keep a new task if every cap has room; else all is as it was.
-- Returns 0, also where this was done before, which the mark tells; the id that stands for the name; the number of the first cap without room, and what is used of it; -1 where the id is taken;
-- -2 where it came too late, by the server's time.

local task = KEYS[1]
local row, now, caps, at = read_row()

if row.name ~= '' then
  local earlier, ends = named(row.name)
  if earlier and ends > tonumber(now) then return earlier end
end
local mark = redis.call('HGET', task, 'mark')
if mark then return mark == row.mark and 0 or -1 end
-- What a silent network kept back may come after its sender was taken for refused, or after it died.
if row.not_after ~= '0' then
  local seconds, more = unpack(redis.call('TIME'))
  if seconds * 1000000 + more > tonumber(row.not_after) then return -2 end
end

for number = 1, caps do
  local kind, share, limit = unpack(ARGV, at, at + 2)
  local used
  if kind == 'bytes' then
    used = tonumber(redis.call('GET', root .. 'kept:' .. share) or 0)
  else
    used = redis.call('ZCOUNT', root .. 'unfinished:' .. share, '(' .. now, '+inf')
  end
  if used >= tonumber(limit) then return {number, used} end
  at = at + 3
end

put_row(task, row, at)
return 0
