-- What there is of a stream after an event: about, holder, newest, dropped, over, whether its holder lives, events.
local stream, events, lives = KEYS[1], KEYS[2], KEYS[3]

local row = redis.call('HMGET', stream, 'about', 'holder', 'newest', 'dropped', 'over')
if not row[1] then return nil end
local time = redis.call('TIME')
local till = redis.call('ZSCORE', lives, row[2])
row[6] = (till and tonumber(till) >= time[1] * 1000000 + time[2]) and 1 or 0
row[7] = redis.call('XRANGE', events, '(' .. ARGV[1] .. '-1', '+')
return row
