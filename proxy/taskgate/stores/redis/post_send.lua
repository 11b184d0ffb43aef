-- Say something to all the others, and drop what is too old to be of interest. What cannot be written to any more, as it
-- is no stream or has no number left, makes room for a new one. Returns whether it did.
local post = KEYS[1]
local origin, word, most, keep = unpack(ARGV)

local function add(call)
  return call('XADD', post, 'MAXLEN', '~', most, '*', 'by', origin, 'word', word)
end

local added, anew = add(redis.pcall), 0
if type(added) == 'table' and added.err then
  if not (string.find(added.err, 'WRONGTYPE', 1, true) or string.find(added.err, 'exhausted', 1, true)) then
    return added
  end
  redis.call('DEL', post)
  add(redis.call)
  anew = 1
end
redis.call('PEXPIRE', post, keep)
return anew
