-- Forget sessions that have expired, at most so many; how many.
local sessions = KEYS[1]
local now, root, limit = unpack(ARGV)

local names = redis.call('ZRANGE', sessions, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
for _, name in ipairs(names) do
  redis.call('DEL', root .. name)
  redis.call('ZREM', sessions, name)
end
return #names
