-- Forget a session of this owner; whether there was one.
local session, sessions = KEYS[1], KEYS[2]
local owner, name = unpack(ARGV)

if redis.call('HGET', session, 'owner') ~= owner then return 0 end
redis.call('DEL', session)
redis.call('ZREM', sessions, name)
return 1
