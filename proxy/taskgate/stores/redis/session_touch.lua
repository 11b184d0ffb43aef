-- Move the expiry of the sessions that are there. KEYS: the index, then one for each name that follows the times.
local sessions = KEYS[1]
local expires, slack = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local left = string.format('%.0f', math.max(tonumber(expires) / 1000 - time[1] * 1000, 0) + slack)

for number = 2, #KEYS do
  if redis.call('EXISTS', KEYS[number]) == 1 then
    redis.call('HSET', KEYS[number], 'expires', expires)
    redis.call('PEXPIRE', KEYS[number], left)
    redis.call('ZADD', sessions, expires, ARGV[number + 1])
  end
end
if redis.call('PTTL', sessions) < tonumber(left) then redis.call('PEXPIRE', sessions, left) end
