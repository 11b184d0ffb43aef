-- Put a head in the place of the one at the expected revision, and its outcome beside it where there is one.
-- Returns nothing where there is no such; 1 where this was done before, which the mark tells; else who held the task and whether that was unfinished.

local task = KEYS[1]
local _, mark, id, expected, revision, span, state, updated, open, holder, lease, is_named, sends, size,
  head, reference, expires = unpack(ARGV, 1, 17)
-- PACKED_TRANSITIONS in codec.py.
local MOST = 285

local kept = redis.call('HMGET', task, 'rev', 'holder', 'until', 'open', 'state', 'updated', 'owner', 'name', 'mark',
  'reference', 'transitions', 'expires')
local at, held_by, ends, was_open, was_state, was_updated, owner, name, was_mark, known_by, transitions, expired = unpack(kept)
if at ~= expected then return at == revision and mark == was_mark and 1 end
span = tonumber(span)

-- The same holder may have renewed it meanwhile, for longer.
if holder ~= '' and holder == held_by and tonumber(ends) > tonumber(lease) then lease = ends end

redis.call('HSET', task, 'head', head, 'rev', revision, 'holder', holder, 'until', lease, 'open', open,
  'state', state, 'updated', updated, 'expires', expires, 'sends', sends, 'mark', mark, unpack(ARGV, 18))

local moves = state ~= was_state
if moves or open ~= was_open or size ~= '0' then
  local shares, created = unpack(redis.call('HMGET', task, 'shares', 'created'))
  if moves and open == '1' then
    local changes = (transitions or '') .. string.sub(state, 1, 1) .. updated
    redis.call('HSET', task, 'transitions', string.sub(changes, -MOST))
  end
  if moves then
    unlist(owner, 'created', was_state, created, id)
    list(owner, 'created', state, created, id, span)
    redis.call('ZREM', root .. 'all:' .. was_state, id)
    put(root .. 'all:' .. state, expires, id, span)
  end
  if open == '1' and was_open ~= '1' then begin(id, shares, expires, lease, span) end
  if open ~= '1' and was_open == '1' then finish(id, shares) end
  if size ~= '0' then
    redis.call('HINCRBY', task, 'size', size)
    keep_bytes(shares, tonumber(size), span)
  end
end
if moves or updated ~= was_updated then
  unlist(owner, 'updated', was_state, was_updated, id)
  list(owner, 'updated', state, updated, id, span)
end
if open == '1' and was_open == '1' and lease ~= ends then redis.call('ZADD', root .. 'open', lease, id) end
if expires ~= expired then
  put(root .. 'all:' .. state, expires, id, span)
  if name ~= '' and named(name) == id then
    redis.call('SET', root .. 'repeat:' .. name, expires .. ' ' .. id, 'PX', span)
  end
  redis.call('PEXPIRE', task, span)
  redis.call('PEXPIRE', root .. 'reference:' .. reference, span)
end
if is_named ~= '1' and name ~= '' then
  unname(name, id)
  redis.call('HSET', task, 'name', '')
end

-- A release before wrote none, and another key made another.
if known_by ~= reference then
  if known_by then redis.call('DEL', root .. 'reference:' .. known_by) end
  refer(task, id, reference, span)
end

if was_open == '1' then tell(mark, revision, owner, held_by ~= '' and held_by or holder, id) end
return {held_by, was_open}
