-- The members of each set that expire last, before a member with a score: their ids and scores, the last to expire at
-- the end. It writes nothing: a server whose memory is full answers it.

local _, now, score, member, most = unpack(ARGV, 1, 5)

-- Members of the same score are in the order of their bytes; how Lua compares texts depends on where the server runs.
local function is_before(one, other)
  for at = 1, math.min(#one, #other) do
    local mine, theirs = string.byte(one, at), string.byte(other, at)
    if mine ~= theirs then return mine < theirs end
  end
  return #one < #other
end

local found = {}
for number = 6, #ARGV do
  local set = root .. ARGV[number]
  local low, high = redis.call('ZCOUNT', set, '-inf', '(' .. score), redis.call('ZCOUNT', set, '-inf', score)
  -- The member may be gone by now.
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_before(redis.call('ZRANGE', set, middle, middle)[1], member) then low = middle + 1 else high = middle end
  end
  local first = math.max(redis.call('ZCOUNT', set, '-inf', now), low - most)
  found[number - 5] = first < low and redis.call('ZRANGE', set, first, low - 1, 'WITHSCORES') or {}
end
return found
