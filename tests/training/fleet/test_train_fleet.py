"""Training a fleet's policy: stages, determinism, resuming, and what there is nothing to learn on."""

import json

import numpy as np
import pytest
import torch

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.errors import CheckpointError, ConfigError, NothingToLearnError, PolicyError
from meshwright.evaluation.fleet.policies import condition_changes, fleet_player, policy_name
from meshwright.models.fleet.network import FleetActor
from meshwright.models.fleet.saved import SavedFleetNetwork, player
from meshwright.models.settings import FleetNetworkSettings
from meshwright.planners.fleet.linear_scores import linear_scorer, play_by_scores
from meshwright.planners.fleet.rules import fleet_rule
from meshwright.training.fleet.imitation import TAIL, choose_all, imitate, is_learned, played
from meshwright.training.fleet.settings import ImitationSettings, WeightSearchSettings
from meshwright.training.fleet.vec_env import FleetVecEnv
from meshwright.training.fleet.weight_search import WeightsToSearch, prices_of, scores_of, weight_search
from meshwright.training.hooks.callback import TrainingCallback
from meshwright.training.hooks.lines import LineWriter
from meshwright.training.methods import train
from tests.draws import FACTOR
from tests.tiny_fleet import tiny_fleet

from ..runs import FLEET, SEARCH, curve
from ..runs import fleet_config as chosen


def train_fleet(config, folder, fleet, mixed=(), **options):
    return train(config, folder, built={"fleet": fleet, "mixed": mixed}, **options)


@pytest.fixture(scope="module")
def run(fleet, tmp_path_factory):
    return train_fleet(chosen(), tmp_path_factory.mktemp("run") / "run", fleet)


def test_a_run_leaves_its_stages(run):
    assert run.policy.is_file()
    assert run.imitated.is_file()
    assert run.checkpoint.is_file()
    rows = json.loads(run.learning_curve.read_text())
    assert [row["steps"] for row in rows] == [0, 64, 128]
    assert rows[0]["explained"] <= 1
    assert rows[0]["cross_entropy"] > 0


def test_imitation_learns_to_act_as_the_rule(fleet):
    torch.manual_seed(0)
    env = FleetVecEnv(fleet, 8, 0, scale=0.1)
    network = FleetActor(FleetNetworkSettings(width=16, rounds=1), fleet)
    made = ImitationSettings(rule="sjf", decisions=2000, epochs=5, minibatch=64, learning_rate=1e-2, smoothing=0.0)
    result = imitate(network, env, made, 0.98, lambda share: None)
    rule, same = fleet_rule("sjf", fleet.problem), []
    seen = env.reset()
    for _ in range(40):
        picked = np.zeros(8, np.int64)
        choose_all(fleet.problem, env.batch.state, rule, picked, 0, 1)
        with torch.no_grad():
            scores, _ = network({name: torch.as_tensor(values) for name, values in seen.items()})
        same.append((scores.argmax(dim=1).numpy() == picked).mean())
        env.step_async(picked)
        seen = env.step_wait()[0]
    assert np.mean(same) > 0.8
    assert result["explained"] > 0.1


def test_costs_are_seen_for_a_time_and_not_for_a_number_of_decisions(fleet):
    """Many decisions take no time, so that a hundred of them would leave out most of what the last ones cost."""
    passed = []

    class Timed(FleetVecEnv):
        def step_wait(self):
            result = super().step_wait()
            passed.append(self.elapsed.copy())
            return result

    made = ImitationSettings(rule="sjf", decisions=1000)
    for by_time in (True, False):
        passed.clear()
        _, actions, returns = played(Timed(fleet, 4, 0, by_time=by_time), made, 0.98, None)
        after = np.array(passed[250:]).sum(axis=0).min()
        assert len(actions) == len(returns) == 1000
        assert after >= TAIL
        assert len(passed) == 250 + TAIL or by_time


def test_in_corrections_the_network_plays_and_the_rule_says_what_it_would_have_done(fleet):
    torch.manual_seed(0)
    network = FleetActor(FleetNetworkSettings(width=8, rounds=1), fleet)
    rule, made, by_hand = (
        fleet_rule("sjf", fleet.problem),
        ImitationSettings(rule="sjf", decisions=1000),
        FleetVecEnv(fleet, 8, 0),
    )
    seen, message, _ = played(FleetVecEnv(fleet, 8, 0), made, 0.98, network)
    of_rule, _, _ = played(FleetVecEnv(fleet, 8, 0), made, 0.98, None)
    rows, differs, choose_best = by_hand.reset(), False, player(network)
    for now in range(0, len(message), 8):
        expected = np.zeros(8, np.int64)
        choose_all(fleet.problem, by_hand.batch.state, rule, expected, 0, 1)
        assert (message[now : now + 8].numpy() == expected).all()
        assert all((seen[name][now : now + 8].numpy() == values).all() for name, values in rows.items())
        differs |= any((of_rule[name][now : now + 8].numpy() != values).any() for name, values in rows.items())
        by_hand.step_async(choose_best(by_hand.batch))
        rows = by_hand.step_wait()[0]
    assert differs


