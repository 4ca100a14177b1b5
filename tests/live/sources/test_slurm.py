"""Laws of reading Slurm: what a real 22.05 printed, hostile names, and what cannot be."""

import re
from pathlib import Path

import pytest

from meshwright.errors import MeshwrightError, StateError
from meshwright.live.sources import slurm

RECORDED = (Path(__file__).parent / "data" / "slurm-22.05.txt").read_text()
"""Both answers of a loopback Slurm 22.05.8 of four hosts with four GPUs each; the names of user and machine are replaced."""


def job(number: int, lines: str = "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)", **fields: str) -> str:
    """A record as ``scontrol --details show job`` prints it, of the lines that matter."""
    reported = {"name": "x", "state": "RUNNING", "shares": "OK", "end": "Unknown", "comment": ""} | fields
    head = f"JobId={number} JobName={reported['name']}\n   UserId=ada(1) GroupId=ada(1) MCS_label=N/A\n"
    body = f"   JobState={reported['state']} Reason=None Dependency=(null)\n"
    body += f"   StartTime=2026-11-23T12:00:00 EndTime={reported['end']} Deadline=N/A\n   NodeList=n1\n{lines}\n"
    return (
        head + body + f"   OverSubscribe={reported['shares']} Contiguous=0\n   Comment={reported['comment']}\n   Power=\n   \n\n"
    )


def node(name: str, state: str = "IDLE", gres: str = "gpu:4", used: str | None = None, reason: str = "") -> str:
    """A record as ``scontrol show node`` prints it, of the lines that matter."""
    more = ("" if used is None else f"   GresUsed={used}\n") + f"   State={state} ThreadsPerCore=1\n"
    return f"NodeName={name} Arch=x86_64 \n   Gres={gres}\n{more}" + (f"   Reason={reason}\n" if reason else "") + "\n"


NO_JOBS = "No jobs in the system\n"


def held(*records: str) -> dict[str, dict[str, tuple[int, ...]]]:
    return {one.id: dict(one.devices) for one in slurm.read("".join(records)).state.jobs}


def test_what_a_real_slurm_lists():
    listing = slurm.read(RECORDED)
    # squeue: 1 S, 2 R, 3 R (no GPU), 4 R (exclusive), 5_0 and 5_1 R, 10 CG, 11+0 and 11+1 R, 13 and 14 PD, and ended ones
    assert {one.id: (dict(one.devices), one.whole_hosts) for one in listing.state.jobs} == {
        "1": ({"gpu-03": (0,)}, False),
        "2": ({"gpu-03": (1, 2), "gpu-07": (0, 1)}, False),
        "4": ({"gpu-05": (0, 1, 2, 3)}, True),
        "5_0": ({"gpu-07": (2,)}, False),
        "5_1": ({"gpu-07": (3,)}, False),
        "11+0": ({"gpu-03": (3,)}, False),
        "11+1": ({"gpu-11": (1,)}, False),
    }
    named = {one.id: one for one in listing.state.jobs}
    assert (named["1"].name, named["1"].decision) == ("x NodeList=gpu-99", "3f2a")
    assert (named["2"].name, named["2"].decision) == ('a=b "q" GRES=gpu:9(IDX:0-8)', None)
    assert named["11+1"].model_dump(mode="json")["ends_at"] == "2026-11-24T15:00:39Z"
    assert [named[one].ends_at for one in ("1", "2")] == [None, None]  # suspended; without a limit
    hosts = {name: (host.condition, host.num_devices, host.reason) for name, host in listing.state.hosts.items()}
    assert hosts == {
        "gpu-03": ("up", 4, None),
        "gpu-05": ("up", 4, None),
        "gpu-07": ("drained", 4, "a fan, State=IDLE"),
        "gpu-11": ("drained", 4, "a job is completing on it"),
    }
    assert listing.remarks == ()


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        ("IDLE", "up"),
        ("MIXED+PLANNED", "up"),
        ("IDLE+CLOUD+POWERED_DOWN", "up"),
        ("IDLE+CLOUD+POWERING_UP", "up"),
        ("ALLOCATED+DRAIN", "drained"),
        ("IDLE*", "drained"),
        ("IDLE+NOT_RESPONDING", "drained"),
        ("MIXED+COMPLETING", "drained"),
        ("IDLE+MAINT+RESERVED", "drained"),
        ("IDLE%", "drained"),
        ("UNKNOWN", "drained"),
        ("IDLE+OF_A_LATER_RELEASE", "drained"),
        ("DOWN*", "down"),
        ("DOWN+DRAIN+NOT_RESPONDING", "down"),
        ("IDLE+REBOOT_ISSUED", "down"),
        ("FUTURE", "down"),
    ],
)
def test_states_of_nodes(state, condition):
    (host,) = slurm.read(NO_JOBS + node("n1", state)).state.hosts.values()
    assert host.condition == condition
    assert (host.reason is None) == (condition == "up")


