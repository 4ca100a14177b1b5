"""The probe's line: what a rank prints, found again behind every launcher's prefix."""

import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputFileError
from meshwright.export.probe import PROBE_WORDS, PROGRAM, Place, read_places

LINE = "meshwright-rank[rank=3 world=8 host=gpu-07 local_rank=1 visible=3,2,1,0]"
# The local rank is the place in the list of visible devices: device 2.
PLACE = Place(rank=3, host="gpu-07", world=8, device=2, source="line 1")


def probe(**environment: str) -> str:
    """Output of the probe under an environment, in a Python without site packages."""
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout


def test_the_line_of_a_rank_with_the_variables_of_torch():
    said = probe(RANK="3", WORLD_SIZE="8", LOCAL_RANK="1", CUDA_VISIBLE_DEVICES="3,2,1,0", MESHWRIGHT_HOST="gpu-07")
    assert said == LINE + "\n"
    assert read_places(said) == [PLACE]


def test_the_variables_of_slurm_and_open_mpi_do_as_well():
    slurm = probe(SLURM_PROCID="3", SLURM_NTASKS="8", SLURM_LOCALID="1", SLURMD_NODENAME="gpu-07")
    assert slurm == "meshwright-rank[rank=3 world=8 host=gpu-07 local_rank=1]\n"
    mpi = probe(OMPI_COMM_WORLD_RANK="3", OMPI_COMM_WORLD_SIZE="8", OMPI_COMM_WORLD_LOCAL_RANK="1")
    assert mpi == f"meshwright-rank[rank=3 world=8 host={socket.gethostname()} local_rank=1]\n"


def test_mpirun_inside_a_slurm_job_counts_the_ranks():
    # every rank of mpirun inherits the numbers of the one Slurm task that started it
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
    said = probe(OMPI_COMM_WORLD_RANK="3", OMPI_COMM_WORLD_SIZE="8", OMPI_COMM_WORLD_LOCAL_RANK="1", **slurm)
    assert " ".join(said.split(" ")[:2]) == "meshwright-rank[rank=3 world=8"
    assert said.endswith(" local_rank=1]\n")


def test_a_program_that_knows_its_coordinates_says_them():
    said = probe(RANK="0", MESHWRIGHT_HOST="a", MESHWRIGHT_PP="1", MESHWRIGHT_TP="0")
    assert read_places(said)[0].coordinates == {"pp": 1, "tp": 0}


def test_the_program_is_one_line_that_is_no_line_of_the_probe_itself():
    assert "\n" not in PROGRAM
    with pytest.raises(InputFileError, match="no rank says where it is"):
        read_places(" ".join(PROBE_WORDS))


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        f"3: {LINE}",
        f"[1,3]<stdout>:{LINE}",
        f"[1,3]<stdout>: {LINE}",
        f"[default3]:{LINE}",
        f"(Worker pid=4711) {LINE}",
        f"\x1b[36m(Worker pid=4711, ip=10.0.0.7)\x1b[0m {LINE}",
        f"[pod/gpt-node0-0-0-x7k2p/node] {LINE}",
        f"2026-11-20T12:00:00.000000000Z {LINE}",
        f"gpu-07: {LINE}",
        f"{LINE}[rank3]: and more",
    ],
)
def test_a_line_is_found_behind_the_prefix_of_every_launcher(line):
    assert read_places(f"{line}\n") == [PLACE]


def test_lines_of_two_ranks_that_ran_together_are_two():
    assert [place.rank for place in read_places(LINE + LINE.replace("rank=3", "rank=4", 1) + "\nnoise\n")] == [3, 4]


@pytest.mark.parametrize(
    ("keys", "device"),
    [
        ("", None),
        (" local_rank=1", None),
        (" visible=", None),
        (" local_rank=1 visible=5,4", 4),
        (" local_rank=3 visible=6", 6),  # one device for each process, as Ray gives them
        (" visible=5,4", None),
        (" local_rank=0 visible=GPU-8f7a,GPU-11aa", None),
    ],
)
def test_the_device_is_the_only_visible_one_or_that_of_the_local_rank(keys, device):
    assert read_places(f"meshwright-rank[rank=0 host=a{keys}]")[0].device == device


def test_a_local_rank_beyond_the_visible_devices_is_refused():
    with pytest.raises(InputFileError, match=r"a\.log:1: rank 7 has LOCAL_RANK 2 and fewer visible devices \(got '5,4'\)"):
        read_places("meshwright-rank[rank=7 host=a local_rank=2 visible=5,4]", file="a.log")


def test_host_names_under_labels_need_no_probe():
    slurm = " 0: gpu-07\n10: gpu-03.example\nsrun: job 7 queued\n"
    assert [(place.rank, place.host) for place in read_places(slurm)] == [(0, "gpu-07"), (10, "gpu-03.example")]
    assert [place.source for place in read_places(slurm, file="a.log")] == ["a.log:1", "a.log:2"]
    mpi = "[1,1]<stdout>:gpu-03\n[1,0]<stdout>:gpu-07\n[1,0]<stderr>:warning\n"
    assert [(place.rank, place.host) for place in read_places(mpi)] == [(1, "gpu-03"), (0, "gpu-07")]


@pytest.mark.parametrize("rank", ["9" * 5000, "\u0663"])  # more digits than Python converts; a digit, and no ASCII
def test_a_label_that_is_no_rank_is_no_place(rank):
    for line in (f"{rank}: gpu-07", f"[1,{rank}]<stdout>:gpu-07"):
        with pytest.raises(InputFileError, match="no rank says where it is"):
            read_places(f"{line}\n")


MAP = """ Data for JOB [31736,1] offset 0 Total slots allocated 4

 ========================   JOB MAP   ========================

 Data for node: gpu-07\tNum slots: 2\tMax slots: 0\tNum procs: 2
 \tProcess OMPI jobid: [31736,1] App: 0 Process rank: 0 Bound: N/A
 \tProcess OMPI jobid: [31736,1] App: 0 Process rank: 2 Bound: N/A

 Data for node: gpu-03\tNum slots: 2\tMax slots: 0\tNum procs: 1
 \tProcess OMPI jobid: [31736,1] App: 0 Process rank: 1 Bound: N/A

 =============================================================
"""


def test_the_map_that_mpirun_displays_needs_no_probe():
    # every daemon prints the map
    assert [(place.rank, place.host) for place in read_places(MAP * 2)] == [(0, "gpu-07"), (2, "gpu-07"), (1, "gpu-03")]


def test_lines_of_the_probe_come_before_anything_else():
    assert read_places(f"0: gpu-03\n{MAP}{LINE}\n", "log") == [Place(3, "gpu-07", 8, 2, source="log:14")]


@given(
    rank=st.integers(0, 10**6),
    host=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True),
    before=st.text(max_size=30).filter(lambda text: "meshwright-rank[" not in text and len((text + ".").splitlines()) == 1),
)
def test_whatever_stands_before_a_line_it_is_found(rank, host, before):
    assert read_places(f"{before}meshwright-rank[rank={rank} host={host}]\n") == [Place(rank, host, source="line 1")]