def test_no_training_meets_the_jobs_of_a_test_or_validation_episode(fleet):
    known = {float(fleet.sample(np.random.default_rng(seed)).arrival_s[1]) for seed in (*range(20), *range(100, 120))}
    for seed in range(5):
        env = FleetVecEnv(fleet, 4, seed, spreads=False)
        env.reset()
        assert not known & set(env.batch.state.arrival_s[:, 1].tolist())


def test_what_rewards_are_multiplied_by_does_not_drown_the_actions_that_are_imitated(fleet):
    made = ImitationSettings(rule="sjf", decisions=1000, epochs=4, minibatch=50, learning_rate=1e-2, smoothing=0.0)

    def learned(scale, weight):
        torch.manual_seed(0)
        env = FleetVecEnv(fleet, 4, 0, scale=scale, most=1e9, by_time=False, spreads=False)
        network = FleetActor(FleetNetworkSettings(width=8, rounds=1), fleet)
        return imitate(network, env, made.model_copy(update={"value_weight": weight}), 0.98, lambda share: None)["cross_entropy"]

    once, scaled = learned(1.0, None), learned(100.0, None)
    assert scaled == pytest.approx(once, rel=0.25)
    if FACTOR > 1:  # without it they would be drowned
        assert learned(100.0, 1.0) > 1.2 * scaled


def test_where_all_do_equally_well_there_is_nothing_to_learn(tmp_path):
    loose = tiny_fleet(tmp_path, num_jobs=20, queue_capacity=100, deadline={"low": 1e4, "high": 1e5}, objective="blocking_rate")
    with pytest.raises(NothingToLearnError, match="nothing to learn"):
        train_fleet(chosen(), tmp_path / "run", loose)
    assert not (tmp_path / "run").exists()


def test_a_policy_says_where_it_was_not_trained_for(run, fleet, tmp_path):
    trained = SavedFleetNetwork.load(run.path).trained["ground"]
    assert fleet.condition_changes(trained) is None
    assert condition_changes("sjf", fleet) is None
    assert fleet.condition_changes({}) == "one that its file does not name"
    assert tiny_fleet(tmp_path, load=0.5).condition_changes(trained) == "other arrivals or rules"
    others = [{"name": "alexnet", "job": "zoo:alexnet", "global_batch": 256}]
    other = tiny_fleet(tmp_path, job_types=others, objective="mean_wait_s")
    assert condition_changes(str(run.path), other) == (
        "run was not trained for this fleet, but for another menu (vgg16, resnet18, here alexnet) "
        "and another objective (mean_completion_s, here mean_wait_s)."
    )


class _EnoughError(Exception):
    """Ends a search."""


def _raises_enough():
    raise _EnoughError


class _StopsIn(TrainingCallback):
    """Stops in a stage once that share of it is done, and keeps the records before."""

    def __init__(self, stage, share):
        self.stage, self.share, self.seen = stage, share, []

    def on_stage(self, record):
        self.seen.append(record)
        return (record.stage, record.share) < (self.stage, self.share) if record.stage == self.stage else None


@pytest.mark.parametrize(("stage", "share", "generations"), [("search", 0.75, 3), ("imitation", 0.1, 4)])
def test_a_stage_that_is_stopped_keeps_and_says_what_it_has_found(fleet, tmp_path, stage, share, generations, capsys):
    searched = {"search": SEARCH, "network": {"width": 8, "rounds": 1, "prices": True}, "total_steps": 0}
    stops, lines = _StopsIn(stage, share), LineWriter()
    run = train_fleet(chosen(**searched), tmp_path / "run", fleet, callbacks=[stops, lines])
    shares = [record.share for record in stops.seen if record.stage == "search"]
    assert shares == [0.0, 0.25, 0.5, 0.75, 1.0][: len(shares)]
    assert "50 %  of the search  mean completion s" in capsys.readouterr().out
    assert SavedFleetNetwork.load(run.policy).trained["stages"][0]["steps"] == generations
    first = json.loads(run.learning_curve.read_text())[0]
    assert first["validation"] <= first["before_search"] * (1 + 1e-6)


