"""The batched dynamics under PAC-ML's rules against `Episode`, decision for decision and to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import settings as configuration
from meshwright.clusters import load_cluster
from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.job_partitioning import JobPartitioningEnv, JobPartitioningVectorEnv
from meshwright.errors import GraphError, MeshwrightError
from meshwright.jobs import load_graph
from meshwright.jobs.arrivals import Arrivals
from meshwright.jobs.workload import Workload, WorkloadSettings
from meshwright.simulation.cluster.scenario import Scenario, ScenarioSettings, assemble
from meshwright.simulation.cluster.state import Outcome
from meshwright.simulation.pacml.demands import draw_demands
from meshwright.simulation.pacml.semantics import PRESETS, Defects
from meshwright.simulation.pacml.simulator import Simulator

from ...draws import cases, draws
from ...oracles.pacml_episode import Episode, JobOutcome, agent
from .conftest import make_graph

GRAPHS = ("alexnet", "vgg16", "resnet18", "squeezenet1_0", "gnmt")
AGENTS = ("random", "max_parallelism", "acceptable_jct", "fixed4", "fixed8", "ladder16_8_4_2_1", "ladder4_8_2")
SWITCHES = sorted(Defects.model_fields)


def small_graphs(memory=1.0):
    """Short jobs whose ops are cut 1 to 16 ways, so that placements have several parts; memory scales what ops hold."""
    first = make_graph(
        [0.055, 0.25, 400.0, 0.0, 0.075],
        [0.0, 0.5, 600.0, 1.0, 0.1],
        [4e9 * memory, 2e10 * memory, 1e10 * memory, 1e10 * memory, 8e9 * memory],
        [0.0, 4e9 * memory, 8e9 * memory, 0.0, 2e9 * memory],
        [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)],
        name="first",
        kinds=["Input0", "Linear", "Linear", "Concat", "Linear"],
    )
    second = make_graph([0.0, 30.0, 0.05], [2.0, 90.0, 0.1], [1e9, 2e9, 3e9], [1e9, 4e9, 0.0], [(0, 1), (1, 2)], name="second")
    return [second, first]


def workload(graphs, num_steps, interarrival_s, distribution="A"):
    deadline = {"kind": "uniform", "low": 0.1, "high": 1.0, "decimals": 2}
    if distribution != "A":
        deadline |= {"kind": "skew_normal", "skewness": {"B": 5.0, "C": 0.0, "D": -5.0}[distribution]}
    data = {
        "graphs": [graph.name for graph in graphs],
        "draw": "pool",
        "steps": {"kind": "fixed", "num_steps": num_steps},
        "arrivals": {"kind": "fixed", "interarrival_s": interarrival_s},
        "deadline": deadline,
        "drop_input_ops": False,
    }
    return Workload(configuration.build_settings(WorkloadSettings, data), tuple(graphs))


def scenario_of(defects, graphs, *, num_jobs, interarrival_s, rules=("published", "first-fit", "best-fit"), distribution="A"):
    settings = ScenarioSettings(
        cluster="preset:ramp-4x4x2",
        workload="made to measure",
        num_jobs=num_jobs,
        placement_rules=rules,
        semantics={"kind": "pacml", "defects": defects.model_dump()},
    )
    num_steps = 50 if defects.milliseconds_as_seconds else 50_000
    jobs = workload(graphs, num_steps, interarrival_s, distribution)
    return assemble(settings, load_cluster(settings.cluster), jobs)


def arrivals_of(scenario: Scenario, demands, interarrival_s):
    """The jobs of an episode of the published simulator as arrays."""
    names = list(scenario.simulator.jobs)
    fixed = scenario.workload.settings.steps.num_steps
    return Arrivals(
        arrival_s=interarrival_s * np.arange(len(demands)),
        graph_id=np.array([names.index(demand.graph) for demand in demands]),
        num_steps=np.full(len(demands), fixed),
        deadline_fraction=np.array([demand.fraction for demand in demands]),
    )


def candidate_of(scenario, degree):
    """The candidate of the published first fit for a degree; zero for one that no block has."""
    if degree not in scenario.space.degrees:
        return 0
    matches = zip(scenario.candidate_degree, scenario.candidate_rule, strict=True)
    return next(a for a, (d, rule) in enumerate(matches) if (d, rule) == (degree, "published"))


def play_both(scenario, demands, interarrival_s, choose):
    """Decide the same degrees in both; the episode and the record, having compared every decision."""
    defects = scenario.simulator.defects
    plain = Episode(scenario.simulator, demands, len(demands) - 1, interarrival_s)
    batch = EpisodeBatch(scenario, 1)
    batch.begin_with(0, arrivals_of(scenario, demands, interarrival_s))
    while not plain.is_over:
        k = len(plain.decisions)
        mask, degree = plain.mask(), choose(plain)
        reported = scenario_mask(scenario, batch)
        assert [d for d in range(1, len(mask)) if mask[d]] == reported
        decided = plain.decide(degree)
        rewards, _ = batch.step(np.array([candidate_of(scenario, degree)]))
        assert rewards[0] == decided.reward, k
        if decided.fate in (JobOutcome.COMPLETED, JobOutcome.RUNNING):
            assert batch.episodes.completion_s[0, k] == decided.completion_s
            held = scenario.devices_of(int(batch.episodes.block[0, k]))
            assert len(held) == decided.num_servers
        else:
            assert batch.episodes.outcome[0, k] != Outcome.ACCEPTED
        is_free = batch.episodes.free_at_s[0] <= batch.episodes.now_s[0]
        assert is_free.tolist() == plain.is_free.tolist()
    record, totals = batch.record(0), plain.totals()
    served = record.is_served
    window = slice(0 if defects.running_jobs_are_blocked else int(0.1 * plain.num_decisions), None)
    assert record.blocking_rate(window) == pytest.approx(totals.blocking_rate, rel=1e-15)
    if defects.running_jobs_are_blocked:
        assert int(served.sum()) == totals.completed
        assert int((~served).sum()) == totals.blocked
        assert record.num_undecided == 1
    return plain, record


def scenario_mask(scenario, batch):
    from meshwright.simulation.cluster.decision import decision

    waiting = decision(scenario, batch.episodes, 0)
    return [int(degree) for degree in waiting.degree[waiting.is_valid]]


def chooser(name, seed):
    rng, pick = np.random.default_rng([seed, 1]), agent(name)
    return lambda episode: pick(episode, rng)


@pytest.mark.every(3)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", AGENTS)
def test_an_episode_equals_that_of_the_plain_simulator(preset, name):
    graphs = small_graphs()
    scenario = scenario_of(PRESETS[preset], graphs, num_jobs=120, interarrival_s=1000.0)
    for seed in cases(1):
        demands = draw_demands(np.random.default_rng(seed), [g.name for g in graphs], "A", 121, PRESETS[preset])
        plain, _ = play_both(scenario, demands, 1000.0, chooser(name, seed))
    fates = {decision.fate for decision in plain.decisions}
    assert len(fates) >= 2


@draws(4)
@given(seed=st.integers(0, 1000), kept=st.sets(st.sampled_from(SWITCHES)), name=st.sampled_from(AGENTS))
def test_any_subset_of_defects_equals_the_plain_simulator(seed, kept, name):
    defects = Defects.model_validate({switch: switch in kept for switch in SWITCHES})
    graphs = small_graphs()
    scenario = scenario_of(defects, graphs, num_jobs=60, interarrival_s=1000.0)
    demands = draw_demands(np.random.default_rng(seed), [g.name for g in graphs], "A", 61, defects)
    play_both(scenario, demands, 1000.0, chooser(name, seed))


@draws(4)
@given(seed=st.integers(0, 1000), memory=st.sampled_from([1.2, 1.5, 2.0]), preset=st.sampled_from(sorted(PRESETS)))
def test_where_memory_binds_first_fit_is_still_that_of_the_plain_simulator(seed, memory, preset):
    # 2 (4 + 20 + 10 + 10 + 8 + 4 + 8 + 2) GB = 132 GB of the first graph on one server of 80 GB, times the scale
    graphs = small_graphs(memory)
    scenario = scenario_of(PRESETS[preset], graphs, num_jobs=40, interarrival_s=1000.0)
    assert scenario.problem.published.is_tight.any()
    demands = draw_demands(np.random.default_rng(seed), [g.name for g in graphs], "A", 41, PRESETS[preset])
    play_both(scenario, demands, 1000.0, chooser("random", seed))


def test_what_is_known_already_changes_nothing():
    graphs, defects = small_graphs(), PRESETS["pacml-physical"]
    demands = draw_demands(np.random.default_rng(3), [g.name for g in graphs], "A", 101, defects)
    warm = scenario_of(defects, graphs, num_jobs=100, interarrival_s=1000.0)
    for seed in (5, 6, 3):
        _, last = play_both(warm, demands, 1000.0, chooser("random", seed))
    cold = scenario_of(defects, graphs, num_jobs=100, interarrival_s=1000.0)
    _, first = play_both(cold, demands, 1000.0, chooser("random", 3))
    assert first.completion_s.tobytes() == last.completion_s.tobytes()
    assert [first.devices_of(k, cold).tolist() for k in np.flatnonzero(first.is_accepted).tolist()] == [
        last.devices_of(k, warm).tolist() for k in np.flatnonzero(last.is_accepted).tolist()
    ]
    assert first.block.tolist() == last.block.tolist()


def test_an_episode_goes_on_in_another_process_as_it_would_have_here():
    graphs, defects = small_graphs(), PRESETS["pacml-compat"]
    here = scenario_of(defects, graphs, num_jobs=80, interarrival_s=1000.0)
    demands = draw_demands(np.random.default_rng(4), [g.name for g in graphs], "A", 81, defects)

    def play(batch, scenario, decisions, rng):
        seen = []
        for _ in range(decisions):
            offered = np.flatnonzero(batch.observations.action_mask[0])
            rewards, _ = batch.step(np.array([rng.choice(offered)]))
            seen.append((float(rewards[0]), *(value[0].tobytes() for value in batch.observations)))
        return seen

    other = draw_demands(np.random.default_rng(9), [g.name for g in graphs], "A", 81, defects)
    elsewhere = scenario_of(defects, graphs, num_jobs=80, interarrival_s=1000.0)
    busy = EpisodeBatch(elsewhere, 1)  # other placements come first there, so numbers differ
    busy.begin_with(0, arrivals_of(elsewhere, other, 1000.0))
    play(busy, elsewhere, 60, np.random.default_rng(8))
    batch, again = EpisodeBatch(here, 1), EpisodeBatch(elsewhere, 1)
    batch.begin_with(0, arrivals_of(here, demands, 1000.0))
    play(batch, here, 40, np.random.default_rng(1))
    again.restore(batch.state())
    assert all(a.tobytes() == b.tobytes() for a, b in zip(batch.observations, again.observations, strict=True))
    assert play(batch, here, 40, np.random.default_rng(2)) == play(again, elsewhere, 40, np.random.default_rng(2))


@pytest.mark.parametrize("rule", ["first-fit", "best-fit", "aligned", "fastest"])
def test_every_other_rule_holds_one_block_on_its_first_servers(rule):
    graphs, defects = small_graphs(), PRESETS["pacml-physical"]
    scenario = scenario_of(defects, graphs, num_jobs=40, interarrival_s=1000.0, rules=(rule,))
    simulator = Simulator(scenario.cluster, graphs, defects)
    batch = EpisodeBatch(scenario, 1)
    batch.reset(0, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    while not batch.is_over[0]:
        batch.step(np.array([rng.choice(np.flatnonzero(batch.observations.action_mask[0]))]))
    record = batch.record(0)
    assert record.is_accepted.any()
    for k in np.flatnonzero(record.is_accepted).tolist():
        block = scenario.space.block(int(record.block[k]))
        name = scenario.workload.graphs[int(record.graph_id[k])].name
        cut = simulator.split(name, len(block))
        server = np.concatenate([block[:pieces] for pieces in cut.splits.tolist()])
        step = simulator.step(simulator.placed(name, len(block), server))
        assert record.completion_s[k] == step.step_s * record.num_steps[k]


def test_a_six_way_op_sits_on_six_servers_of_a_block_of_eight():
    six = make_graph([0.055, 400.0], [0.1, 900.0], [1e9, 1e9], [1e9, 1e9], [(0, 1)], name="six")
    scenario = scenario_of(PRESETS["pacml-compat"], [six], num_jobs=2, interarrival_s=1e6, rules=("first-fit",))
    assert scenario.simulator.split("six", 8).splits.tolist() == [6, 8, 8, 6]
    batch = EpisodeBatch(scenario, 1)
    batch.begin_with(0, Arrivals(1e6 * np.arange(3), np.zeros(3, int), np.full(3, 50), np.ones(3)))
    batch.step(np.array([1 + scenario.space.degrees.index(8)]))
    block = scenario.space.block(int(batch.episodes.block[0, 0]))
    placed = scenario.simulator.placed("six", 8, np.concatenate([block[:n] for n in (6, 8, 8, 6)]))
    assert batch.episodes.completion_s[0, 0] == scenario.simulator.step(placed).step_s * 50


def test_deadlines_below_the_cut_off_are_drawn_again_without_the_defect():
    graphs = small_graphs()
    clipped = scenario_of(Defects(), graphs, num_jobs=2000, interarrival_s=1.0, distribution="B")
    again = scenario_of(Defects(resample_clips=False), graphs, num_jobs=2000, interarrival_s=1.0, distribution="B")
    low = [(s.sample(np.random.default_rng(0), 2001).deadline_fraction <= 0.1).mean() for s in (clipped, again)]
    assert low[0] > 2 * low[1]


def test_only_the_first_seed_of_an_environment_counts_unless_the_defect_is_off():
    for ignores in (True, False):
        scenario = scenario_of(Defects(reset_ignores_seed=ignores), small_graphs(), num_jobs=20, interarrival_s=1.0)
        one, two = (JobPartitioningEnv("preset:toy", scenario=scenario) for _ in range(2))
        many = JobPartitioningVectorEnv(1, "preset:toy", scenario=scenario)
        drawn = []
        for env, batch in ((one, one._batch), (two, two._batch), (many, many.batch)):
            for _ in range(2):
                env.reset(seed=7)
                drawn.append(batch.record(0).allowed_s.tolist())
        assert drawn[:2] == drawn[2:4] == drawn[4:]
        assert (drawn[0] == drawn[1]) != ignores


def test_the_pool_is_sorted_by_name_without_the_defect():
    graphs = small_graphs()
    names = [
        [graph.name for graph in scenario_of(d, graphs, num_jobs=2, interarrival_s=1.0).workload.graphs]
        for d in (Defects(), Defects(pool_in_given_order=False))
    ]
    assert names == [["second", "first"], ["first", "second"]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"semantics": {"kind": "pacmll"}}, "semantics.kind: not a valid kind"),
        ({"semantics": {"kind": "pacml", "preset": "pacml-compatt"}}, "did you mean 'pacml-compat'"),
        ({"semantics": {"kind": "pacml", "defects": {"ties_by_hsh": True}}}, "did you mean 'ties_by_hash'"),
        ({"semantics": {"kind": "pacml", "defects": {"ties_by_hash": "yes"}}}, "ties_by_hash"),
        ({"semantics": {"kind": "general"}}, "published is a rule of the semantics pacml"),
        ({"semantics": {"kind": "pacml"}, "splitting": {"rule": "sip-ml"}}, "splitting: the semantics pacml cut and price"),
    ],
)
def test_impossible_semantics_are_refused(changes, message):
    data = {"cluster": "c", "workload": "w", "num_jobs": 5, "placement_rules": ["published"], **changes}
    with pytest.raises(MeshwrightError, match="(?s)" + message):
        configuration.build_settings(ScenarioSettings, data)


def test_a_preset_is_a_starting_point_for_changes():
    data = {"cluster": "c", "workload": "w", "num_jobs": 5}
    semantics = {"kind": "pacml", "preset": "pacml-physical", "defects": {"strict_deadline": True}}
    settings = configuration.build_settings(ScenarioSettings, {**data, "semantics": semantics})
    assert {name for name in SWITCHES if getattr(settings.defects, name)} == {"strict_deadline"}
    again = configuration.build_settings(ScenarioSettings, settings.model_dump())
    assert again == settings


def test_a_workload_without_the_input_ops_that_the_semantics_run_is_refused():
    graphs = [replace(graph, source="measured") for graph in small_graphs()]
    jobs = workload(graphs, 50, 1000.0)
    jobs = replace(jobs, settings=jobs.settings.model_copy(update={"drop_input_ops": True}))
    settings = ScenarioSettings(cluster="preset:ramp-4x4x2", workload="w", num_jobs=5, semantics={"kind": "pacml"})
    with pytest.raises(MeshwrightError, match=r"drop_input_ops: the published simulator runs .* drop_input_ops: false"):
        assemble(settings, load_cluster(settings.cluster), jobs)


def test_steps_of_random_length_are_refused_where_milliseconds_pass_as_seconds():
    graphs = small_graphs()
    jobs = workload(graphs, 50, 1000.0)
    random = jobs.settings.model_dump() | {"steps": {"kind": "sequential_time", "low_s": 1.0, "high_s": 2.0}}
    jobs = Workload(configuration.build_settings(WorkloadSettings, random), tuple(graphs))
    settings = ScenarioSettings(cluster="preset:ramp-4x4x2", workload="w", num_jobs=5, semantics={"kind": "pacml"})
    with pytest.raises(MeshwrightError, match="steps: where milliseconds pass as seconds"):
        assemble(settings, load_cluster(settings.cluster), jobs)


def test_without_the_profiles_the_error_says_where_they_come_from():
    from meshwright.envs.benchmark import load_benchmark

    with pytest.raises(GraphError, match="give their folder with --graphs DIR") as caught:
        load_benchmark("preset:pacml-compat-A").build()
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def profiles(reference):
    return [load_graph(name, graphs_dir=reference / "pipedream", keep_input_ops=True) for name in GRAPHS]


@pytest.mark.every(3)
@pytest.mark.reference
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["random", "max_parallelism", "acceptable_jct", "fixed8"])
def test_episodes_of_the_published_jobs_equal_those_of_the_plain_simulator(profiles, preset, name):
    num_jobs = min(400, len(cases(150)))
    scenario = scenario_of(PRESETS[preset], profiles, num_jobs=num_jobs, interarrival_s=1000.0)
    demands = draw_demands(np.random.default_rng(0), list(GRAPHS), "C", num_jobs + 1, PRESETS[preset])
    play_both(scenario, demands, 1000.0, chooser(name, 0))
