"""Policies that users write: in each world one that decides as a rule does gives that rule's records."""

import re
from pathlib import Path

import numpy as np
import pytest

from meshwright.cli import run_command_line
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.errors import MeshwrightError, PolicyError
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.fleet.episodes import play_episodes
from meshwright.evaluation.fleet.policies import fleet_player
from meshwright.evaluation.worlds.evaluated_elastic import elastic_policy
from meshwright.evaluation.worlds.evaluated_fleet import EvaluatedFleet
from meshwright.planners.elastic.scheduler import play
from meshwright.planners.elastic.shortest_remaining import ShortestRemaining
from meshwright.planners.own_policy import own_policy
from meshwright.simulation.tasklets.placement import placed_tasklets
from meshwright.worlds.elastic.world import ElasticWorld
from meshwright.worlds.operators.benchmark import load_placement_benchmark
from meshwright.worlds.tasklets.world import load_tasklet_world

from ..elastic_samples import simulation_of, small_benchmark, workload
from ..fleet_samples import DEADLINES, ELASTIC, write_small_fleet

RULES = '''
import numpy as np


class First:
    """The first possible action of any world."""

    def reset(self, seed):
        self.count = 0

    def choose(self, decision, observation):
        assert all(len(values) == len(decision.mask) for values in decision.features.values())
        self.count += 1
        return int(np.flatnonzero(decision.mask)[0])


class Smallest(First):
    """`min`: the fewest ranks that are offered, by first fit."""

    def __init__(self, scenario):
        self.scenario = scenario

    def choose(self, decision, observation):
        ranks = decision.features["ranks"]
        offered = np.flatnonzero((decision.features["placement"] == "first-fit") & decision.mask)
        return int(offered[ranks[offered].argmin()]) if len(offered) else 0


class Cheapest(First):
    """`least-device-seconds`: the first waiting job by its cheapest entry."""

    observes = False

    def choose(self, decision, observation):
        assert not observation
        of_first = decision.mask & (decision.features["kind"] == "start") & (decision.features["place"] == 0)
        if not of_first.any():
            return int(decision.mask.argmax())
        return int(np.where(of_first, decision.features["device_s"], np.inf).argmin())


class Picker(First):
    """The job that may start, on as many devices as may be, and the last hosts."""

    def choose(self, decision, observation):
        assert {"pick"} == set(decision.features["kind"]) or "pick" not in decision.features["kind"]
        return int(np.flatnonzero(decision.mask)[-1])


class Turns(First):
    """`round-robin`."""

    def reset(self, seed):
        self.turn = 0

    def choose(self, decision, observation):
        count = len(decision.mask)
        device = next(d % count for d in range(self.turn, self.turn + count) if decision.mask[d % count])
        self.turn = (device + 1) % count
        return device


class Fastest(First):
    """`shortest-remaining` of a job that is alone."""

    def choose(self, decision, observation):
        fits = np.where(decision.mask, decision.features["remaining_s"], np.inf)
        changes = 30.0 * (decision.features["ranks"] != decision.features["current_ranks"])
        assert decision.features["ranks"].max() <= decision.world.cluster.num_devices
        return int((fits + changes).argmin())


class Raising(First):
    def choose(self, decision, observation):
        return {}["absent"]


class Late(First):
    def choose(self, decision, observation):
        return int(decision.mask.argmin())


class Narrow:
    def reset(self):
        pass

    def choose(self, decision, observation):
        return 0


class Wordy(First):
    def choose(self, decision, observation):
        return "first"
'''