def test_weights_that_find_no_end_are_the_worst_and_cut_off(tmp_path):
    elastic = {"every_s": 20.0, "restart_s": 30.0, "storage_gbytes_per_s": 10.0}
    fleet = tiny_fleet(tmp_path, num_jobs=20, elastic=elastic)
    decisions = []

    def play(batch, weights, most):
        while not batch.state.is_over[0] and len(decisions) < most:
            pauses = np.flatnonzero(batch.state.can_act[0, fleet.problem.first_pause :])
            decisions.append(fleet.problem.first_pause + pauses[0] if len(pauses) else batch.state.can_act[0].argmax())
            batch.step(np.array(decisions[-1:]))

    constants = WeightSearchSettings(generations=1, population=4, num_episodes=1)
    search = weight_search([WeightsToSearch(fleet, np.zeros(2), play)], constants, 0, range(100, 101))
    with pytest.raises(_EnoughError):
        search.run(_raises_enough)
    assert search.values[0][1] >= 1e9
    assert len(decisions) == 12 * 20


def test_a_search_finds_better_prices_than_none_on_episodes_that_it_has_not_seen(fleet):
    constants = WeightSearchSettings(generations=10, population=8, num_episodes=4, validate_every_generations=10)
    search = weight_search([prices_of(fleet)], constants, 0, range(100, 120))
    search.run(lambda: None)
    assert search.values[1][1] < search.values[0][1]
    assert np.abs(search.best).max() > 0


def test_a_search_wants_a_network_that_sets_prices_and_placements_that_find_hosts(tmp_path):
    with pytest.raises(ConfigError, match=r"network\.prices"):
        chosen(search=SEARCH)
    one_by_one = tiny_fleet(tmp_path, num_jobs=20, placements=["construct"])
    with pytest.raises(ConfigError, match="which host to pick"):
        prices_of(one_by_one)
    with pytest.raises(ConfigError, match=r"imitation\.rule: searched wants a search"):
        chosen(imitation={"rule": "searched"})


ON_SEVERAL = {
    "mixed": ["busy.yaml"],
    "search": SEARCH,
    "imitation": None,
    "network": {"width": 8, "rounds": 1, "prices": True, "relative": True},
    "total_steps": 0,
}


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    others = [{"name": "alexnet", "job": "zoo:alexnet", "global_batch": 256}]
    return tiny_fleet(tmp_path_factory.mktemp("busy"), num_jobs=15, load=1.3, job_types=others)


def test_a_search_on_several_fleets_counts_them_alike_and_goes_on_where_it_was_stopped(fleet, busy, tmp_path):
    whole = train_fleet(chosen(**ON_SEVERAL), tmp_path / "whole", fleet, mixed=[busy])
    train_fleet(chosen(**ON_SEVERAL), tmp_path / "run", fleet, mixed=[busy], callbacks=[_StopsIn("search", 0.5)])
    with pytest.raises(CheckpointError, match="another config"):
        train_fleet(chosen(**ON_SEVERAL), tmp_path / "run", fleet, mixed=[fleet], resume=True)
    made = train_fleet(chosen(**ON_SEVERAL), tmp_path / "run", fleet, mixed=[busy], resume=True)
    weights = [SavedFleetNetwork.load(run.policy).weights["prices.direct.weight"] for run in (whole, made)]
    assert torch.equal(*weights)
    (row,) = json.loads(made.learning_curve.read_text())
    assert weights[0].shape == (3, 7)
    values = []
    for one in (fleet, busy):
        search = weight_search([prices_of(one, relative=True)], WeightSearchSettings(**SEARCH), 0, range(100, 101))
        with pytest.raises(_EnoughError):
            search.run(_raises_enough)
        values.append(search.values[0][1])
    assert row["before_search"] == pytest.approx(np.mean(values), rel=1e-12)
    for one in (fleet, busy):
        assert condition_changes(str(made.path), one) is None
    reported = condition_changes(str(made.path), tiny_fleet(tmp_path, load=0.5))
    assert reported == "run was not trained for this fleet, but for 2 others (on tiny)."


def test_several_fleets_are_played_by_a_search_alone_and_are_about_one_thing(fleet, tmp_path):
    with pytest.raises(ConfigError, match=r"mixed: several benchmarks are played by a search alone"):
        chosen(**ON_SEVERAL | {"total_steps": 64})
    with pytest.raises(ConfigError, match=r"mixed: must name benchmarks other than benchmark"):
        chosen(**ON_SEVERAL | {"mixed": ["tiny.yaml"]})
    waits = tiny_fleet(tmp_path, num_jobs=15, objective="mean_wait_s")
    with pytest.raises(ConfigError, match=r"mixed: .* must have the same objective"):
        train_fleet(chosen(**ON_SEVERAL), tmp_path / "run", fleet, mixed=[waits])
    assert not (tmp_path / "run").exists()