def test_the_reason_of_a_closed_node_is_the_given_one_or_its_state():
    for state, reason in (
        ("IDLE+DRAIN", "a fan"),
        ("DOWN*", "a fan"),
        ("IDLE+COMPLETING", "a job is completing on it"),
        ("IDLE", None),
    ):
        (host,) = slurm.read(NO_JOBS + node("n1", state, reason="a fan [ada@2026-11-23T12:00:00]")).state.hosts.values()
        assert host.reason == reason
    (host,) = slurm.read(NO_JOBS + node("n1", "MIXED+DRAIN+MAINT")).state.hosts.values()
    assert host.reason == "drained, in maintenance"


def test_devices_of_a_node_are_its_gpus_of_every_type():
    for gres, count in (
        ("gpu:8", 8),
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:h100:2(S:0,1),gpu:a100:4,nic:2", 6),
        ("(null)", None),
        ("gpu", 1),
        ("nic:4", None),
    ):
        (host,) = slurm.read(NO_JOBS + node("n1", gres=gres)).state.hosts.values()
        assert host.num_devices == count


def test_a_job_holds_what_its_state_says():
    for state, holds in (
        *((state, True) for state in ("RUNNING", "SUSPENDED", "CONFIGURING", "STAGE_OUT", "OF_A_LATER_RELEASE")),
        ("COMPLETING", False),
        ("CANCELLED", False),
        ("PENDING", False),
    ):
        gres = "gpu:2(IDX:1,3)" if holds else ""  # as Slurm writes it
        lines = f"     Nodes=n1 CPU_IDs=0 Mem=0 GRES={gres}"
        assert held(job(1, lines, state=state), node("n1")) == ({"1": {"n1": (1, 3)}} if holds else {})


def test_whole_hosts_are_held_whole_and_those_of_a_user_are_free_for_nobody():
    lines = "     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:2)"
    (whole,) = slurm.read(job(1, lines, shares="NO") + node("n1") + node("n2")).state.jobs
    assert (whole.devices, whole.whole_hosts) == ({"n1": (0, 1, 2, 3), "n2": (0, 1, 2, 3)}, True)
    (bare,) = slurm.read(job(1, "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=", shares="NO") + node("n1", gres="(null)")).state.jobs
    assert (bare.devices, bare.whole_hosts) == ({"n1": ()}, True)
    listing = slurm.read(job(1, shares="USER") + job(2, "     Nodes=n1 CPU_IDs=1 Mem=0 GRES=gpu:1(IDX:1)") + node("n1"))
    assert [dict(one.devices) for one in listing.state.jobs] == [{"n1": (0, 2, 3)}, {"n1": (1,)}]
    assert listing.remarks == ("the rest of their hosts is kept for the user or group of these jobs: 1",)


def test_a_device_that_two_jobs_hold_is_the_running_ones():
    listing = slurm.read(job(1, state="SUSPENDED") + job(2) + node("n1"))
    assert [(one.id, one.devices) for one in listing.state.jobs] == [("2", {"n1": (0,)})]
    assert listing.remarks == ("devices of these jobs are shown with another one, which holds them too: 1",)


def test_indices_that_slurm_does_not_tell_are_assumed_and_kept():
    lines = "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:2(CNT:2)"
    known = job(1) + node("n1")
    first = slurm.read(known + job(3, lines))
    assert dict(first.state.jobs[1].devices) == {"n1": (1, 2)}
    assert first.remarks == ("Slurm reports how many devices these jobs hold, not which; indices are assumed: 3",)
    again = slurm.read(node("n1") + job(3, lines), first.state)
    assert dict(again.state.jobs[0].devices) == {"n1": (1, 2)}


