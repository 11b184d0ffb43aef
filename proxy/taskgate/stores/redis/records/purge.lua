-- Remove what has expired, the longest expired first; for each its id, owner, head, holder, the end of its
-- lease, its expiry, and its caller.

local _, mark, now, limit = unpack(ARGV, 1, 4)

local expired = {}
for number = 5, #ARGV do
  local key = root .. 'all:' .. ARGV[number]
  local ids = redis.call('ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  for at = 1, #ids, 2 do expired[#expired + 1] = {tonumber(ids[at + 1]), ids[at], key} end
end
table.sort(expired, function(one, other) return one[1] < other[1] end)

local function remove(task, id)
  local kept = displace(task, id)
  tell(mark, -1, kept[1], kept[9], id)
  return {id, kept[1], kept[10], kept[9], kept[11], kept[13], kept[14]}
end

local removed = {}
for number = 1, math.min(#expired, tonumber(limit)) do
  local _, id, key = unpack(expired[number])
  local task = root .. 'task:' .. id
  local whole, row = pcall(remove, task, id)
  if not whole then
    -- Nothing is there, or what nobody here wrote.
    redis.call('UNLINK', task)
    redis.call('ZREM', key, id)
    row = {id, '', false, '', '0', '0', false}
  end
  removed[number] = row
end
return removed
