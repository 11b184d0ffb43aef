-- Remove a task that nobody was told of, as it was inserted under that mark. Returns whether it was there.

local task = KEYS[1]
local _, mark, id, inserted = unpack(ARGV, 1, 4)

if redis.call('HGET', task, 'mark') ~= inserted then return 0 end
local kept = displace(task, id)
tell(mark, -1, kept[1], kept[9], id)
return 1
