-- The heads of some tasks, each with whose it is and when it expires; nothing for those that are not there, or that
-- nobody here wrote.

local found = {}
for number = 2, #ARGV do
  local row = redis.pcall('HMGET', root .. 'task:' .. ARGV[number], 'head', 'owner', 'expires')
  local is_whole = row[1] and row[2] and row[3] and string.find(row[3], '^%d+$')
  found[number - 1] = is_whole and row or {false, false, false}
end
return found
