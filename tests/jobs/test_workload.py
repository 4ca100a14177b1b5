from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from meshwright import settings
from meshwright.errors import ConfigError, GraphError, InputFileError
from meshwright.jobs.arrivals import Arrivals
from meshwright.jobs.trace import PARTS
from meshwright.jobs.workload import Workload, WorkloadSettings, load_workload, workload_names

BASE = {
    "graphs": ["zoo:alexnet", "zoo:gnmt"],
    "steps": {"kind": "fixed", "num_steps": 50},
    "arrivals": {"kind": "fixed", "interarrival_s": 1000.0},
    "deadline": {"kind": "uniform", "low": 0.1, "high": 1.0, "decimals": 2},
}
TRACE = {"kind": "trace", "file": "trace.csv", "offered_load": 0.5, "num_devices": 4}
PROFILE = "n1 -- {} -- forward_compute_time={}, backward_compute_time=0, activation_size=1, parameter_size=0\n"


def workload(base_folder=None, graphs_dir=None, **changes):
    data = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    return Workload.from_settings(settings.build_settings(WorkloadSettings, data), base_folder=base_folder, graphs_dir=graphs_dir)


def sample(load, num_jobs=500, seed=0):
    return load.sample(np.random.default_rng(seed), num_jobs)


@pytest.fixture
def traced(tmp_path):
    rng = np.random.default_rng(3)
    rows = "".join(
        f"2017-10-{1 + i // 24:02} {i % 24:02}:00:00,{rng.integers(1, 9999)},{rng.choice([1, 2, 8])}\n" for i in range(600)
    )
    (tmp_path / "trace.csv").write_text("timestamp,duration,num_gpus\n" + rows)
    return tmp_path


def fields(arrivals):
    return [getattr(arrivals, name) for name in ("arrival_s", "graph_id", "num_steps", "deadline_fraction")]


