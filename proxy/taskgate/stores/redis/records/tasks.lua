-- What the scripts over tasks have in common. It stands before each of them; see rows.py for what lies where.

local root = ARGV[1]
local SLACK = 3600000

-- Have a key outlive what is in it. Rarely written, since each time gives an hour more than is needed.
local function outlive(key, span)
  if redis.call('PTTL', key) < span then redis.call('PEXPIRE', key, span + SLACK) end
end

local function grow(key, by, span)
  if redis.call('INCRBY', key, by) <= 0 then redis.call('DEL', key) else outlive(key, span) end
end

local function list_name(owner, by, state)
  return root .. by .. ':' .. state .. ':' .. owner
end

local function list(owner, by, state, time, id, span)
  local key = list_name(owner, by, state)
  redis.call('ZADD', key, 0, time .. id)
  outlive(key, span)
end

local function unlist(owner, by, state, time, id)
  redis.call('ZREM', list_name(owner, by, state), time .. id)
end

local function put(key, score, id, span)
  redis.call('ZADD', key, score, id)
  outlive(key, span)
end

-- An unfinished task takes room in whatever it shares with others; `shares` are the names of that, space between.
local function begin(id, shares, expires, lease, span)
  put(root .. 'open', lease, id, span)
  for share in string.gmatch(shares, '%S+') do put(root .. 'unfinished:' .. share, expires, id, span) end
end

local function finish(id, shares)
  redis.call('ZREM', root .. 'open', id)
  for share in string.gmatch(shares, '%S+') do redis.call('ZREM', root .. 'unfinished:' .. share, id) end
end

-- So many more bytes of the first and of the last share, which are the context and everybody, and of the person.
local function keep_bytes(shares, size, span)
  if size == 0 then return end
  grow(root .. 'kept:' .. string.match(shares, '^%S+'), size, span)
  local subject = string.match(shares, ' (subject:%S+)')
  if subject then grow(root .. 'kept:' .. subject, size, span) end
  grow(root .. 'kept:' .. string.match(shares, '%S+$'), size, span)
end

local function named(name)
  local value = redis.call('GET', root .. 'repeat:' .. name)
  if not value then return nil end
  local space = string.find(value, ' ', 1, true)
  return string.sub(value, space + 1), tonumber(string.sub(value, 1, space - 1))
end

local function unname(name, id)
  if name ~= '' and named(name) == id then redis.call('DEL', root .. 'repeat:' .. name) end
end

-- Tell everybody, in ids alone: the mark of what was done, the revision, whose it is, who held it, which.
local function tell(mark, revision, owner, holder, id)
  redis.call('PUBLISH', root .. 'news', table.concat({mark, revision, owner, holder, id}, '\0'))
end

-- The task that the arguments describe, when it was made, how many caps follow, and where.
local function read_row()
  local row, _, span, caps = {}
  _, row.mark, row.id, row.rev, span, row.owner, row.state, row.created, row.updated, row.expires, row.open, row.holder,
    row.lease, row.name, row.size, row.shares, row.sends, row.head, caps, row.not_after, row.reference =
    unpack(ARGV, 1, 21)
  row.span = tonumber(span)
  return row, row.created, tonumber(caps), 22
end

-- Find a task by its public reference.
local function refer(task, id, reference, span)
  redis.call('HSET', task, 'reference', reference)
  redis.call('SET', root .. 'reference:' .. reference, id, 'PX', span)
end

-- Keep that task, and its bodies, which are the arguments from `at` on, as fields and values.
local function put_row(task, row, at)
  local id, owner, state, span = row.id, row.owner, row.state, row.span
  redis.call('HSET', task, 'head', row.head, 'rev', row.rev, 'owner', owner, 'holder', row.holder, 'until', row.lease,
    'open', row.open, 'state', state, 'created', row.created, 'updated', row.updated, 'expires', row.expires,
    'name', row.name, 'size', row.size, 'shares', row.shares, 'sends', row.sends, 'mark', row.mark, 'reference', row.reference,
    unpack(ARGV, at))
  redis.call('PEXPIRE', task, span)
  redis.call('SET', root .. 'reference:' .. row.reference, id, 'PX', span)
  list(owner, 'created', state, row.created, id, span)
  list(owner, 'updated', state, row.updated, id, span)
  put(root .. 'all:' .. state, row.expires, id, span)
  if row.open == '1' then begin(id, row.shares, row.expires, row.lease, span) end
  keep_bytes(row.shares, tonumber(row.size), span)
  if row.name ~= '' then redis.call('SET', root .. 'repeat:' .. row.name, row.expires .. ' ' .. id, 'PX', span) end
  tell(row.mark, row.rev, owner, row.holder, id)
end

local PLACED = {'owner', 'state', 'created', 'updated', 'name', 'size', 'shares', 'open', 'holder', 'head', 'until',
  'reference', 'expires', 'caller'}

-- Remove a task that is there; the values of PLACED.
local function displace(task, id)
  local kept = redis.call('HMGET', task, unpack(PLACED))
  local owner, state, created, updated, name, size, shares, open = unpack(kept)
  redis.call('UNLINK', task)
  redis.call('ZREM', root .. 'all:' .. state, id)
  unlist(owner, 'created', state, created, id)
  unlist(owner, 'updated', state, updated, id)
  if open == '1' then finish(id, shares) end
  -- Both have been there at least since this task came.
  keep_bytes(shares, -tonumber(size), 0)
  unname(name, id)
  -- A release before wrote none.
  if kept[12] then redis.call('DEL', root .. 'reference:' .. kept[12]) end
  return kept
end