@pytest.fixture(autouse=True)
def rules(tmp_path, monkeypatch):
    (tmp_path / "own_rules_of_all.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "own_rules_of_all.py"


def own(name):
    return f"python:own_rules_of_all:{name}"


def test_one_job_at_a_time_the_fewest_ranks_are_min(compare):
    result = {row["policy"]: row for row in compare(own("Smallest"), own("First"), "min", num_seeds=2).results["rows"]}
    assert result["Smallest"]["per_case"] == result["min"]["per_case"]
    assert result["Smallest"]["kind"] == "own"


@pytest.mark.parametrize("changes", [[], DEADLINES, [*ELASTIC, "fleet.load=2"]])
def test_a_fleets_cheapest_entry_of_the_first_job_is_least_device_seconds(tmp_path, changes):
    fleet = load_fleet_benchmark(str(write_small_fleet(tmp_path)), changes=changes).build()
    mine, rule = (fleet_player(name, fleet) for name in (own("Cheapest"), "least-device-seconds"))
    ones, others = (play_episodes(fleet, player, (0, 1, 2)) for player in (mine, rule))
    assert ones.num_decisions == others.num_decisions
    for one, other in zip(ones.records, others.records, strict=True):
        for name, values in vars(one).items():
            np.testing.assert_array_equal(values, getattr(other, name))


def test_the_rule_of_the_page_starts_each_job_on_the_fewest_devices(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "scheduling_researcher.md").read_text()
    (code,) = re.findall(r"^```python\n(import numpy as np\n\n\nclass .*?)^```", page, re.S | re.M)
    (tmp_path / "rules_of_the_page.py").write_text(code)
    fleet = load_fleet_benchmark(str(write_small_fleet(tmp_path))).build()
    mine, rule = (
        play_episodes(fleet, fleet_player(name, fleet), (0, 1)).records for name in ("python:rules_of_the_page:Narrow", "fixed-1")
    )
    assert [one.finish_s.tolist() for one in mine] == [one.finish_s.tolist() for one in rule]


def test_a_users_policy_picks_hosts_one_by_one(tmp_path):
    fleet = load_fleet_benchmark(str(write_small_fleet(tmp_path)), changes=["fleet.placements=[construct]"]).build()
    played = play_episodes(fleet, fleet_player(own("Picker"), fleet), (0,))
    (record,) = played.records
    assert np.isfinite(record.finish_s).any()
    assert played.num_decisions > len(record.finish_s)


def test_a_fleet_compares_a_users_policy_and_its_masks_apply(tmp_path):
    benchmark = load_fleet_benchmark(str(write_small_fleet(tmp_path)))
    fleet = benchmark.build()
    policies = [own("First"), own("Cheapest"), f"synchronous-only:{own('Cheapest')}", "least-device-seconds"]
    results = evaluate(EvaluatedFleet(benchmark, built=fleet), policies, num_seeds=2).results
    rows = {row["policy"]: row for row in results["rows"]}
    assert {rows[name]["kind"] for name in ("First", "Cheapest", "synchronous-only:Cheapest")} == {"own"}
    assert rows["Cheapest"]["per_case"] == rows["least-device-seconds"]["per_case"]
    assert rows["Cheapest"]["against"]["itself with exact entries"]["mean"] == 0.0
    assert "First" in results["verdict"] or "Cheapest" in results["verdict"]
    for name, message in (("Late", "masked"), ("Wordy", "must choose"), ("Raising", "KeyError: 'absent'")):
        with pytest.raises(PolicyError, match=message):
            play_episodes(fleet, fleet_player(own(name), fleet), (0,))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([own("Narrow")], "Narrow.reset() is called with 1 argument: seed (got 'python:own_rules_of_all:Narrow')"),
        ([own("Chepest")], "did you mean 'Cheapest'?"),
        (["--set", "fleet.objective=blocked"], "valid: blocking_rate, deadline_met_rate, device_hours, makespan_s, "),
        (["--set", "fleet.objective=utilisation"], "valid: blocking_rate, deadline_met_rate, device_hours, makespan_s, "),
    ],
)
def test_what_a_fleet_does_not_have_is_refused_in_one_line_with_what_it_has(words, said, tmp_path, capsys):
    assert run_command_line(["evaluate", *words, "--benchmark", str(write_small_fleet(tmp_path)), "--seeds", "1"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert said in line


def test_devices_in_turns_are_round_robin():
    changes = ["placement.instances.num_ops=[8]", "placement.devices.num_devices=[3]", "best_known_s=0.01", "budgets_s=[0.01]"]
    choice = load_placement_benchmark("preset:latency-tight", changes=changes).model_copy(update={"policies": ()})
    results = evaluate(choice, [own("Turns"), "round-robin", own("First")], num_seeds=3).results
    mine, rule, first = (
        {row["policy"]: row for row in results["rows"]}[name] for name in (own("Turns"), "round-robin", own("First"))
    )
    assert mine["per_case"] == rule["per_case"] != first["per_case"]
    assert (mine["kind"], rule["kind"], results["best_baseline"]) == ("own", "baseline", "round-robin")


def test_devices_in_order_fill_the_stages_in_order():
    changes = ["tasklets.num_devices=[8]", "tasklets.num_stages=[2]", "best_known_s=0.01", "policies=[chain@0.01]"]
    choice = load_tasklet_world("preset:tasklets-64", changes)
    results = evaluate(choice, [own("First")], num_seeds=2).results
    (row,) = (row for row in results["rows"] if row["kind"] == "own")
    in_order = [placed_tasklets(choice.instance("test", seed), np.arange(8).reshape(2, 4), "order").value_s for seed in (0, 1)]
    assert row["per_case"]["over_best_known"] == pytest.approx(np.array(in_order) / results["more"]["known_s"])


@pytest.fixture
def elastic(tmp_path):
    return small_benchmark(tmp_path / "elastic")


def test_a_job_that_is_alone_gets_its_fastest_ranks_as_by_shortest_remaining(elastic):
    simulation, alone = (
        simulation_of(elastic.elastic.folder / "applications"),
        [workload([(0, 1, 4, 64)]), workload([(0, 0, 1, 64)])],
    )
    rule, mine = play(simulation, ShortestRemaining(), alone), elastic_policy(own("Fastest"), ElasticWorld(elastic))
    assert [mine.place(each, 0).completion_s.tolist() for each in alone] == [spans.tolist() for spans in rule]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_module_at_all", "broken.py:1: python:broken:Rule: ModuleNotFoundError"),
        ("def Rule(:", "broken.py:1: python:broken:Rule: SyntaxError"),
        ("class Rule:\n    def __init__(self, world):\n        world.absent", "broken.py:3: python:broken:Rule: AttributeError"),
        ("class Rule:\n    def reset(self, seed): pass\n    choose = 1", r"Rule has no method choose\(decision, observation\)"),
    ],
)
def test_what_is_wrong_with_a_users_code_is_told_with_its_line(code, message, rules, monkeypatch):
    rules.with_name("broken.py").write_text(code)
    monkeypatch.delitem(__import__("sys").modules, "broken", raising=False)
    with pytest.raises(MeshwrightError, match=message) as error:
        own_policy("python:broken:Rule")(object())
    assert "\n" not in str(error.value)
