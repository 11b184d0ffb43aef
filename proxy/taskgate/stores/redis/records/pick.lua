-- The heads of some tasks, each with whose it is and when it expires; nothing for those that are not there.

local found = {}
for number = 2, #ARGV do
  found[number - 1] = redis.call('HMGET', root .. 'task:' .. ARGV[number], 'head', 'owner', 'expires')
end
return found
