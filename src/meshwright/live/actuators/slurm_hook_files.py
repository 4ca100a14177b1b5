"""The scripts that Slurm calls: ``job_submit.lua``, ``PrologSlurmctld`` and ``EpilogSlurmctld``.

They post to the service and fail open: after two seconds without a good answer the job goes on as it is, and a line says so. What
a user wrote, as a job's name or comment, reaches the shell only inside a quoted JSON text without quotation marks, and from an
answer only letters of a fixed set are taken. The Lua runs under slurmctld's locks, hence the short limit; it acts on jobs alone
whose comment begins with ``mw:auto``.
"""

from __future__ import annotations

import re

from ... import files
from ...errors import InputFileError
from ...export.writer import MANIFEST
from .slurm_hooks import AUTO

LIMIT_S = 2
"""Longest wait for an answer."""

_URL = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+(?:/[A-Za-z0-9._~/-]*)?")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/@%+=-]+")

_CURL = (
    f"curl --disable --silent --show-error --fail --noproxy '*' --max-time {LIMIT_S} --header 'Content-Type: application/json'"
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ABOUT = "Written by `meshwright slurm-hooks`; a service that is slow or gone stops no job."

_LUA = """\
-- job_submit.lua: asks meshwright where to run jobs whose comment begins with @AUTO@.
-- @ABOUT@
local COMMAND = "PATH=@PATH@ @CURL@ '@URL@/v1/slurm/submit' --data-binary "

-- JSON of a text of the user; inside the '...' of a shell it means itself.
local function text(value)
  if type(value) ~= "string" then return "null" end
  local safe = value:sub(1, 1000):gsub("[%c\\"\\\\']", function(letter)
    return string.format("\\\\u%04x", letter:byte())
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
    tell("goes on unplanned: it names its nodes itself")
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
  local why = answer:match('"why"%s*:%s*"([^"\\\\%c]*)"')
  if planned and nodes then
    job.comment = planned
    job.req_nodes = nodes
    tell("planned on " .. nodes .. " as decision " .. planned:sub(4))
  else
    tell("goes on unplanned: " .. (why or "no answer within @LIMIT@ s"))
  end
end

function slurm_job_submit(job, partitions, uid)
  local done, problem = pcall(plan, job)
  if not done then pcall(tell, "goes on unplanned: " .. tostring(problem)) end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
"""

_SHELL = """\
#!/bin/bash
# @NAME@: tells meshwright that a job @WHAT@.
# @ABOUT@
export PATH=@PATH@ LC_ALL=C

text() { # JSON of a text of the user
  local text=${1:0:1000}
  text=${text//\\\\/\\\\\\\\}
  text=${text//\\"/\\\\\\"}
  printf '"%s"' "${text//[[:cntrl:]]/ }"
}

job=${SLURM_JOB_ID:-}
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then job=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-}; fi
if [ -n "${SLURM_HET_JOB_ID:-}" ]; then job=${SLURM_HET_JOB_ID}+${SLURM_HET_JOB_OFFSET:-0}; fi
told=$(
  {
    printf '{"job_id":%s,"comment":%s' "$(text "$job")" "$(text "${SLURM_JOB_COMMENT:-}")"
    printf ',"name":%s,"user":%s' "$(text "${SLURM_JOB_NAME:-}")" "$(text "${SLURM_JOB_USER:-}")"
    printf ',"nodes":%s@MORE@}' "$(text "${SLURM_JOB_NODELIST:-}")"@VALUES@
  } | @CURL@ '@URL@/v1/slurm/@END@' --data-binary @- --output /dev/null 2>&1
) || {
  line="job $job goes on, @GOES_ON@: ${told:-no answer}"
  logger --tag meshwright -- "$line" 2>/dev/null
  printf '%s\\n' "$line" >&2
}
exit 0 # anything else would put the job back into the queue
"""

_README = """\
job_submit.lua goes beside slurm.conf on the machine of slurmctld, which needs curl, and Slurm's lua plugin for the first line:
    JobSubmitPlugins=lua
    PrologSlurmctld=@FOLDER@/prolog_slurmctld.sh
    EpilogSlurmctld=@FOLDER@/epilog_slurmctld.sh
Restart slurmctld. Only jobs that ask for it are planned: sbatch --comment='mw:auto job=zoo:gpt2-small steps=2000 batch=64' ...
"""


def hook_files(
    folder: str, *, url: str | None = None, socket: str | None = None, header_file: str | None = None
) -> dict[str, str | bytes]:
    """The scripts by name, and what goes into ``slurm.conf``.

    Args:
        folder: where they will lie, as ``slurm.conf`` names it.
        url: of the service.
        socket: the Unix socket that it listens on, in place of a URL.
        header_file: of a line for the head of each request, which tells the token where the service wants one.

    Raises:
        InputFileError: neither of the two or both, or letters in them that are not taken to a shell.
    """
    if (url is None) == (socket is None):
        raise InputFileError("give --url or --socket, one of the two", field="--url")
    if url is not None and not _URL.fullmatch(url):
        raise InputFileError("is no http://HOST:PORT", field="--url", value=url)
    if socket is not None and not _PLAIN_PATH.fullmatch(socket):
        raise InputFileError("is no absolute path of plain letters", field="--socket", value=socket)
    if header_file is not None and not _PLAIN_PATH.fullmatch(header_file):
        raise InputFileError("is no absolute path of plain letters", field="--header-file", value=header_file)
    curl = _CURL if socket is None else f"{_CURL} --unix-socket {socket}"
    given = {
        "CURL": curl if header_file is None else f"{curl} --header @{header_file}",
        "URL": "http://localhost" if url is None else url.rstrip("/"),
        "PATH": _PATH,
        "ABOUT": _ABOUT,
        "AUTO": AUTO,
        "LIMIT": f"{LIMIT_S}",
        "FOLDER": folder,
    }
    prolog = {"NAME": "prolog_slurmctld.sh", "WHAT": "starts", "END": "prolog", "MORE": "", "VALUES": ""}
    prolog["GOES_ON"] = "its start was not told to meshwright"
    epilog = {"NAME": "epilog_slurmctld.sh", "WHAT": "has ended", "END": "epilog", "MORE": ',"exit_code":%s'}
    epilog["VALUES"] = ' "$(text "${SLURM_JOB_EXIT_CODE2:-}")"'
    epilog["GOES_ON"] = "its end was not told to meshwright"
    made: dict[str, str | bytes] = {
        "job_submit.lua": _filled(_LUA, given),
        "prolog_slurmctld.sh": _filled(_SHELL, given | prolog),
        "epilog_slurmctld.sh": _filled(_SHELL, given | epilog),
        "README": _filled(_README, given),
    }
    return {**made, MANIFEST: files.json_text({"format": "slurm-hooks", "files": sorted([*made, MANIFEST])}) + "\n"}


def _filled(text: str, given: dict[str, str]) -> str:
    """A script with ``@NAME@`` replaced."""
    return re.sub(r"@([A-Z_]+)@", lambda found: given[found[1]], text)
