-- job_submit.lua: asks meshwright where to run jobs whose comment begins with @AUTO@.
-- @ABOUT@
local COMMAND = "PATH=@PATH@ @CURL@ '@URL@/v1/slurm/submit' --data-binary "

-- JSON of a text of the user; inside the '...' of a shell it means itself.
local function text(value)
  if type(value) ~= "string" then return "null" end
  local safe = value:sub(1, 1000):gsub("[%c\"\\']", function(letter)
    return string.format("\\u%04x", letter:byte())
  end)
  return '"' .. safe .. '"'
end

local function count(value)  -- Slurm's "not given" is far above
  if type(value) ~= "number" or value < 1 or value >= 65534 then return "null" end
  return string.format("%d", value)
end

local function gpus(tres)
  if type(tres) ~= "string" then return nil end
  local total = 0
  for entry in tres:gmatch("[^,]+") do
    if entry:match("^gres[:/]gpu") or entry:match("^gpu") then
      total = total + (tonumber(entry:match("[:=](%d+)$")) or 1)
    end
  end
  return total
end

local function tell(words)
  slurm.log_info("meshwright: %s", words)
  slurm.log_user("meshwright: %s", words)
end

local function plan(job)
  local comment = job.comment
  if type(comment) ~= "string" or not (comment .. " "):match("^@AUTO@%s") then return end
  if type(job.req_nodes) == "string" and job.req_nodes ~= "" then
    tell("runs unplanned: it names its nodes itself")
    return
  end
  local body = "{"
    .. '"comment":' .. text(comment) .. ',"name":' .. text(job.name) .. ',"user":' .. text(job.user_name)
    .. ',"nodes":' .. count(job.min_nodes) .. ',"gpus_per_node":' .. count(gpus(job.tres_per_node))
    .. ',"gpus":' .. count(gpus(job.tres_per_job)) .. ',"whole_hosts":' .. tostring(job.shared == 0) .. "}"
  local pipe = io.popen(COMMAND .. "'" .. body .. "' 2>/dev/null")
  local answer = pipe:read(65536) or ""
  pipe:close()
  local planned = answer:match('"comment"%s*:%s*"(mw:[%w._-]+)"')
  local nodes = answer:match('"req_nodes"%s*:%s*"([%w.,_-]+)"')
  local why = answer:match('"why"%s*:%s*"([^"\\%c]*)"')
  if planned and nodes then
    job.comment = planned
    job.req_nodes = nodes
    tell("planned on " .. nodes .. " as decision " .. planned:sub(4))
  else
    tell("runs unplanned: " .. (why or "no answer within @LIMIT@ s"))
  end
end

function slurm_job_submit(job, partitions, uid)
  local done, problem = pcall(plan, job)
  if not done then pcall(tell, "runs unplanned: " .. tostring(problem)) end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
