-- Give the oldest unfinished tasks whose lease has lapsed to a taker: for each its id, its head, its expiry, where the head
-- says that it may be sent, its parameters, and its caller. No more are looked at than WINDOW, those first that lapsed first. None unless the
-- last sign of life of the taker that the server knows is the one after which the taker asks.

local _, holder, lease, now, limit, known = unpack(ARGV, 1, 6)
local WINDOW = 4096

if known ~= '' and tonumber(redis.call('ZSCORE', root .. 'lives', holder) or 0) ~= tonumber(known) then return {} end

local due = {}
for _, id in ipairs(redis.call('ZRANGE', root .. 'open', '-inf', now, 'BYSCORE', 'LIMIT', 0, WINDOW)) do
  -- Nothing is there, or what nobody here wrote: an error has no first and no second.
  local row = redis.pcall('HMGET', root .. 'task:' .. id, 'created', 'expires')
  local created, expires = tonumber(row[1]), tonumber(row[2])
  if not (created and expires) then
    redis.call('ZREM', root .. 'open', id)
  elseif expires > tonumber(now) then
    due[#due + 1] = {created, id}
  end
end
table.sort(due, function(one, other) return one[1] < other[1] end)

local taken = {}
for number = 1, math.min(#due, tonumber(limit)) do
  local id = due[number][2]
  local task = root .. 'task:' .. id
  redis.call('HSET', task, 'holder', holder, 'until', lease)
  redis.call('ZADD', root .. 'open', lease, id)
  local head, sends, expires, caller = unpack(redis.call('HMGET', task, 'head', 'sends', 'expires', 'caller'))
  taken[number] = {id, head, expires, sends == '1' and redis.call('HGET', task, 'params'), caller}
end
return taken
