"""Values of tasklets: the worked instance, against plain Python, laws, and the reader."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ClusterError, InputFileError, PlanError
from meshwright.simulation.tasklets.instance import TaskletInstance, read_tasklets
from meshwright.simulation.tasklets.placement import placed_tasklets, tasklet_value_s

from ...draws import draws
from ...oracles.tasklet_values import value_s

GBIT = 1e9 / 8


def two_sites(num_stages=2):
    """Two sites of two devices: 10 ms and 1 Gbit/s inside, 100 ms and 0.1 Gbit/s across; 0.1 Gbit is sent in either case."""
    is_inside = np.kron(np.eye(2), np.ones((2, 2))) > 0
    latency, bandwidth = np.where(is_inside, 0.01, 0.1), np.where(is_inside, 1.0, 0.1) * GBIT
    return TaskletInstance("sites", ("a", "a", "b", "b"), latency, bandwidth, num_stages, 0.1 * GBIT, 0.1 * GBIT)


def drawn(seed, num_stages, num_replicas):
    rng = np.random.default_rng(seed)
    n = num_stages * num_replicas
    latency, bandwidth = rng.uniform(0, 0.1, (n, n)), rng.lognormal(0, 1, (n, n)) * GBIT
    if seed % 2:  # few different links, so that matchings tie
        latency, bandwidth = np.round(latency, 1), np.where(bandwidth > GBIT, GBIT, GBIT / 8)
    regions = [f"r{number}" for number in rng.integers(0, 3, n)]
    both = (latency + latency.T, bandwidth + bandwidth.T)
    return TaskletInstance(f"drawn-{seed}", tuple(regions), *both, num_stages, GBIT * rng.uniform(0, 2), GBIT * rng.uniform(0, 2))


def test_stages_inside_sites_or_across_worked_by_hand():
    # Inside: 2 (0.01 + 0.05) = 0.12 and 2 (0.1 + 1.0) = 2.2. Across: 2 (0.1 + 0.5) = 1.2 and 2 (0.01 + 0.1) = 0.22.
    inside, across = (placed_tasklets(two_sites(), np.array(stages), "hand") for stages in ([[0, 1], [2, 3]], [[0, 2], [1, 3]]))
    assert (inside.data_parallel_s, inside.pipeline_parallel_s) == pytest.approx((0.12, 2.2))
    assert (across.data_parallel_s, across.pipeline_parallel_s) == pytest.approx((1.2, 0.22))
    assert inside.value_s == pytest.approx(2.32)
    assert across.value_s == pytest.approx(1.42)
    # Pipelines run inside the sites where stages lie across.
    assert {frozenset(column) for column in across.device_of.T.tolist()} == {frozenset({0, 1}), frozenset({2, 3})}


def test_one_stage_has_no_pipeline_and_one_replica_no_reduction():
    assert placed_tasklets(two_sites(1), np.array([[0, 1, 2, 3]]), "one").pipeline_parallel_s == 0.0
    alone = placed_tasklets(two_sites(4), np.array([[0], [2], [1], [3]]), "four")
    # 0 - 1 across to 2 - 3 or the like: twice 0.11 inside, once 1.1 across.
    assert (alone.data_parallel_s, alone.pipeline_parallel_s) == pytest.approx((0.0, 2 * (0.11 + 1.1 + 0.11)))


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
@draws(60)
def test_the_value_is_that_of_plain_python(seed, num_stages, num_replicas):
    instance = drawn(seed, num_stages, num_replicas)
    stages = np.random.default_rng(seed).permutation(instance.num_devices).reshape(num_stages, num_replicas)
    expected = value_s(instance, stages.tolist())
    result = placed_tasklets(instance, stages, "drawn")
    assert (result.data_parallel_s, result.pipeline_parallel_s) == pytest.approx(expected, rel=1e-12)
    assert tasklet_value_s(instance, stages) == pytest.approx(sum(expected), rel=1e-12)
    # The pipelines that are told cost what is told, and are made of the stages that were given.
    columns = result.device_of
    slowest = sum(instance.hand_over_s[a, b].max() for a, b in pairwise(columns))
    assert 2 * slowest == pytest.approx(result.pipeline_parallel_s, rel=1e-12)
    assert {frozenset(row) for row in columns.tolist()} == {frozenset(row) for row in stages.tolist()}


@given(st.integers(0, 10**6))
@draws(20)
def test_order_and_names_do_not_matter_and_faster_links_do_no_harm(seed):
    instance = drawn(seed, 3, 3)
    rng = np.random.default_rng(seed)
    stages = rng.permutation(9).reshape(3, 3)
    value = tasklet_value_s(instance, stages)
    assert tasklet_value_s(instance, rng.permuted(stages, axis=1)[rng.permutation(3)]) == pytest.approx(value, rel=1e-12)
    faster = TaskletInstance(
        "faster", instance.regions, instance.latency_s, instance.bandwidth_bytes_per_s * rng.uniform(1, 2), 3,
        instance.gradient_bytes, instance.activation_bytes,
    )  # fmt: skip
    assert tasklet_value_s(faster, stages) <= value


def test_bad_groupings_and_instances_are_told():
    with pytest.raises(PlanError, match="each device must be in exactly one stage"):
        placed_tasklets(two_sites(), np.array([[0, 1], [1, 3]]), "twice")
    with pytest.raises(PlanError, match=r"stages: must have the shape \(2, 2\)"):
        placed_tasklets(two_sites(), np.arange(4), "flat")
    with pytest.raises(ClusterError, match="must divide the number of devices, which is 4"):
        two_sites(3)
    whole = two_sites()
    for name, wrong in (("latency_s", -whole.latency_s), ("bandwidth_bytes_per_s", np.zeros((4, 4))), ("latency_s", np.ones(4))):
        given_ = {each: getattr(whole, each) for each in whole.__dataclass_fields__} | {name: wrong}
        with pytest.raises(ClusterError, match=name):
            TaskletInstance(**given_)


def written(tmp_path, **changes):
    data = {
        "regions": ["a", "a", "b", "b"],
        "delay_ms": [[0, 10, 100, 100], [10, 0, 100, 100], [100, 100, 0, 10], [100, 100, 10, 0]],
        "bandwidth_gbps": [[1, 1, 0.1, 0.1], [1, 1, 0.1, 0.1], [0.1, 0.1, 1, 1], [0.1, 0.1, 1, 1]],
        "constants": {"stages_way": 2, "send_gradient_size_GB": 0.0125, "send_activation_size_GB": 0.0125},
    } | changes
    path = tmp_path / "sites.json"
    path.write_text(json.dumps(data))
    return path


def test_the_worked_instance_as_a_file(tmp_path):
    assert tasklet_value_s(read_tasklets(written(tmp_path)), np.array([[0, 2], [1, 3]])) == pytest.approx(1.42)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("regions", 4),
        ("delay_ms", [[0, 1], [1]]),
        ("bandwidth_gbps", [["a"]]),
        ("constants", {"stages_way": 2, "send_gradient_size_GB": "much"}),
        ("constants", {"stages_way": 3, "send_gradient_size_GB": 1, "send_activation_size_GB": 1}),
        ("delay_ms", [[-1.0] * 4] * 4),
    ],
)
def test_a_broken_file_is_told_with_its_field(tmp_path, field, wrong):
    path = written(tmp_path, **{field: wrong})
    with pytest.raises((InputFileError, ClusterError), match=r"sites\.json") as error:
        read_tasklets(path)
    assert "\n" not in str(error.value)
    path.write_text(path.read_text()[:-30])
    with pytest.raises(InputFileError):
        read_tasklets(path)
