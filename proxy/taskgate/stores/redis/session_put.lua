-- Keep a new session; whether there was none of that id.
local session, sessions = KEYS[1], KEYS[2]
local owner, peer, expires, name, slack = unpack(ARGV)

if redis.call('EXISTS', session) == 1 then return 0 end
local time = redis.call('TIME')
local left = math.max(tonumber(expires) / 1000 - time[1] * 1000, 0) + slack
redis.call('HSET', session, 'owner', owner, 'peer', peer, 'expires', expires)
redis.call('PEXPIRE', session, string.format('%.0f', left))
redis.call('ZADD', sessions, expires, name)
if redis.call('PTTL', sessions) < left then redis.call('PEXPIRE', sessions, string.format('%.0f', left)) end
return 1
