-- Some fields of the rows of some tasks: nothing for a row that is not there, or that nobody here wrote.

local count = tonumber(ARGV[2])
local names = {unpack(ARGV, 3, 2 + count)}
local found = {}
for number = 3 + count, #ARGV do
  local row = redis.pcall('HMGET', root .. 'task:' .. ARGV[number], unpack(names))
  found[#found + 1] = not row.err and row
end
return found
