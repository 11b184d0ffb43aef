-- Takes from the budgets of rates, or looks at them: the steps one after the other, up to one that refuses.
-- KEYS: the budget of each demand, in order; one may be met in several steps, but in each only once.
-- ARGV[1]: for each demand the number of its step, its way (1 look, 2 take, 3 note), whether it is in shadow, seconds
-- per unit, burst, seconds that may be owed beyond it, cost: "<BBBdddd". ARGV[2]: the time in microseconds, or nothing: then this server's clock is asked.
-- Returns the number of the step that refused, or 255, and the verdicts up to it: allowed, remaining, seconds until the
-- same would be allowed, seconds until all is there: "<Bddd".
-- A budget is kept as a time in whole microseconds and the seconds owed then: the arithmetic of domain/rates, without
-- what is lost of fractions of a second in a number of this size.
local SAME = 1e-6
local LOOK, NOTE = 1, 3

local now
if ARGV[2] == '' then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
else
    now = tonumber(ARGV[2])
end

local owed, kept = {}, redis.call('MGET', unpack(KEYS))
for place, key in ipairs(KEYS) do
    owed[key] = 0
    if kept[place] then
        local at, debt = string.match(kept[place], '^(%d+) (.+)$')
        owed[key] = math.max(0, tonumber(debt) - math.max(0, now - tonumber(at)) / 1000000)
    end
end

local changed = {}

local function left(debt, one)
    local units = math.floor(one.burst - (debt - SAME) / one.every)
    return math.min(one.burst, math.max(units, 0))
end

-- The verdict and what is owed if the cost is taken; or what is owed, where there is no room.
local function judge(one, cost)
    local debt, most = owed[one.key], one.burst * one.every
    if debt > most and debt > most + (one.ahead > 0 and one.ahead + 10 * SAME or 0) then
        -- It was owed to another limit, and is forgiven once but for the burst.
        debt = most
        owed[one.key], changed[one.key] = most, true
    end
    local wait = math.huge
    if cost <= one.burst then
        wait = debt - (one.burst - cost) * one.every
    end
    if wait > one.ahead + SAME then
        return { 0, left(debt, one), wait, debt }, debt
    end
    debt = debt + cost * one.every
    return { 1, left(debt, one), wait > SAME and wait or 0, debt }, debt
end

local function charge(one, debt)
    owed[one.key], changed[one.key] = debt, true
end

-- The steps, each with its demands.
local steps, position = {}, 1
for _, key in ipairs(KEYS) do
    local number, way, shadow, every, burst, ahead, cost
    number, way, shadow, every, burst, ahead, cost, position = struct.unpack('<BBBdddd', ARGV[1], position)
    local step = steps[#steps]
    if not step or step.number ~= number then
        step = { number = number, way = way }
        steps[#steps + 1] = step
    end
    step[#step + 1] = { key = key, shadow = shadow == 1, every = every, burst = burst, ahead = ahead, cost = cost }
end

local said, refused = {}, 255

local function perform(step)
    local verdicts, debts, refuses = {}, {}, false
    for place, one in ipairs(step) do
        verdicts[place], debts[place] = judge(one, one.cost)
        refuses = refuses or (verdicts[place][1] == 0 and not one.shadow)
    end
    refuses = refuses and step.way ~= NOTE
    for place, one in ipairs(step) do
        local verdict = verdicts[place]
        if refuses and step.way ~= LOOK and verdict[1] == 1 then
            -- Nothing is taken: what remains is what there was.
            verdict = judge(one, 0)
        elseif step.way ~= LOOK and verdict[1] == 1 then
            charge(one, debts[place])
        end
        said[#said + 1] = struct.pack('<Bddd', unpack(verdict))
    end
    return refuses
end

for _, step in ipairs(steps) do
    if perform(step) then
        refused = step.number
        break
    end
end

for key in pairs(changed) do
    if owed[key] > 0 then
        local state = string.format('%.0f %.17g', now, owed[key])
        redis.call('SET', key, state, 'PX', string.format('%.0f', math.ceil(owed[key] * 1000) + 1000))
    end
end
return string.char(refused) .. table.concat(said)
