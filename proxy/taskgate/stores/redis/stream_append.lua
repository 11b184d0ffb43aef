-- Add events to a stream that is there, the oldest giving way to the bounds, and tell who waits for them.
-- ARGV: channel, milliseconds to keep it, whether it is over, most events, most bytes, then numbers, each with its event.
local stream, events = KEYS[1], KEYS[2]
local channel, keep, over, most, most_bytes = unpack(ARGV, 1, 5)

local newest, dropped, size = unpack(redis.call('HMGET', stream, 'newest', 'dropped', 'size'))
if not newest then return end
newest, dropped, size = tonumber(newest), tonumber(dropped), tonumber(size)

for place = 6, #ARGV, 2 do
  local number, event = tonumber(ARGV[place]), ARGV[place + 1]
  if number > newest then
    redis.call('XADD', events, ARGV[place] .. '-1', 'e', event)
    -- Where one is missing, it is as if all before it had given way.
    if number > newest + 1 then dropped = number - 1 end
    newest, size = number, size + #event
  end
end

local count = redis.call('XLEN', events)
while count > 1 and (count > tonumber(most) or size > tonumber(most_bytes)) do
  local oldest = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', events, oldest[1])
  size = size - #oldest[2][2]
  dropped = math.max(dropped, tonumber(string.match(oldest[1], '^%d+')))
  count = count - 1
end

redis.call('HSET', stream, 'newest', string.format('%.0f', newest), 'dropped', string.format('%.0f', dropped), 'size', size)
if over == '1' then redis.call('HSET', stream, 'over', '1') end
redis.call('PEXPIRE', stream, keep)
redis.call('PEXPIRE', events, keep)
redis.call('PUBLISH', channel, '')
