-- A part of a list, in order: merges runs of one state each, and passes over what has expired or fails other bounds.
-- Returns heads, each with its place and expiry; and, if it stopped at BUDGET looks with fewer of them, the bound to go on from.

local _, owner, by, descends, low, high, limit, now, other, after, before, unfetched = unpack(ARGV, 1, 12)
-- LOOKS in pages.py is BUDGET.
local BUDGET, STATES, WIDTH = 1000, 13, 18
limit, now, after, before = tonumber(limit), tonumber(now), tonumber(after), tonumber(before)
descends = descends == '1'

-- Of two places of the same time, byte by byte: how Lua compares texts depends on where the server runs.
local function has_less(one, other)
  for at = WIDTH + 1, math.min(#one, #other) do
    local mine, theirs = string.byte(one, at), string.byte(other, at)
    if mine ~= theirs then return mine < theirs end
  end
  return #one < #other
end

-- As `is_retrieved` in codec.py.
local function is_fetched(head)
  return string.find(head, ',%s*true%]%]$') or string.find(head, ',%s*true,%s*null,%s*"[^"]*"%]%]$')
end

local function is_nearer(one, other)
  if one.time ~= other.time then return (one.time < other.time) ~= descends end
  return has_less(one.place, other.place) ~= descends
end

local function step(run)
  run.at = run.at + 1
  run.place = run[run.at]
  if run.place then run.time = tonumber(string.sub(run.place, 1, WIDTH)) end
  return run.place
end

-- The next part of each list, as far as there is any; and whether one of them goes on behind it.
local function next_runs()
  local runs, goes_on = {}, false
  for number = STATES, #ARGV do
    local key = list_name(owner, by, ARGV[number])
    local run
    if descends then
      run = redis.call('ZRANGE', key, high, low, 'BYLEX', 'REV', 'LIMIT', 0, limit)
    else
      run = redis.call('ZRANGE', key, low, high, 'BYLEX', 'LIMIT', 0, limit)
    end
    goes_on = goes_on or #run == limit
    run.at = 0
    if step(run) then runs[#runs + 1] = run end
  end
  return runs, goes_on
end

local function next_place(runs)
  local nearest
  for number, run in ipairs(runs) do
    if not nearest or is_nearer(run, runs[nearest]) then nearest = number end
  end
  if not nearest then return nil end
  local place = runs[nearest].place
  if not step(runs[nearest]) then table.remove(runs, nearest) end
  return place
end

local found, looks = {}, 0
while true do
  local runs, goes_on = next_runs()
  -- Behind so many places, a list that goes on may have one that comes first.
  for _ = 1, goes_on and limit or math.huge do
    local place = next_place(runs)
    if not place then break end
    local task = root .. 'task:' .. string.sub(place, WIDTH + 1)
    -- What nobody here wrote is passed over: an error has no first.
    local row = redis.pcall('HMGET', task, 'head', 'expires', other)
    local head, expires, time = row[1], tonumber(row[2]), tonumber(row[3])
    if head and expires and time and expires > now and time > after and time < before
      and not (unfetched == '1' and is_fetched(head)) then
      found[#found + 1] = {head, place, row[2]}
      if #found == limit then return {found} end
    end
    looks = looks + 1
    if descends then high = '(' .. place else low = '(' .. place end
  end
  if not goes_on then return {found} end
  if looks >= BUDGET then return {found, descends and high or low} end
end