VARIANTS = {
    "fixed": {},
    "poisson": {"arrivals": {"kind": "poisson", "mean_interarrival_s": 500.0}},
    "pool": {"draw": "pool"},
    "sequential": {"steps": {"kind": "sequential_time", "low_s": 100.0, "high_s": 900.0}},
    "skewed": {"deadline": {"kind": "skew_normal", "skewness": -5, "low": 0.1, "high": 1.0, "decimals": 2}},
    "trace": {"arrivals": TRACE, "steps": None},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_seed_gives_one_episode_and_another_seed_another(traced, variant):
    first, again = (workload(traced, **VARIANTS[variant]) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(fields(sample(first, 50)), fields(sample(again, 50)), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(fields(sample(first, 50)), fields(sample(first, 50, 1)), strict=True))
    assert first.digest == again.digest


@pytest.mark.parametrize("variant", VARIANTS)
def test_arrivals_keep_their_contract(traced, variant):
    load = workload(traced, **VARIANTS[variant])
    for num_jobs in (1, 2, 50):
        drawn = sample(load, num_jobs)
        assert [values.shape for values in fields(drawn)] == [(num_jobs,)] * 4
        assert [values.dtype for values in fields(drawn)] == [np.float64, np.int64, np.int64, np.float64]
        assert drawn.arrival_s[0] == 0
        assert (np.diff(drawn.arrival_s) >= 0).all()
        assert set(drawn.graph_id) <= {0, 1}
        assert drawn.num_steps.min() >= 1


def test_digests_tell_workloads_apart(traced):
    assert len({workload(traced, **changes).digest for changes in VARIANTS.values()}) == len(VARIANTS)


def test_the_digest_sees_the_device_through_the_times():
    assert workload(device="h100").digest != workload().digest


def test_fixed_arrivals_and_steps_worked_by_hand():
    drawn = sample(workload(), 4)
    assert drawn.arrival_s.tolist() == [0.0, 1000.0, 2000.0, 3000.0]
    assert drawn.num_steps.tolist() == [50] * 4


def test_poisson_gaps_have_their_mean_and_spread():
    load = workload(**VARIANTS["poisson"])
    gaps = np.diff(sample(load, 20_000).arrival_s)
    # An exponential's standard deviation is its mean; 4 standard errors of 20,000 gaps are 2.8 %.
    assert gaps.mean() == pytest.approx(500, rel=0.03)
    assert gaps.std() == pytest.approx(500, rel=0.05)
    assert load.mean_interarrival_s == 500


def test_sequential_times_fill_their_range():
    load = workload(**VARIANTS["sequential"])
    drawn = sample(load)
    step_s = np.array([graph.step_s for graph in load.graphs])[drawn.graph_id]
    sequential_s = drawn.num_steps * step_s
    assert (np.abs(sequential_s - 500) <= 400 + step_s).all()
    assert sequential_s.mean() == pytest.approx(500, rel=0.1)


def test_a_job_never_has_no_step():
    drawn = sample(workload(steps={"kind": "sequential_time", "low_s": 1e-9, "high_s": 1e-8}))
    assert (drawn.num_steps == 1).all()


@given(num_jobs=st.integers(1, 60), seed=st.integers(0, 99))
def test_a_pool_draws_every_graph_about_equally_often(num_jobs, seed):
    counts = np.bincount(sample(POOL, num_jobs, seed).graph_id, minlength=3)
    assert counts.max() <= -(-num_jobs // 3)


POOL = workload(graphs=["zoo:alexnet", "zoo:gnmt", "zoo:vgg16"], draw="pool")


def test_weights_make_a_graph_more_frequent():
    drawn = sample(workload(weights=[3, 1]), 20_000)
    assert (drawn.graph_id == 0).mean() == pytest.approx(0.75, abs=0.015)


def test_jobs_carry_their_deadline_in_seconds():
    load = workload()
    drawn = sample(load)
    job = drawn.job(7, load.graphs)
    assert (job.graph, job.num_steps, job.arrival_s) == (load.graphs[drawn.graph_id[7]], 50, 7000.0)
    assert job.deadline_s == drawn.deadline_fraction[7] * job.sequential_s
    free = workload(deadline={"kind": "none"})
    assert sample(free).job(7, free.graphs).deadline_s is None


def test_a_trace_offers_the_asked_load(traced):
    load = workload(traced, arrivals=TRACE, steps=None)
    drawn = sample(load, 40)
    step_s = np.array([graph.step_s for graph in load.graphs])
    work_s = drawn.num_steps * step_s[drawn.graph_id]
    assert work_s.mean() / (drawn.arrival_s[-1] / 39) == pytest.approx(0.5 * 4)


def test_steps_of_a_trace_match_its_work(traced):
    load = workload(traced, arrivals=TRACE, steps=None)
    num_rows = len(load.trace.work_s)
    first, end = (round(share * num_rows) for share in PARTS["test"])
    drawn = sample(load, end - first)  # all of the test part
    step_s = np.array([graph.step_s for graph in load.graphs])[drawn.graph_id]
    assert (np.abs(drawn.num_steps * step_s - load.trace.work_s[first:end]) <= step_s).all()
    assert 0.3 < (drawn.graph_id == 0).mean() < 0.7  # the hash spreads rows over both graphs


def test_rows_of_a_trace_worked_by_hand(tmp_path):
    # One graph of 3 ms a step; all rows are in the training part but the last two, which are test and validation in order.
    rows = [(0, 10, 4), (60, 7, 1), (100, 6, 2), (160, 1, 2), (200, 3, 2)]
    lines = [f"2017-10-01 00:{at // 60:02}:{at % 60:02},{duration},{gpus}\n" for at, duration, gpus in rows]
    (tmp_path / "trace.csv").write_text("timestamp,duration,num_gpus\n" + "".join(lines[::-1]))
    (tmp_path / "graph.txt").write_text(PROFILE.format("ReLU", 3))
    load = workload(tmp_path, graphs=["graph.txt"], arrivals=TRACE, steps=None)
    # Four rows of two GPUs and more; 40 % of 4 rows is 1.6, so two rows are training, 65 % is 2.6, so one is validation.
    drawn = sample(load, 2, seed=1000)
    assert drawn.num_steps.tolist() == [13_333, 4_000]  # 40 and 12 device-seconds
    # Work of 52 device-seconds at 0.5 x 4 devices: 26 s for two jobs, 13 s between them.
    assert drawn.arrival_s.tolist() == pytest.approx([0.0, (13_333 + 4_000) * 0.003 / 2 / 2])
    assert sample(load, 1, seed=100).num_steps.tolist() == [667]  # 2 device-seconds
    assert sample(load, 1, seed=0).num_steps.tolist() == [2_000]  # 6 device-seconds
    # All 60 device-seconds of four jobs at 2 devices.
    assert load.mean_interarrival_s == pytest.approx(20_000 * 0.003 / 4 / 2)


TOLD = """timestamp,duration,num_gpus,model,steps,due
0,100,2,bert,1000,3600
10,100,2,relu.txt,,
20,100,2,,,60
30,100,4,bert,7,5
"""


@pytest.fixture
def told(tmp_path):
    (tmp_path / "trace.csv").write_text(TOLD)
    (tmp_path / "relu.txt").write_text(PROFILE.format("ReLU", 3))
    (tmp_path / "tanh.txt").write_text(PROFILE.format("Tanh", 5))
    return tmp_path


COLUMNS = {"model": "model", "steps": "steps", "deadline": "due"}


def test_models_steps_and_deadlines_of_a_trace_worked_by_hand(told):
    arrivals = {"kind": "trace", "file": "trace.csv", "columns": COLUMNS, "models": {"bert": "tanh.txt"}}
    load = workload(told, graphs=["relu.txt", "tanh.txt"], arrivals=arrivals, steps=None, deadline={"kind": "none"})
    drawn = load.rows(np.random.default_rng(0), 60)
    rows = set(zip(drawn.graph_id.tolist(), drawn.num_steps.tolist(), drawn.deadline_fraction.tolist(), strict=True))
    by_hash = int(load.trace.hash_fraction[2] >= 0.5)  # two graphs, equally often
    steps = (66_667, 40_000)[by_hash]  # 200 device-seconds of 3 or 5 ms
    assert rows == {
        (1, 1000, 3600 / (1000 * 0.005)),
        (0, 66_667, np.inf),
        (by_hash, steps, 60 / (steps * (0.003, 0.005)[by_hash])),
        (1, 7, 5 / (7 * 0.005)),
    }
    assert load.traced_work_s.tolist() == pytest.approx([5.0, 200.0, 200.0, 0.035])
    assert sample(load, 1, seed=0).arrival_s.tolist() == [0.0]
    plain = workload(told, graphs=["relu.txt", "tanh.txt"], arrivals=TRACE, steps=None, deadline={"kind": "none"})
    assert plain.traced_work_s.tolist() == [200.0, 200.0, 200.0, 400.0]
    assert plain.digest != load.digest


def test_a_model_that_no_graph_is_called_is_told(told):
    arrivals = {"kind": "trace", "file": "trace.csv", "columns": COLUMNS}
    with pytest.raises(InputFileError, match=r"trace.csv: model: no graph of the workload has this name.*\(got 'bert'\)"):
        workload(told, graphs=["relu.txt"], arrivals=arrivals, steps=None)
    with pytest.raises(InputFileError, match=r"\(got 'rely.txt'\); did you mean 'relu.txt'"):
        workload(told, graphs=["relu.txt"], arrivals={**arrivals, "models": {"bert": "rely.txt"}}, steps=None)
    with pytest.raises(ConfigError, match=r"models: columns\.model says which column"):
        workload(told, graphs=["relu.txt"], arrivals={**arrivals, "columns": None, "models": {"a": "b"}}, steps=None)


def test_a_row_keeps_its_graph_in_every_episode(traced):
    load = workload(traced, arrivals=TRACE, steps=None)
    drawn = [sample(load, 30, seed) for seed in range(8)]
    graph_of = {}
    for episode in drawn:
        for steps, graph in zip(episode.num_steps.tolist(), episode.graph_id.tolist(), strict=True):
            # Works are so many different numbers that one number of steps is one row.
            assert graph_of.setdefault(steps, graph) == graph
    assert sum(len(set(episode.num_steps.tolist())) for episode in drawn) > len(graph_of)  # some row came twice


def test_a_trace_that_is_too_short_is_refused(traced):
    load = workload(traced, arrivals=TRACE, steps=None)
    for seed, part in ((0, "test"), (100, "validation"), (1000, "training")):
        message = (
            rf"trace.csv: the {part} split \(.* % of rows, jobs of 2 GPUs and more\) has \d+ jobs; the benchmark needs 999\. "
        )
        with pytest.raises(InputFileError, match=message):
            sample(load, 999, seed)


def test_a_trace_that_nobody_named_is_asked_for():
    nameless = {key: value for key, value in TRACE.items() if key != "file"}
    with pytest.raises(ConfigError, match=r"arrivals.file: .* give its CSV file with --trace FILE; found there$"):
        workload(arrivals={**nameless, "source": "found there"}, steps=None)


def test_the_name_and_source_of_a_trace_change_no_digest(traced):
    named = workload(traced, arrivals={**TRACE, "source": "here"}, steps=None)
    assert named.digest == workload(traced, arrivals=TRACE, steps=None).digest


def test_graphs_are_found_beside_the_file_and_in_the_graphs_folder(tmp_path):
    for folder in ("beside", "graphs/mine"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "graph.txt").write_text(PROFILE.format("ReLU", 2))
    load = workload(tmp_path, tmp_path / "graphs", graphs=["beside", "mine", "zoo:gnmt"])
    assert [graph.name for graph in load.graphs] == ["beside", "mine", "gnmt"]


def test_input_ops_are_dropped_unless_they_are_kept(tmp_path):
    (tmp_path / "fed").mkdir()
    (tmp_path / "fed" / "graph.txt").write_text(
        PROFILE.format("Input", 5) + PROFILE.format("ReLU", 2).replace("n1", "n2") + "\tn1 -- n2\n"
    )
    stored, dropped, usual = (workload(tmp_path, graphs=["fed"], drop_input_ops=drop).graphs[0] for drop in (False, True, None))
    assert (stored.step_s, dropped.step_s, usual.step_s) == pytest.approx((0.007, 0.002, 0.002))
    added = workload(graphs_dir=tmp_path, drop_input_ops=False).graphs[-1]
    assert (added.name, added.step_s) == ("profile-fed", pytest.approx(0.002))


def test_a_graph_that_takes_no_time_is_refused(tmp_path):
    (tmp_path / "graph.txt").write_text(PROFILE.format("ReLU", 0))
    with pytest.raises(GraphError, match="takes no time"):
        workload(tmp_path, graphs=["graph.txt"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graphs": []}, "graphs: "),
        ({"graphs": ["zoo:gnmt", "zoo:gnmt"]}, "zoo:gnmt appears twice"),
        ({"weights": [1.0]}, "1 for 2 graphs"),
        ({"weights": [1.0, 0.0]}, "more than 0"),
        ({"weights": [1.0, 2.0], "draw": "pool"}, "takes neither weights nor a trace"),
        ({"draw": "pol"}, "draw: not a valid choice .* did you mean 'pool'"),
        ({"device": "a10"}, "device: unknown device type .* valid: a100, "),
        ({"steps": None}, "steps: the key is missing"),
        ({"steps": {"kind": "fixed", "num_steps": 0}}, "num_steps: "),
        ({"steps": {"kind": "sequential_time", "low_s": 2, "high_s": 1}}, "low_s 2.0 is above high_s 1.0"),
        ({"arrivals": TRACE}, "a trace gives the work of each job"),
        ({"arrivals": {"kind": "poison"}}, "arrivals.kind: not a valid kind .* did you mean 'poisson'"),
        ({"arrivals": {"kind": "fixed", "interarrival_s": 0}}, "interarrival_s: "),
        ({"arrivals": {"kind": "fixed", "interarival_s": 5}}, "unknown key .* did you mean 'interarrival_s'"),
        ({"dedline": {}}, "unknown key .* did you mean 'deadline'"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        workload(**changes)


def test_an_episode_needs_a_job():
    with pytest.raises(ConfigError, match=r"num_jobs: must be at least 1 \(got 0\)"):
        sample(workload(), 0)


def test_arrivals_refuse_what_a_simulation_could_not_read():
    good = {"arrival_s": np.zeros(2), "graph_id": [0, 1], "num_steps": [1, 1], "deadline_fraction": [1.0, 1.0]}
    with pytest.raises(GraphError, match="graph_id: has shape"):
        Arrivals(**{**good, "graph_id": [0]})
    for times in ([0.0, -1.0], [1.0, 2.0]):
        with pytest.raises(GraphError, match="arrival_s: must start at 0 and not decrease"):
            Arrivals(**{**good, "arrival_s": np.array(times)})


@pytest.mark.parametrize("name", workload_names())
def test_a_shipped_workload_loads_and_explains_every_key(name):
    path = Path(__file__).resolve().parents[2] / "configs" / "workloads" / f"{name}.yaml"
    data = yaml.safe_load(path.read_text())
    if any(not spec.startswith("zoo:") for spec in data["graphs"]) or data["arrivals"]["kind"] == "trace":
        settings.load(WorkloadSettings, path)  # its graphs or its trace come from the user
    else:
        assert sample(load_workload(f"preset:{name}"), 20).num_jobs == 20
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if ":" in line and not line.lstrip().startswith(("#", "-")):
            assert lines[number - 1].lstrip().startswith("#"), f"line {number + 1} is not explained: {line}"


def test_a_workload_is_loaded_by_path_with_changes(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(BASE))
    assert load_workload(path, changes=["steps.num_steps=7"]).settings.steps.num_steps == 7
    with pytest.raises(ConfigError, match=r"\(got 'quickstart'\); did you mean 'preset:quickstart'"):
        load_workload("quickstart")
    with pytest.raises(ConfigError, match="did you mean 'preset:quickstart'"):
        load_workload("preset:quikstart")
    with pytest.raises(InputFileError, match=r"no such file .* did you mean .*mine.yaml"):
        load_workload(tmp_path / "mint.yaml")


@pytest.mark.reference
def test_philly_offers_the_asked_load(reference):
    philly = {"kind": "trace", "file": "traces/philly.csv", "offered_load": 0.8, "num_devices": 256}
    load = workload(reference, arrivals=philly, steps=None)
    drawn = sample(load, 1001)
    work_s = drawn.num_steps * np.array([graph.step_s for graph in load.graphs])[drawn.graph_id]
    assert work_s.mean() / (drawn.arrival_s[-1] / 1000) == pytest.approx(0.8 * 256)
    # All 2,884,998,464 device-seconds of 5,620 jobs at 0.8 x 256 devices; rounding to whole steps moves it little.
    assert load.mean_interarrival_s == pytest.approx(2_884_998_464 / 5620 / (0.8 * 256), rel=1e-4)


@pytest.mark.reference
def test_episodes_of_the_philly_benchmark_offer_its_load(reference):
    load = load_workload("preset:clos-256-philly", changes=[f"arrivals.file={reference / 'traces' / 'philly.csv'}"])
    step_s = np.array([graph.step_s for graph in load.graphs])
    for seed in (0, 19, 100, 1000):
        window = load.trace.window(np.random.default_rng(seed), 1001)
        drawn = sample(load, 1001, seed)
        work_s = drawn.num_steps * step_s[drawn.graph_id]
        # At least one step, so a job of a few seconds on a slow graph may have more work than was recorded, up to a step.
        assert (np.abs(work_s - load.trace.work_s[window]) <= step_s[drawn.graph_id]).all()
        offered = work_s.mean() / (drawn.arrival_s[-1] / 1000) / 256
        assert offered == pytest.approx(load.settings.arrivals.offered_load)
        assert drawn.deadline_fraction.min() >= 0.1


def test_profiles_that_a_workload_does_not_name_are_added_to_it(tmp_path):
    costs = "forward_compute_time=1.0, backward_compute_time=2.0, activation_size=8.0, parameter_size=4.0"
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "graph.txt").write_text(f"node1 -- Conv2d(3, 64) -- {costs}\n")
    added = load_workload("preset:quickstart", graphs_dir=tmp_path)
    assert [graph.name for graph in added.graphs[5:]] == ["profile-alpha", "profile-beta"]
    assert set(added.sample(np.random.default_rng(0), 200).graph_id) == set(range(7))
    assert added.digest != load_workload("preset:quickstart").digest


def test_a_workload_that_adds_no_profiles_keeps_to_its_own_graphs(tmp_path):
    (tmp_path / "alpha").mkdir()
    (tmp_path / "alpha" / "graph.txt").write_text(PROFILE.format("ReLU", 2))
    load = workload(graphs_dir=tmp_path, add_profiles=False)
    assert [graph.name for graph in load.graphs] == ["alexnet", "gnmt"]
    assert load.digest == workload().digest
