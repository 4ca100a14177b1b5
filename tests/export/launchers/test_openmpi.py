"""The Open MPI export: its texts, and its script under a stand-in for mpirun. A real mpirun runs it elsewhere."""

import os
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ExportError
from meshwright.export import export
from meshwright.export.launchers.openmpi import rankfile

from ...draws import draws

# mpirun(1): "rank <N>=<host name> slot=<socket:core, core range or list>"
RANK_LINE = re.compile(r"rank (?P<rank>\d+)=(?P<host>[A-Za-z0-9.-]+) slot=(?P<slot>\d+)")

# Starts the ranks as mpirun does: `-H` fills host after host, adding up what a host has; `seq` takes line by line. Another host
# gets no variable but those of `-x`.
MPIRUN = r"""#!/bin/bash
set -eu
slots=() hosts=() given=()
while [ "$1" != bash ]; do
  case "$1" in
    -H) IFS=, read -r -a slots <<<"$2"; shift ;;
    --hostfile) mapfile -t hosts < <(grep -v '^#' "$2"); shift ;;
    --map-by) by=$2; shift ;;
    -np) size=$2; shift ;;
    -x) given+=("$2=${!2}"); shift ;;
    --bind-to) shift ;;
    *) echo "unknown $1" >&2; exit 9 ;;
  esac
  shift
done
if [ "$by" = slot ]; then
  declare -A room
  order=()
  for slot in "${slots[@]}"; do
    host=${slot%:*}
    [ -n "${room[$host]:-}" ] || order+=("$host")
    room[$host]=$((${room[$host]:-0} + ${slot#*:}))
  done
  for host in "${order[@]}"; do for ((i = 0; i < room[$host]; i++)); do hosts+=("$host"); done; done
fi
[ "${#hosts[@]}" -eq "$size" ] || { echo "slots for ${#hosts[@]}, not $size" >&2; exit 8; }
declare -A seen
for ((rank = 0; rank < size; rank++)); do
  host=${hosts[$rank]}
  world=("OMPI_COMM_WORLD_RANK=$rank" "OMPI_COMM_WORLD_SIZE=$size" "OMPI_COMM_WORLD_LOCAL_RANK=${seen[$host]:-0}")
  env -i PATH="$PATH" "ON=$host" "${given[@]}" "${world[@]}" "$@"
  seen[$host]=$((${seen[$host]:-0} + 1))
done
"""
SHOW = "bash -c 'echo $RANK $LOCAL_RANK $WORLD_SIZE $ON $CUDA_VISIBLE_DEVICES $MASTER_ADDR:$MASTER_PORT $CUDA_DEVICE_ORDER'"


def test_hosts_in_rank_order_with_their_numbers_of_ranks(running_example):
    files = export(running_example, "openmpi")
    assert " -H gpu-07:4,gpu-03:4 --map-by slot -np 8 --bind-to none" in files["run.sh"]
    assert body(files["hostfile"]) == ["gpu-07"] * 4 + ["gpu-03"] * 4


def test_ranks_that_go_back_and_forth_come_from_the_host_file(make_plan):
    files = export(make_plan(["b", "a", "b"]), "openmpi")
    assert ' --hostfile "$here/hostfile" --map-by seq -np 3 ' in files["run.sh"]
    assert body(files["hostfile"]) == ["b", "a", "b"]


def test_the_rankfile_worked_by_hand(make_plan):
    assert rankfile(make_plan(["b", "a", "b"], [5, 0, 2])) == "rank 0=b slot=0\nrank 1=a slot=0\nrank 2=b slot=1\n"


@draws(8)
@given(st.lists(st.sampled_from(["b", "a", "c-1", "gpu-07.example"]), min_size=1, max_size=8))
def test_every_plan_comes_back_from_script_and_rankfile(tmp_path_factory, make_plan, hosts):
    plan = make_plan(hosts)
    files = export(plan, "openmpi", {"command": SHOW, "master_port": 31_337})
    messages = [RANK_LINE.fullmatch(line).groupdict() for line in body(files["rankfile"])]
    assert [(int(line["rank"]), line["host"]) for line in messages] == list(enumerate(hosts))
    assert len({(line["host"], line["slot"]) for line in messages}) == len(hosts)
    ran = start(files, tmp_path_factory.mktemp("job"))
    assert ran.returncode == 0, ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert [row[3] for row in rows] == hosts
    assert [int(row[4].split(",")[int(row[1])]) for row in rows] == [rank.local_rank for rank in plan.ranks]
    assert {tuple(row[5:]) for row in rows} == {(f"{hosts[0]}:31337", "PCI_BUS_ID")}


def test_domains_are_kept_where_hosts_have_them(make_plan):
    assert "orte_keep_fqdn_hostnames=1" in export(make_plan(["a.one", "a.two"]), "openmpi")["run.sh"]
    assert "orte_keep_fqdn_hostnames=0" in export(make_plan(["a", "b"]), "openmpi")["run.sh"]


def test_a_rank_that_is_told_no_number_starts_nothing(make_plan, tmp_path):
    tells_nothing = '#!/bin/bash\nexec bash -c "${@: -1}"\n'
    ran = start(export(make_plan(["b", "a"]), "openmpi", {"command": "echo started"}) | {"mpirun": tells_nothing}, tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "OMPI_COMM_WORLD_RANK: unbound variable" in ran.stderr


def test_without_its_own_folder_the_script_starts_nothing(make_plan, tmp_path):
    files = export(make_plan(["b", "a", "b"]), "openmpi", {"command": "echo started"})
    (tmp_path / "dirname").write_text("#!/bin/bash\necho /is/not/there\n")
    (tmp_path / "dirname").chmod(0o755)
    ran = start({**files, "mpirun": "#!/bin/bash\necho started\n"}, tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")


def test_a_map_too_long_for_one_command_is_refused(make_plan):
    hosts = [f"host-{number:050d}" for number in range(2_200)]
    with pytest.raises(ExportError, match="ranks: the rank map of 2200 ranks is too long for one mpirun command"):
        export(make_plan(hosts, [0] * 2_200), "openmpi")


def body(text):
    return [line for line in text.splitlines() if not line.startswith("#")]


def start(files, folder):
    for name, content in {"mpirun": MPIRUN, **files}.items():
        (folder / name).write_text(content)
    (folder / "mpirun").chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(["bash", folder / "run.sh"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
