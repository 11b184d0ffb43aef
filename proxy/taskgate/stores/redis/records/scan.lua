-- The next tasks of a set, with their expiry, behind a member with a score, or behind that score if the member is
-- empty: for each its id, its score, its head, its lease and its caller. Without a head where nothing is there, or what nobody here
-- wrote. It writes nothing: a server whose memory is full answers it.

local _, set, score, member, most = unpack(ARGV, 1, 5)
set = root .. set

-- Members of the same score are in the order of their bytes; how Lua compares texts depends on where the server runs.
local function is_behind(one, other)
  for at = 1, math.min(#one, #other) do
    local mine, theirs = string.byte(one, at), string.byte(other, at)
    if mine ~= theirs then return mine > theirs end
  end
  return #one > #other
end

local low, high = redis.call('ZCOUNT', set, '-inf', '(' .. score), redis.call('ZCOUNT', set, '-inf', score)
if member == '' then low = high end
-- The member may be gone by now.
while low < high do
  local middle = math.floor((low + high) / 2)
  if is_behind(redis.call('ZRANGE', set, middle, middle)[1], member) then high = middle else low = middle + 1 end
end

local found = redis.call('ZRANGE', set, low, low + most - 1, 'WITHSCORES')
local rows = {}
for number = 1, #found, 2 do
  local row = redis.pcall('HMGET', root .. 'task:' .. found[number], 'head', 'holder', 'until', 'caller')
  local expires = string.format('%.0f', tonumber(found[number + 1]))
  rows[#rows + 1] = {found[number], expires, row[1] or false, row[2] or '', row[3] or '0', row[4] or false}
end
return rows
