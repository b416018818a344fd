-- The requests that wrk sends: wrk -s requests.lua URL -- SHARE FILE [SHARE FILE ...]
--
-- A file has one kind of request: whole requests with zero bytes between them, of which one is sent at a time, by chance.
-- SHARE is the part of the kind in all requests. Ten "@" in a request are replaced by a number that is sent once.
-- If there are several kinds, each connection must have a thread of its own (-t as many as -c): a response then belongs
-- to the request before it, and the times are counted for each kind, in classes of which each is 5 % more than the last.
-- At the end one line of JSON is printed.

local MARK = string.rep("@", 10)
local CLASS = math.log(1.05)
local ffi = require("ffi")
ffi.cdef("typedef struct { long seconds; long nanoseconds; } bench_time; int clock_gettime(int, bench_time *);")

local threads = {}
local kinds, sent, asked, instant = {}, 0, nil, ffi.new("bench_time")
counts = {}  -- by kind and class in one number, and the failures of a kind as class 0: wrk copies flat tables only

local OF_A_KIND = 10000

local function now()
   ffi.C.clock_gettime(1, instant)
   return tonumber(instant.seconds) * 1e6 + tonumber(instant.nanoseconds) / 1e3
end

local function split(text, mark)
   local parts, from = {}, 1
   while true do
      local at = text:find(mark, from, true)
      parts[#parts + 1] = text:sub(from, at and at - 1)
      if not at then return parts end
      from = at + #mark
   end
end

function setup(thread)
   thread:set("number", #threads)
   threads[#threads + 1] = thread
end

local function observe(status)
   local first = asked.kind * OF_A_KIND
   local class = first + 1 + math.floor(math.log(math.max(1, now() - asked.at)) / CLASS)
   counts[class] = (counts[class] or 0) + 1
   if status >= 400 then counts[first] = (counts[first] or 0) + 1 end
end

function init(args)
   math.randomseed(os.time() * 100 + number)
   local upto = 0
   for at = 1, #args, 2 do
      local file = assert(io.open(args[at + 1], "rb"))
      local choices = {}
      for _, text in ipairs(split(file:read("*a"), "\0")) do choices[#choices + 1] = split(text, MARK) end
      file:close()
      upto = upto + tonumber(args[at])
      local kind = (at + 1) / 2
      kinds[kind] = { upto = upto, choices = choices }
   end
   if #kinds > 1 then response = observe end
end

function request()
   local share, kind = math.random() * kinds[#kinds].upto, 1
   while kind < #kinds and share >= kinds[kind].upto do kind = kind + 1 end
   local choices = kinds[kind].choices
   local parts = choices[math.random(#choices)]
   asked = { kind = kind, at = #kinds > 1 and now() or 0 }
   if #parts == 1 then return parts[1] end
   sent = sent + 1
   return table.concat(parts, string.format("%02d%08d", number, sent))
end

local function merged()
   local all = {}
   for _, thread in ipairs(threads) do
      for at, count in pairs(thread:get("counts")) do all[at] = (all[at] or 0) + count end
   end
   local found = {}
   for at, count in pairs(all) do
      local kind, class = math.floor(at / OF_A_KIND), at % OF_A_KIND
      found[kind] = found[kind] or { failed = 0, classes = {} }
      local classes = found[kind].classes
      if class == 0 then
         found[kind].failed = count
      else
         classes[#classes + 1] = string.format("[%.4f,%d]", math.exp(class * CLASS) / 1e3, count)
      end
   end
   local shown = {}
   for kind = 1, table.maxn(found) do
      local each = found[kind] or { failed = 0, classes = {} }
      shown[kind] = string.format('{"failed":%d,"classes":[%s]}', each.failed, table.concat(each.classes, ","))
   end
   return table.concat(shown, ",")
end

function done(summary, latency)
   local errors = summary.errors
   print(string.format(
      '{"requests":%d,"seconds":%.4f,"p50":%.4f,"p99":%.4f,"failed":%d,"broken":%d,"kinds":[%s]}',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
      errors.status, errors.connect + errors.read + errors.write + errors.timeout, merged()))
end
