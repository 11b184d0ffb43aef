-- The next tasks of a set, with their expiry, behind a member, or behind a score where that is empty: for each its id,
-- its score, its head and its lease. Without a head where nothing is there, or what nobody here wrote.

local _, set, score, member, most = unpack(ARGV, 1, 5)
set = root .. set

local at
if member == '' then
  at = redis.call('ZCOUNT', set, '-inf', score)
else
  -- One that is gone by now stands there for a moment, so that its place is known.
  local was_gone = redis.call('ZADD', set, 'NX', score, member)
  at = redis.call('ZRANK', set, member) + 1 - was_gone
  if was_gone == 1 then redis.call('ZREM', set, member) end
end

local found = redis.call('ZRANGE', set, at, at + most - 1, 'WITHSCORES')
local rows = {}
for number = 1, #found, 2 do
  local row = redis.pcall('HMGET', root .. 'task:' .. found[number], 'head', 'holder', 'until')
  local expires = string.format('%.0f', tonumber(found[number + 1]))
  rows[#rows + 1] = {found[number], expires, row[1] or false, row[2] or '', row[3] or '0'}
end
return rows
