"""What a study does, as commands: who needs whom, what a digest depends on, and which names select what."""

import pytest

from benchmarks.study.__main__ import resolved
from benchmarks.study.places import Places
from benchmarks.study.plan import selected, tasks
from benchmarks.study.study import load_study
from benchmarks.study.tasks import shown
from meshwright.errors import ConfigError, PolicyError

from .small_study import write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def places(folder):
    return Places(folder / "out")


def all_tasks(folder, places, quick=False):
    study = load_study(folder / "study.yaml", quick=quick)
    return study, {task.name: task for task in tasks(study, places, resolved)}


def digest(folder, places, name):
    return all_tasks(folder, places)[1][name].digest(places)


def change(folder, file, old, new):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


def test_commands_name_everything_that_they_depend_on(folder, places):
    _, found = all_tasks(folder, places)
    out = str(places.out)
    assert found["net-A-seed-1"].command(places) == [
        *("train", str(folder / "train.yaml"), "--set", "total_steps=64", "--set", "name=net-A-seed-1", "--set", "seed=1"),
        *("--out", f"{out}/training/net-A-seed-1"),
    ]
    assert found["nets-B"].command(places) == [
        *("evaluate", f"{out}/training/net-B-seed-0", f"{out}/training/net-B-seed-1"),
        *(
            "--benchmark",
            str(folder / "benchmark.yaml"),
            "--set",
            "policies=[]",
            "--json",
            f"{out}/evaluations/nets-B/results.json",
        ),
    ]
    assert found["nets-B"].needs == ("net-B-seed-0", "net-B-seed-1")


def test_a_quick_evaluation_plays_few_episodes(folder, places):
    command = all_tasks(folder, places, quick=True)[1]["rules-A"].command(places)
    assert command[command.index("--seeds") + 1] == "2"


def test_commands_on_a_page_name_no_place_of_this_machine(folder, places):
    _, found = all_tasks(folder, places)
    lines = shown(found["rules-A"])
    assert lines[0] == "mkdir -p runs/results/evaluations/rules-A"
    assert lines[1].endswith("--graphs PROFILES --json runs/results/evaluations/rules-A/results.json")
    assert str(places.out) not in " ".join(lines)


def test_a_digest_follows_settings_benchmark_cluster_and_workload_but_no_name_or_comment(folder, places):
    before = digest(folder, places, "net-A-seed-0")
    assert digest(folder, places, "net-A-seed-1") != before
    assert digest(folder, places, "net-B-seed-0") == before  # the same config: the run's name is no setting
    change(folder, "train.yaml", "name: pair", "# a comment\nname: other\nnum_threads: 2")
    assert digest(folder, places, "net-A-seed-0") == before
    seen = {before}
    for file, old, new in (
        ("train.yaml", "epochs: 1", "epochs: 2"),
        ("benchmark.yaml", "num_jobs: 10", "num_jobs: 11"),
        ("benchmark.yaml", "max_degree: 2", "max_degree: 2, shape_slots: 3"),
        ("benchmark.yaml", "num_seeds: 2", "reward: {accepted: 2.0}\nnum_seeds: 2"),
        ("cluster.yaml", "100.0", "50.0"),
        ("workload.yaml", "20.0", "21.0"),
        ("study.yaml", "total_steps=64", "total_steps=65"),
    ):
        change(folder, file, old, new)
        now = digest(folder, places, "net-A-seed-0")
        assert now not in seen, file
        seen.add(now)


def test_an_evaluation_follows_the_bytes_of_the_policies_that_it_plays(folder, places):
    with pytest.raises(PolicyError):
        digest(folder, places, "nets-A")
    for seed, content in ((0, b"one"), (1, b"two")):
        run = places.out / "training" / f"net-A-seed-{seed}"
        run.mkdir(parents=True)
        (run / "policy.pt").write_bytes(content)
    before = digest(folder, places, "nets-A")
    assert digest(folder, places, "nets-A") == before
    (places.out / "training" / "net-A-seed-1" / "policy.pt").write_bytes(b"three")
    assert digest(folder, places, "nets-A") != before


def test_an_evaluation_follows_neither_rewards_nor_what_is_observed(folder, places):
    before = digest(folder, places, "rules-A")
    change(folder, "benchmark.yaml", "max_degree: 2", "max_degree: 2, shape_slots: 3")
    change(folder, "benchmark.yaml", "num_seeds: 2", "reward: {accepted: 2.0}\nnum_seeds: 2")
    assert digest(folder, places, "rules-A") == before
    change(folder, "benchmark.yaml", "[max, best-fixed]", "[max]")
    assert digest(folder, places, "rules-A") != before


