-- A sign of life: the time, then the held tasks that have ended, that others hold, that the store has forgotten or has
-- older, who lives, until when the holder was to live before, whether the memory is full, and who has vanished
-- of late, each since when. What is held is renewed.
-- ARGV: root, holder, lease, then ids, each with its revision.
local lives = KEYS[1]
local root, holder, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local till = string.format('%.0f', now + lease)

local before = redis.call('ZSCORE', lives, holder)
-- A server whose memory is full refuses what takes more only as the first that a script writes: so it tells that it is,
-- and the sign of life is taken all the same.
local first = redis.pcall('ZADD', lives, till, holder)
local full = type(first) == 'table' and first.err ~= nil
local past, vanished = string.format('(%.0f', now), root .. 'vanished'
-- A full memory refuses it, and then nobody is told.
for _, name in ipairs(redis.call('ZRANGE', lives, '-inf', past, 'BYSCORE')) do
  redis.pcall('ZADD', vanished, string.format('%.0f', now), name)
end
redis.call('ZREMRANGEBYSCORE', lives, '-inf', past)
redis.call('ZREM', vanished, holder)
redis.call('ZREMRANGEBYSCORE', vanished, '-inf', string.format('(%.0f', now - 600000000))
redis.call('PEXPIRE', vanished, 3600000)
if full then
  redis.call('ZADD', lives, till, holder)
end
redis.call('PEXPIRE', lives, string.format('%.0f', math.ceil(lease / 1000) + 3600000))

local ended, lost, behind = {}, {}, {}
for number = 4, #ARGV, 2 do
  local id = ARGV[number]
  local row = root .. 'task:' .. id
  -- What is no row any more, or a damaged one, costs the sign of life of nothing else.
  local revision, held_by, open, till_now = unpack(redis.pcall('HMGET', row, 'rev', 'holder', 'open', 'until'))
  if (tonumber(revision) or -1) < tonumber(ARGV[number + 1]) then
    behind[#behind + 1] = id
  elseif open ~= '1' then
    ended[#ended + 1] = id
  elseif held_by ~= holder then
    lost[#lost + 1] = id
  elseif (tonumber(till_now) or 0) < now + lease then
    redis.call('HSET', row, 'until', till)
    redis.call('ZADD', root .. 'open', 'XX', till, id)
  end
end
if before then
  before = string.format('%.0f', tonumber(before))
end
return {time[1], time[2], ended, lost, behind, redis.call('ZRANGE', lives, 0, -1), before or '', full and 1 or 0,
  redis.call('ZRANGE', vanished, 0, -1, 'WITHSCORES')}
