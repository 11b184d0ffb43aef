-- How many tasks there are in each state.

local counts = {}
for number = 2, #ARGV do
  counts[number - 1] = redis.call('ZCARD', root .. 'all:' .. ARGV[number])
end
return counts
