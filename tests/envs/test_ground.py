"""The ground that a policy knows: differences of another ground are reported, and its own is not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.training_conditions import TrainingConditions, _rules_of, condition_changes, read_conditions
from meshwright.errors import CheckpointError
from meshwright.simulation.cluster.scenario_settings import ScenarioSettings

KNOWN = TrainingConditions(
    benchmark="mine",
    cluster="ramp-4x4x2",
    topology="ramp",
    num_devices=32,
    device_types=("a100",),
    links="1234",
    jobs=("gnmt", "vgg16"),
    work_s=(4000.0, 36_000.0),
    load=0.7,
    deadline=(0.1, 1.0),
    max_degree=16,
    rules={},
)


def other(**changes):
    return KNOWN.model_copy(update=changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"topology": "clos", "num_devices": 256, "cluster": "c"},
            "c, a clos of 256 a100 (known: ramp-4x4x2, a ramp of 32 a100)",
        ),
        ({"device_types": ("h100",)}, "ramp-4x4x2, a ramp of 32 h100 (known: ramp-4x4x2, a ramp of 32 a100)"),
        ({"links": "5678", "cluster": "c"}, "the links of c (known: those of ramp-4x4x2)"),
        ({"jobs": ("gnmt", "gnmt as measured", "alexnet")}, "jobs gnmt as measured, alexnet (known: gnmt, vgg16)"),
        ({"work_s": (4000.0, 72_000.0)}, "jobs of 4,000 to 72,000 s on one device (known: 4,000 to 36,000)"),
        ({"load": 1.4}, "a load of 1.4 (known: 0.7)"),
        ({"deadline": (0.05, 1.0)}, "deadlines of 0.05 to 1 of the time on one device (known: 0.1 to 1)"),
        ({"deadline": None}, "jobs without deadlines"),
        ({"max_degree": 8}, "jobs of up to 8 ranks (known: 16)"),
        ({"rules": {"queue_capacity": 10}}, "queue_capacity 10 (known: 0)"),
        ({"rules": {"queue_order": "deadline"}}, "queue_order deadline (known: fifo)"),
        ({"rules": {"training": {"kind": "asp"}}}, "training of its own (known: by default)"),
        ({"rules": {"semantics": "pacml-physical"}}, "semantics pacml-physical (known: general)"),
        ({"rules": {"failures": {"repair_s": 1.0}}}, "failures of its own (known: by default)"),
    ],
)
def test_what_is_other_is_told_and_nothing_else(changes, message):
    assert condition_changes("net", [KNOWN], other(**changes)) == f"net was neither trained nor evaluated on {message}"
    assert condition_changes("net", [KNOWN, other(**changes)], other(**changes)) is None


def test_several_things_are_told_in_one_line_and_long_lists_are_cut_short():
    here = other(load=1.4, jobs=tuple(f"job-{i}" for i in range(9)))
    reported = condition_changes("net", [KNOWN], here)
    assert reported.endswith(
        "on jobs job-0, job-1, job-2, job-3, job-4, job-5 and 3 more (known: gnmt, vgg16); a load of 1.4 (known: 0.7)"
    )
    assert len(reported.splitlines()) == 1


def test_names_of_benchmark_and_cluster_are_no_ground():
    assert condition_changes("net", [KNOWN], other(benchmark="yours", cluster="yours")) is None


def test_a_policy_of_many_clusters_tells_them_all():
    large = other(cluster="ramp-8x8x4", num_devices=256)
    reported = condition_changes("net", [KNOWN, large], other(cluster="ramp-4x4x4", num_devices=64))
    assert reported.endswith("(known: ramp-4x4x2, a ramp of 32 a100, ramp-8x8x4, a ramp of 256 a100)")


RANGES = st.tuples(st.floats(1.0, 100.0), st.floats(0.0, 100.0)).map(lambda ends: (ends[0], ends[0] + ends[1]))


def test_rules_are_told_apart_by_what_differs_from_their_preset():
    def rules(**changes):
        scenario = {"cluster": "c", "workload": "w", "num_jobs": 1, **changes}
        return _rules_of(ScenarioSettings.model_validate(scenario))

    assert rules(semantics={"kind": "general"}, queue_capacity=0) == {}
    assert rules(semantics={"kind": "pacml", "preset": "pacml-physical"}) == {"semantics": "pacml-physical"}
    switched = {"kind": "pacml", "preset": "pacml-physical", "defects": {"strict_deadline": True}}
    assert rules(semantics=switched) == {"semantics": "pacml-physical but for strict_deadline"}
    assert rules(queue_capacity=10, queue_order="deadline") == {"queue_capacity": 10, "queue_order": "deadline"}
    assert set(rules(training={"kind": "asp"})) == {"training"}
    assert rules(queue_capacity=10, splitting={"rule": "sip-ml"}) == {"queue_capacity": 10, "splitting": {"rule": "sip-ml"}}


@given(known=st.lists(RANGES, min_size=1, max_size=4), found=RANGES)
def test_a_range_is_known_where_it_lies_within_those_known_together(known, found):
    low, high = min(ends[0] for ends in known), max(ends[1] for ends in known)
    reported = condition_changes("net", [other(work_s=ends) for ends in known], other(work_s=found))
    assert (reported is None) == (found[0] >= 0.99 * low and found[1] <= 1.01 * high)


def test_one_job_alone_has_no_load_and_a_deadline_of_its_own():
    assert condition_changes("net", [KNOWN], other(load=9.0).for_one_job(4000.0, 0.5)) is None
    reported = condition_changes("net", [KNOWN], KNOWN.for_one_job(894.2, None))
    assert reported.endswith("on jobs of 894 s on one device (known: 4,000 to 36,000); jobs without deadlines")


def test_the_ground_of_a_benchmark_worked_by_hand():
    quickstart = load_benchmark("preset:quickstart")
    result = TrainingConditions.from_scenario("quickstart", quickstart.build())
    assert (result.cluster, result.topology, result.num_devices, result.device_types) == ("ramp-4x4x2", "ramp", 32, ("a100",))
    assert result.jobs == ("vgg16", "resnet50", "bert-large", "gpt2-small", "gnmt")
    assert (result.work_s, result.deadline, result.max_degree, result.rules) == ((4000.0, 36_000.0), (0.1, 1.0), 16, {})
    # 20,000 s of work every 900 s for 32 devices
    assert result.load == pytest.approx(20_000 / (900 * 32))
    again = json.loads(json.dumps(result.model_dump(mode="json")))
    assert read_conditions([again], "policy.pt") == (result,)


@pytest.mark.parametrize("change", [{"load": "much"}, {"work_s": [1.0]}, {"rules": None}, {"colour": "red"}])
def test_what_is_no_ground_is_refused(change):
    data = KNOWN.model_dump(mode="json")
    for wrong in ([data | change], data, 3, ["ground"]):
        with pytest.raises(CheckpointError, match=r"policy\.pt: ground: a part of the policy is not what it should be"):
            read_conditions(wrong, "policy.pt")


def test_a_file_of_a_former_version_tells_nothing_and_that_is_told():
    assert read_conditions(None, "policy.pt") == ()
    assert "does not say on which clusters and jobs it was trained" in condition_changes("net", (), KNOWN)
