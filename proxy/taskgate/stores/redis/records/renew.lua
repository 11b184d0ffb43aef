-- Extend the leases of tasks that are the holder's.

local _, holder, lease = unpack(ARGV, 1, 3)

for number = 4, #ARGV do
  local id = ARGV[number]
  local task = root .. 'task:' .. id
  if redis.pcall('HGET', task, 'holder') == holder then
    redis.call('HSET', task, 'until', lease)
    redis.call('ZADD', root .. 'open', 'XX', lease, id)
  end
end