def test_devices_in_use_by_no_job_of_the_listing_are_held():
    assert held(job(1), node("n1", used="gpu:3")) == {"1": {"n1": (0,)}, "unlisted/n1": {"n1": (1, 2)}}
    assert held(NO_JOBS, node("n1", used="gpu:h100:2(IDX:1,3)")) == {"unlisted/n1": {"n1": (1, 3)}}
    assert held(job(1), node("n1", used="gpu:(null):0(IDX:N/A)")) == {"1": {"n1": (0,)}}


def test_slices_are_no_devices_and_a_host_without_whole_ones_is_closed(cases):
    listing = slurm.read((cases / "slurm" / "slurm_mig_mixed_with_full.txt").read_text())
    hosts = {name: (host.condition, host.num_devices) for name, host in listing.state.hosts.items()}
    assert hosts.pop("l0-h0") == ("up", 4)
    assert set(hosts.values()) == {("down", 8)}
    assert listing.remarks == ("MIG slices are no devices and are left out: l0-h0",)
    for kind in ("nvidia_a100_1g.5gb", "1g.12gb+me", "mig-3g20gb"):
        (host,) = slurm.read(NO_JOBS + node("n1", gres=f"gpu:{kind}:7(S:0)")).state.hosts.values()
        assert (host.condition, host.num_devices, host.reason) == ("drained", None, "its GPUs are cut into MIG slices")


def test_jobs_on_a_host_with_slices_hold_its_whole_devices_in_use_and_no_others():
    cut = node("n1", gres="gpu:1g.10gb:7,gpu:a100:4", used="gpu:1g.10gb:2(IDX:0-1),gpu:a100:3(IDX:7-9)")
    lines = "     Nodes=n1 CPU_IDs=0 Mem=0 GRES="
    jobs = job(1, f"{lines}gpu:1g.10gb:1(IDX:0)"), job(2, f"{lines}gpu:a100:2(IDX:7-8)"), job(3, f"{lines}gpu:2(IDX:1,9)")
    assert held(*jobs, cut) == {"2": {"n1": (0, 1)}, "3": {"n1": (2,)}}


@pytest.mark.parametrize(
    ("gres", "devices"),
    [
        ("shard:1(1/4,0/4)", (0,)),
        ("shard:h100:6(0/4,4/4,2/4)", (1, 2)),
        ("gpu:1(IDX:3),shard:2(0/4,2/4,0/4,0/4)", (1, 3)),
        ("mps:0(0/100,0/100)", ()),
        ("shard:3", (0,)),  # of which GPU is not told
        ("gpu(CNT:2)", (0, 1)),
    ],
)
def test_a_gpu_that_a_job_has_a_part_of_is_held(gres, devices):
    for listing in (
        slurm.read(job(1, f"     Nodes=n1 CPU_IDs=0 Mem=0 GRES={gres}") + node("n1", gres="gpu:4,shard:16", used=gres)),
        slurm.read(NO_JOBS + node("n1", gres="gpu:4,shard:16", used=gres)),
    ):
        assert [dict(one.devices) for one in listing.state.jobs] == ([{"n1": devices}] if devices else [])


def test_a_shared_gpu_of_a_listing_is_held_by_its_one_job(cases):
    listing = slurm.read((cases / "slurm" / "slurm_shard_counts.txt").read_text())
    assert {one.id: dict(one.devices) for one in listing.state.jobs} == {"1": {"g01": (0,)}}


FORGED = "x\n   JobState=PENDING Reason=None\n   OverSubscribe=NO \n"


@pytest.mark.parametrize(
    "name",
    [
        "x NodeList=n2 JobState=PENDING",
        "JobId=7 JobName=y",
        "\"'",
        "Nodes=n1 GRES=gpu:4(IDX:0-3)",
        "\x1b[31m",
        "a\tb\x1c\u2028",
        "",
    ],
)
def test_no_name_or_comment_of_one_line_says_anything_else(name):
    plain = slurm.read(job(1) + node("n1")).state.jobs[0]
    hostile = slurm.read(job(1, name=name, comment=name) + node("n1")).state.jobs[0]
    assert hostile.model_copy(update={"name": plain.name}) == plain
    assert hostile.name is None or hostile.name.isprintable()