def test_linear_scores_are_searched_for_and_then_imitated_with_the_hosts_that_a_rule_picks(tmp_path):
    deadlines = {"deadline": {"low": 1.2, "high": 4.0}, "objective": "blocking_rate", "load": 1.5, "may_refuse": True}
    one_by_one = tiny_fleet(tmp_path, placements=["construct"], candidate_features="none", **deadlines)
    network = {"width": 8, "rounds": 1, "linear": True}
    imitation = FLEET["imitation"] | {"rule": ["searched", "edf+backfill"]}
    run = train_fleet(chosen(search=SEARCH, imitation=imitation, network=network, total_steps=0), tmp_path / "run", one_by_one)
    rows = json.loads(run.learning_curve.read_text())
    assert rows[0]["searched"] <= rows[0]["before_search"]
    direct = [SavedFleetNetwork.load(file).weights["linear.direct"] for file in (run.searched, run.imitated)]
    assert not torch.equal(*direct)
    search = weight_search([scores_of(one_by_one, "fifo")], WeightSearchSettings(**SEARCH), 0, range(100, 101))
    search.run(lambda: None)
    weights = search.best
    assert search.best_of_all[1] == rows[0]["searched"]
    np.testing.assert_allclose(10.0 * direct[0].numpy(), weights, rtol=1e-6)
    taken = chosen(search={"generations": 0, "start": str(run.searched)}, imitation=None, network=network, total_steps=0)
    after = train_fleet(taken, tmp_path / "taken", one_by_one)
    assert torch.equal(SavedFleetNetwork.load(after.searched).weights["linear.direct"], direct[0])
    # The scores alone, with hosts that a rule packs, are a policy of their own.
    picks = fleet_rule("fifo", one_by_one.problem)
    result, expected = FleetBatch(one_by_one, 1, observes=False), FleetBatch(one_by_one, 1, observes=False)
    for batch in (result, expected):
        batch.reset(0, np.random.default_rng(3))
    fleet_player(f"scores:{run.searched}", one_by_one).play(result, [3])
    play_by_scores(
        one_by_one.problem, expected.state, 0, linear_scorer(one_by_one.problem, picks, weights, one_by_one.mean_duration_s)
    )
    np.testing.assert_allclose(result.state.finish_s, expected.state.finish_s)
    assert policy_name(f"scores:{run.searched}") == "scores:searched"


def test_scores_are_asked_of_a_network_that_has_them(fleet, tmp_path):
    run = train_fleet(chosen(total_steps=0, imitation=None), tmp_path / "run", fleet)
    with pytest.raises(CheckpointError, match=r"has no linear scores"):
        fleet_player(f"scores:{run.path}", fleet)
    with pytest.raises(PolicyError, match=r"wants a trained policy"):
        fleet_player("scores:fifo", fleet)
    for kind, words in (("linear", "linear scores"), ("prices", "prices")):
        with pytest.raises(CheckpointError, match=rf"search\.start: has no {words}"):
            train_fleet(chosen(search={"start": str(run.path)}, network={kind: True}, imitation=None), tmp_path / "taken", fleet)
    assert not (tmp_path / "taken").exists()
    with pytest.raises(ConfigError, match=r"search: generations: 0 takes the weights of a policy"):
        chosen(search={"generations": 0}, network={"linear": True})


def test_of_scores_that_were_searched_for_only_the_hosts_are_imitated():
    context = torch.zeros(3, 15)
    context[1, 6] = 1.0
    for rule, expected in (("searched", [0.0, 1.0, 0.0]), ("sjf", [1.0] * 3), (("searched", "sjf"), [1.0] * 3)):
        assert is_learned(context, ImitationSettings(rule=rule)).tolist() == expected
    assert is_learned(context[:1], ImitationSettings(rule="searched")).tolist() == [1.0]  # no host is ever picked


def test_a_gpu_that_is_not_there_is_told_before_anything_is_written(fleet, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: torch sees no CUDA device here"):
        train_fleet(chosen(device="cuda"), tmp_path / "run", fleet)
    assert not (tmp_path / "run").exists()


def test_what_a_network_reads_of_another_fleet_is_where_the_network_is(fleet):
    network = FleetActor(FleetNetworkSettings(width=8, rounds=1), fleet).to("meta")
    network.use(fleet)
    assert {tensor.device.type for tensor in network.menu.buffers()} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
def test_the_same_seed_gives_the_same_run_on_a_gpu_and_its_policy_plays_on_a_core(fleet, tmp_path):
    first, second = (train_fleet(chosen(device="cuda"), tmp_path / name, fleet) for name in ("first", "second"))
    assert curve(first.path) == curve(second.path)
    assert all(weight.device.type == "cpu" for weight in SavedFleetNetwork.load(first.policy).weights.values())