def test_names_select_tasks_with_all_that_they_need(folder, places):
    study, found = all_tasks(folder, places)
    every = list(found.values())

    def names(*only):
        return [task.name for task in selected(every, study, only)]

    assert names() == list(found)
    assert names("net-A-seed-1") == ["net-A-seed-1"]
    assert names("net-B") == ["net-B-seed-0", "net-B-seed-1"]
    assert names("nets-A") == ["net-A-seed-0", "net-A-seed-1", "nets-A"]
    assert names("worth") == ["parts-full-seed-0", "parts-blind-seed-0", "parts-played"]
    assert names("times") == [name for name in found if "seed" in name]
    assert names("rules-A", "parts-full") == ["parts-full-seed-0", "rules-A"]


def test_an_unknown_name_is_refused_with_the_nearest_valid_one(folder, places):
    study, found = all_tasks(folder, places)
    with pytest.raises(
        ConfigError, match=r"--only: nothing in the study has this name \(got 'net-A-sed-0'\); did you mean 'net-A-seed-0'"
    ):
        selected(list(found.values()), study, ["net-A-sed-0"])


def test_wrong_configs_and_benchmarks_are_refused_before_anything_runs(folder, places):
    change(folder, "study.yaml", "total_steps=64", "total_step=64")
    with pytest.raises(ConfigError, match=r"--set: total_step: unknown key .*did you mean 'total_steps'"):
        all_tasks(folder, places)
    change(folder, "study.yaml", "total_step=64", "total_steps=64")
    change(folder, "study.yaml", '"policies=[]"', '"policy=[]"')
    with pytest.raises(ConfigError, match=r"policy: unknown key .*did you mean 'policies'"):
        all_tasks(folder, places)


def test_what_is_not_pretrained_has_no_network_before_ppo(folder, places):
    change(folder, "study.yaml", "trained: [parts]", "pretrained: [parts-full]")
    with pytest.raises(ConfigError, match=r"parts-played.pretrained: is not pretrained"):
        all_tasks(folder, places)


SCORER = """
method: linear
name: scorer
benchmark: benchmark.yaml
generations: 2
population: 4
elite: 2
num_episodes: 1
num_validation_seeds: 1
"""


def test_a_rollout_planner_plays_over_a_scorer_of_the_study_and_follows_its_bytes(folder, places):
    (folder / "scorer.yaml").write_text(SCORER)
    change(folder, "study.yaml", "  - name: parts\n", "  - {name: scorer, config: scorer.yaml}\n  - name: parts\n")
    change(folder, "study.yaml", "trained: [parts]", "planned: [scorer]")
    task = all_tasks(folder, places)[1]["parts-played"]
    run = places.out / "training" / "scorer-seed-0"
    assert task.needs == ("scorer-seed-0",)
    assert task.specs(places) == [f"rollout({run})"]
    run.mkdir(parents=True)
    (run / "policy.json").write_text("{}")
    before = task.digest(places)
    (run / "policy.json").write_text("[]")
    assert task.digest(places) != before


def test_only_over_a_scorer_can_a_rollout_planner_play_on(folder, places):
    change(folder, "study.yaml", "trained: [parts]", "planned: [parts-full]")
    with pytest.raises(ConfigError, match=r"parts-played.planned: is no linear scorer, so no rollout planner can play on"):
        all_tasks(folder, places)


def test_a_benchmark_that_follows_a_trace_waits_for_one_and_training_is_told_where_it_is(folder, places):
    rows = "".join(f"2017-10-0{day} 10:0{minute}:00,600,2\n" for day in range(1, 10) for minute in range(10))
    (folder / "trace.csv").write_text(f"timestamp,duration,num_gpus\n{rows}")
    change(folder, "workload.yaml", "{kind: fixed, interarrival_s: 20.0}", "{kind: trace, offered_load: 0.5, num_devices: 2}")
    change(folder, "workload.yaml", "steps: {kind: fixed, num_steps: 1000}\n", "")
    _, found = all_tasks(folder, places)
    assert found["net-A-seed-0"].lacks(places) == "needs --trace FILE"
    assert found["rules-A"].lacks(places) == "needs --trace FILE"
    given = Places(places.out, None, folder / "trace.csv")
    _, found = all_tasks(folder, given)
    assert found["rules-A"].lacks(given) is None
    assert f'changes=["scenario.workload_changes.arrivals.file={folder}/trace.csv"]' in found["net-A-seed-0"].command(given)
    assert ["--trace", str(folder / "trace.csv")] == found["rules-A"].command(given)[-4:-2]
    before = found["net-A-seed-0"].digest(given)
    (folder / "moved.csv").write_text((folder / "trace.csv").read_text())
    moved = Places(places.out, None, folder / "moved.csv")
    assert all_tasks(folder, moved)[1]["net-A-seed-0"].digest(moved) == before  # what it holds counts, not where it lies
