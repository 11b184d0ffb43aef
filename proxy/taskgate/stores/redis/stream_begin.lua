-- A stream begins: nothing is left of an earlier one of that name.
local stream, events = KEYS[1], KEYS[2]
local holder, about, keep = unpack(ARGV)

redis.call('DEL', stream, events)
redis.call('HSET', stream, 'holder', holder, 'about', about, 'newest', 0, 'dropped', 0, 'size', 0, 'over', '')
redis.call('PEXPIRE', stream, keep)
