"""The menu of a small transformer and a convolutional network on eight hosts of eight, and what holds of every menu."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.clusters.settings import ClusterSettings
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.kernels import kernel_model
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.memory import peak_memory
from meshwright.devices import device_type
from meshwright.errors import ConfigError, GraphError, MeshwrightError, PlanError
from meshwright.planners.menu import build
from meshwright.planners.menu.build import build_menu
from meshwright.planners.menu.placement_classes import PlacementClass, PlacementClasses
from meshwright.planners.menu.settings import MenuSettings, load_job_types
from meshwright.settings import build_settings
from meshwright.simulation.fleet.network import fleet_network
from meshwright.simulation.fleet.placing import placement_class

from ...draws import draws
from ...simulation.fleet import samples
from .job_types import types_of

SMALL = {
    "sequence_length": 1024,
    "num_layers": 4,
    "hidden": 2048,
    "num_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "feed_forward": 5632,
    "vocabulary": 32000,
    "max_positions": 2048,
}
LARGE = SMALL | {"num_layers": 60, "hidden": 8192, "num_heads": 64, "num_key_value_heads": 64, "feed_forward": 22016}
KEEP = "tp=1|2|8,pp=1|2,micro_batch=2,virtual_stages=1,schedule=1f1b,zero=0|1,recompute=none,sequence_parallel=false"
MENU = MenuSettings(degrees=(1, 2, 16), keep=KEEP)


def types(*given):
    return types_of(*({"global_batch": 64, **one} for one in given))


PRICES = CostSettings().of_layouts
TYPES = types({"name": "small", "transformer": SMALL}, {"name": "vgg", "job": "zoo:vgg16", "global_batch": 256})
SHAPE = TYPES[0].transformer.shape("small")


@pytest.fixture(scope="module")
def menu(clos):
    return build_menu(TYPES, clos, MENU)


def test_entries_of_a_type_rise_by_degree_and_then_by_step_time(menu):
    table = menu.table
    assert table.first_entry.tolist() == np.searchsorted([e.job_type for e in menu.entries], [0, 1, 2]).tolist()
    assert table.degree.tolist() == [entry.layout.world for entry in menu.entries]
    keys = [(e.job_type, e.layout.world, s.min()) for e, s in zip(menu.entries, table.step_s, strict=True)]
    assert keys == sorted(keys)
    assert max(np.bincount(table.degree[: table.first_entry[1]])) <= MENU.layouts
    assert len(set(table.degree[: table.first_entry[1]].tolist())) == len(MENU.degrees)


def test_a_step_takes_what_an_estimate_says_where_hosts_are_whole(menu, clos):
    priced = 0
    for number, entry in enumerate(menu.entries[: menu.table.first_entry[1]]):
        if entry.layout.world == 16:  # two hosts below one leaf: no uplink counts
            alone = replace(clos.topology, oversubscription=1.0)
            exact = Pricer.from_cluster(replace(clos, topology=alone), PRICES).price(SHAPE, entry.layout, 1024).step_s
            assert menu.table.step_s[number, 0, 3, 1] == pytest.approx(exact, rel=1e-12)
            priced += 1
    assert priced


def test_no_entry_is_faster_on_hosts_of_many_groups_than_of_one(menu):
    table = menu.table
    for number, degree in enumerate(table.degree.tolist()):
        for log_devices in range(table.step_s.shape[2]):
            hosts = degree >> log_devices
            if hosts == 2:
                apart, together = table.step_s[number, 0, log_devices, :2]
                assert apart >= together > 0
    assert (table.hidden_s >= 0).all()
    assert (table.hidden_s[np.isinf(table.step_s)] == 0).all()


def test_more_devices_of_one_family_take_no_more_memory(menu):
    compared = 0
    for entry in menu.entries[: menu.table.first_entry[1]]:
        layout = entry.layout
        if layout.num_micro_batches % 2 == 0:
            more = layout.model_copy(update={"dp": 2 * layout.dp})
            assert peak_memory(menu.job_types[0].work(more))[1].total <= entry.memory_bytes * (1 + 1e-12)
            compared += 1
    assert compared


def test_no_entry_is_beaten_in_time_everywhere_in_memory_and_in_what_it_sends(menu):
    table = menu.table
    sent = [[table.flow_bytes[table.flows(e, 2**k)].sum() for k in range(4)] for e in range(len(menu.entries))]
    figures = np.hstack([table.step_s.reshape(len(sent), -1), table.memory_bytes[:, None], np.array(sent)])
    for one in range(len(sent)):
        alike = [
            e
            for e in range(len(sent))
            if (table.degree[e], menu.entries[e].job_type) == (table.degree[one], menu.entries[one].job_type)
        ]
        assert not any((figures[e] <= figures[one]).all() and (figures[e] < figures[one]).any() for e in alike)


def test_flows_of_a_replica_on_each_of_two_hosts_worked_by_hand(menu):
    (number,) = [e for e, entry in enumerate(menu.entries) if entry.job_type == 1 and entry.layout.world == 2]
    table, graph = menu.table, menu.job_types[1].graph
    assert menu.entries[number].layout.zero == 0
    # An all-reduce of two ranks: each sends half of its gradients twice. On one host nothing leaves it.
    flows = table.flows(number, 1)
    assert list(zip(table.flow_from[flows], table.flow_to[flows], strict=True)) == [(0, 1), (1, 0)]
    assert table.flow_bytes[flows] == pytest.approx(float(graph.parameter_bytes.sum()))
    assert table.flow_streams[flows].tolist() == [1, 1]
    assert table.flows(number, 2) == slice(flows.stop, flows.stop)


def test_states_and_the_least_work(menu):
    table = menu.table
    whole = menu.job_types[0].work(menu.entries[0].layout).stages[0].parameters
    assert table.state_bytes[0] == pytest.approx(14 * whole)
    cost = table.degree[:, None] * table.step_s.reshape(len(table.degree), -1)
    assert table.work_device_s.tolist() == [cost[a:b].min() for a, b in pairwise(table.first_entry)]


def test_a_menu_from_disk_is_the_one_that_was_kept(clos, tmp_path, monkeypatch):
    few, messages = MenuSettings(degrees=(1, 2), keep=KEEP), []
    first = build_menu(TYPES[1:], clos, few, cache=tmp_path, progress=lambda *what: messages.append(what))
    assert messages == [("vgg", 0, 2), ("vgg", 1, 2)]
    monkeypatch.setattr(build, "EntryMaker", None)
    again = build_menu(TYPES[1:], clos, few, cache=tmp_path)
    for one, other in zip(first.table, again.table, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    assert first.entries == again.entries
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(TypeError):  # it is damaged, and nothing builds it again here
        build_menu(TYPES[1:], clos, few, cache=tmp_path)


def test_a_changed_table_of_tuned_kernels_changes_the_key(monkeypatch):
    request = ((), load_cluster("preset:dgx-h200-8x8"), MenuSettings(degrees=(1,)), CostSettings())
    before, model = build._key(*request), kernel_model(device_type("h200"))
    changed = replace(model, tuned=model.tuned.model_copy(update={"kernel_gap_us": 9.0}))
    monkeypatch.setattr(build, "kernel_model", lambda device, values: changed)
    assert build._key(*request) != before


def test_each_device_type_has_its_own_times_and_memory():
    small = {"kind": "clos", "num_hosts": 2, "devices_per_host": 2, "hosts_per_leaf": 1, "num_spines": 1, "oversubscription": 2.0}
    small |= {"intra_host_bandwidth_gbytes_per_s": 300.0, "intra_host_latency_us": 1.0, "nics_per_host": 1}
    small |= {"nic_bandwidth_gbytes_per_s": 25.0, "nic_latency_us": 1.0, "spine_latency_us": 1.0}
    data = {"name": "two", "device": "a100", "topology": small, "device_overrides": {"l1-h0": "v100"}}
    two = Cluster.from_settings(build_settings(ClusterSettings, data))
    table = build_menu(
        types({"name": "small", "transformer": SMALL | {"num_layers": 24}}),
        two,
        MenuSettings(degrees=(1, 2), keep="micro_batch=1|8,pp=1,offload=none"),
    ).table
    fits = table.memory_bytes[:, None] <= [kind.memory_bytes for kind in two.device_types]
    assert (np.isfinite(table.step_s).any(axis=(2, 3)) == fits).all()
    assert fits[:, 1].any()
    assert not fits.all()
    both = fits.all(axis=1)
    assert (table.step_s[both, 0].min(axis=(1, 2)) < table.step_s[both, 1].min(axis=(1, 2))).all()


def test_the_representative_placement_has_so_many_devices_a_host_and_hosts_a_group(clos):
    classes = PlacementClasses(clos, PRICES)
    assert classes.shape == (1, 4, 2)
    places = list(classes.of(16))
    assert places[0] == PlacementClass(0, 8, 2)
    for place in places:
        hosts = clos.device_host[classes.devices(place, 16)]
        result, devices = np.unique(hosts, return_counts=True)
        assert set(devices) == {place.devices_per_host}
        assert set(np.bincount(classes.host_group[result])) <= {0, place.hosts_per_group}
    assert PlacementClass(0, 2, 1) not in places  # eight hosts, but only four groups
    assert PlacementClass(0, 2, 2) in places


@draws(8)
@given(st.sampled_from([2, 4, 8, 16, 32]), st.randoms(use_true_random=False))
def test_every_placement_on_an_uneven_tree_has_a_representative_of_its_class(degree, random):
    cluster = load_cluster("preset:uneven-64")
    classes, network = PlacementClasses(cluster, PRICES), fleet_network(cluster).arrays
    menu = samples.menu_of(network, [[(degree, samples.constant(1.0), samples.constant(0.0), samples.ring(1.0))]])
    problem = samples.problem_of(network, menu)
    assert menu.step_s.shape[1:] == classes.shape
    of = {classes.position(place): place for place in classes.of(degree)}
    for place in of.values():
        hosts = classes.hosts(place, degree)
        assert placement_class(problem, hosts, len(hosts)) == classes.position(place)[2]
    drawn = np.array(random.sample(range(cluster.num_hosts), degree // 2))
    assert (0, 1, placement_class(problem, drawn, len(drawn))) in of


def test_a_job_in_two_sites_of_a_matrix_is_priced_there():
    few = MENU.model_copy(update={"degrees": (2,)})
    topology = {"kind": "matrix", "sites": {"a": 4, "b": 4}, "bandwidth_gbytes_per_s": [[5.0, 0.5], [0.5, 5.0]]}
    cluster = Cluster.from_data(
        {"name": "sites", "device": "a100", "topology": topology | {"latency_us": [[5.0, 5.0], [5.0, 5.0]]}}
    )
    table = build_menu(TYPES[:1], cluster, few).table
    within = build_menu(TYPES[:1], Cluster.from_data(alike(5.0)), few).table
    across = build_menu(TYPES[:1], Cluster.from_data(alike(0.5)), few).table
    assert table.step_s.shape[2:] == (1, 3)  # one, two or four hosts in a group
    # Two devices of one site are as fast as where all links are the fast ones; two in two sites as where all are the slow ones.
    assert fastest(table, 2, 1) == pytest.approx(fastest(within, 2, 1), rel=1e-12)
    assert fastest(table, 2, 0) == pytest.approx(fastest(across, 2, 1), rel=1e-12)


def alike(gbytes_per_s):
    """Eight hosts, every pair equal."""
    topology = {"kind": "matrix", "sites": {"a": 8}, "bandwidth_gbytes_per_s": [[gbytes_per_s]], "latency_us": [[5.0]]}
    return {"name": "alike", "device": "a100", "topology": topology}


def fastest(table, degree, spread):
    """The least step time of so many devices in a class."""
    return table.step_s[table.degree == degree, 0, 0, spread].min()


@pytest.mark.parametrize(
    ("job_types", "menu_settings", "kind", "message"),
    [
        (
            types({"name": "large", "transformer": LARGE}),
            {"degrees": (1, 2)},
            PlanError,
            "large on clos-64-4to1: no layout of large fits",
        ),
        (types({"name": "a", "job": "zoo:vgg16", "global_batch": 6}), {"degrees": (2, 4)}, ConfigError, "no layout of a fits"),
        (TYPES[1:], {"degrees": (128,)}, ConfigError, "clos-64-4to1 has 64 devices"),
        (types({"name": "a", "job": "zoo:vgg17"}), {}, GraphError, "no such job in the zoo (got 'vgg17')"),
        (types({"name": "a", "job": "zoo:vgg16", "sequence_length": 5}), {}, GraphError, "has no sequences"),
        (types({"name": "a", "job": "zoo:gpt2-xl", "sequence_length": 2048}), {}, GraphError, "has only 1024 positions"),
        (TYPES[:1], {"keep": "tpp=2"}, PlanError, "keep.tpp: unknown key"),
        (TYPES[:1], {"keep": "offload=optimizer"}, PlanError, "keep.offload: is not priced"),
        (TYPES[:1], {"entries": [{"name": "one", "partition": "offload=optimizer"}]}, PlanError, "one.partition.offload: is"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(clos, job_types, menu_settings, kind, message):
    with pytest.raises(kind) as error:
        build_menu(job_types, clos, MenuSettings(**menu_settings))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job_types: [{name: a, jobb: x, global_batch: 1}]", "jobb"),
        ("job_types: [{name: a, global_batch: 1}]", "one of the two"),
        ("job_types: [{name: a, job: x, global_batch: 1}, {name: a, job: y, global_batch: 1}]", "a appears twice"),
        ("job_types: []", "job_types"),
    ],
)
def test_a_file_of_job_types_is_read_strictly(tmp_path, text, message):
    path = tmp_path / "types.yaml"
    path.write_text(text)
    with pytest.raises(MeshwrightError, match=message) as error:
        load_job_types(path)
    assert str(path) in str(error.value)


def test_degrees_rise_and_are_powers_of_two():
    for degrees, message in (((1, 3), "no power of two"), ((2, 1), "must rise"), ((1, 1), "must rise")):
        with pytest.raises(ConfigError, match=message):
            build_settings(MenuSettings, {"degrees": degrees})


def test_the_eight_types_of_the_benchmark_are_as_large_as_published():
    loaded = load_job_types("preset:llm-256")
    billions = [build.job_type(one).state_bytes / 14e9 for one in loaded]
    assert billions == pytest.approx([0.124, 0.355, 1.56, 2.65, 6.92, 6.74, 13.0, 32.5], rel=0.01)
    unseen = load_job_types("preset:llm-unseen")
    sizes = [build.job_type(one).state_bytes / 14e9 for one in unseen]
    assert sizes == pytest.approx([0.494, 1.316, 7.24, 8.03, 14.77, 34.4, 46.7], rel=0.01)
    assert not {build.job_type(one).digest for one in unseen} & {build.job_type(one).digest for one in loaded}
    with pytest.raises(MeshwrightError, match="llm-256"):
        load_job_types("preset:llm-265")