def test_line_breaks_forge_no_field_unseen():
    harmless = "a\nb\n\n     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3)\n   Other=1"
    assert held(job(1, name=harmless, comment=harmless), node("n1")) == {"1": {"n1": (0,)}}
    for fields in ({"name": FORGED}, {"comment": FORGED}):
        with pytest.raises(StateError, match=r"job 1: .* appears twice; is there a line break"):
            held(job(1, **fields), node("n1"))
    for message, text in (
        ("the job appears twice", f"x\n\n{job(2)}"),
        ("job 9: the record has no JobState", "x\n\nJobId=9 JobName=y"),
        ("the node appears twice", f"x\n\n{node('n1', 'DOWN')}"),
    ):
        with pytest.raises(StateError, match=message):
            held(job(1, comment=text), job(2), node("n1"))


def test_a_forged_record_frees_no_device():
    body = job(1, "   Other=", state="PENDING").partition("\n")[2]
    swallowed = job(1, name=f"x\n{body}NodeName=n9 \n   State=IDLE")  # what the daemon says of job 1 reads as a node's
    assert held(swallowed, node("n1", used="gpu:1")) == {"unlisted/n1": {"n1": (0,)}}
    claimed = job(1, comment=f"x\n   Power=\n\n{job(3)}")
    assert held(claimed, job(2), node("n1", used="gpu:1")) == {"1": {"n1": (0,)}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no node"),
        (job(1), "holds no node"),
        (node("n1"), "holds no job"),
        (NO_JOBS + node("n1") + node("n1"), "the node appears twice"),
        (job(1, "") + node("n1"), "was scontrol asked without --details"),
        (re.sub("\n +", " ", job(1)) + node("n1"), "is cut short, or was written with --oneliner"),
        (job(1, "     Nodes=n[1- CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)") + node("n1"), "is no list of hosts"),
        (job(1, "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:5-1)") + node("n1"), "indices of devices cannot be read"),
        (job(1, "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:9(IDX:0-999999)") + node("n1"), "indices of devices cannot be read"),
        (job(1, "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:9") + node("n1"), "holds 9 more devices than the host has"),
        (job(1, "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:4)") + node("n1"), "the host has devices 0..3"),
        (NO_JOBS + node("n1", gres="gpu:9999999"), "so many devices cannot be"),
        (NO_JOBS + node("n1", gres="gpu:5000"), "at most 4,096 devices"),
        (job(1, end="2026-13-45T99:00:00") + node("n1"), "ends_at"),
    ],
)
def test_what_cannot_be_understood_is_refused(text, message):
    with pytest.raises(MeshwrightError, match=re.escape(message)) as error:
        slurm.read(text)
    assert "\n" not in str(error.value)


def test_hosts_that_no_cluster_can_name_are_left_out_with_a_remark():
    listing = slurm.read(job(1, "     Nodes=n1,n_2 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)") + node("n1") + node("n_2"))
    assert list(listing.state.hosts) == ["n1"]
    assert dict(listing.state.jobs[0].devices) == {"n1": (0,)}
    assert listing.remarks == ("left out, as no host name by RFC 1123: 'n_2'",)


def test_jobs_that_came_from_decisions_wait_run_or_have_ended():
    """A decision has ended once all its jobs have; ``mw:auto`` asks for one, and is none."""
    ended = {"lines": "", "state": "COMPLETED"}
    listing = slurm.read(
        job(1, lines="", state="PENDING", comment="mw:a")
        + job(2, comment="mw:b", **ended)
        + job(3, comment="mw:c", **ended)
        + job(4, comment="mw:c")
        + job(5, lines="     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:1)", comment="mw:auto job=x")
        + job(6, lines="", state="A_WORD_OF_LATER", comment="mw:d")
        + node("n1")
    )
    assert (listing.queued, listing.ended, listing.waiting) == ({"a": "1"}, {"b": "2"}, ("a",))
    assert {one.id: one.decision for one in listing.state.jobs} == {"4": "c", "5": None}
