"""The YAML of a study: names written out, quick mode, and what is refused."""

import pytest

from benchmarks.study.study import load_study
from meshwright import settings
from meshwright.errors import ConfigError

from .small_study import write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spoilt(folder, old, new):
    text = (folder / "study.yaml").read_text()
    assert old in text
    (folder / "study.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as told:
        load_study(folder / "study.yaml")
    return str(told.value)


def test_each_stands_for_its_labels_and_every_seed_and_variant_is_a_run(folder):
    study = load_study(folder / "study.yaml")
    assert [run.name for run in study.runs] == [
        *("net-A-seed-0", "net-A-seed-1", "net-B-seed-0", "net-B-seed-1", "parts-full-seed-0", "parts-blind-seed-0"),
    ]
    assert [one.name for one in study.evaluations] == ["rules-A", "rules-B", "nets-A", "nets-B", "parts-played"]
    assert study.evaluations[3].trained == ("net-B",)
    assert [run.name for run in study.runs_of("parts")] == ["parts-full-seed-0", "parts-blind-seed-0"]
    assert [run.name for run in study.runs_of("parts-blind")] == ["parts-blind-seed-0"]


def test_a_run_carries_its_changes_in_order_and_its_name_and_seed(folder):
    study = load_study(folder / "study.yaml")
    assert study.runs[1].changes == ("total_steps=64", "name=net-A-seed-1", "seed=1")
    assert study.runs[5].changes == ("network.without=[look-ahead]", "name=parts-blind-seed-0", "seed=0")


def test_a_quick_study_has_fewer_seeds_and_its_changes_come_before_those_of_variants(folder):
    (folder / "study.yaml").write_text(
        (folder / "study.yaml")
        .read_text()
        .replace("    variants: {full: []", "    quick: [total_steps=8]\n    variants: {full: []")
    )
    study = load_study(folder / "study.yaml", quick=True)
    assert [run.name for run in study.runs] == ["net-A-seed-0", "net-B-seed-0", "parts-full-seed-0", "parts-blind-seed-0"]
    assert study.runs[0].changes == ("total_steps=64", "total_steps=16", "name=net-A-seed-0", "seed=0")
    assert study.runs[3].changes[:2] == ("total_steps=8", "network.without=[look-ahead]")
    assert study.quick is not None
    assert study.quick.num_seeds == 2
    assert load_study(folder / "study.yaml").quick is None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("trained: [net-<each>]", "trained: [nett-<each>]", "evaluations.nets-A.trained: .*'nett-A'.*did you mean 'net-A'"),
        ("[rules-<column>, nets", "[ruls-<column>, nets", "tables.main.evaluations: .*'ruls-A'.*did you mean 'rules-A'"),
        ("ours: net-<column>", "ours: nets-<column>", "tables.main: .*'nets-A'.*did you mean 'net-A'"),
        ("name: parts-played", "name: rules-A", "two things of the study carry this name .*'rules-A'"),
        ("name: parts\n", "name: net-A\n    seeds: [2]\n", "two things of the study|did you mean|nothing in the study"),
        ("name: net-<each>", "name: net", "<each> in the name and labels under each go together"),
        ("name: parts\n", "name: par.ts\n", "training.1.name: must match the pattern"),
        ("kind: ablations", "kind: ablation", "not a valid kind .*did you mean 'ablations'"),
        ("    source: Somebody, 2020\n", "", "theirs: quoted figures need a source"),
        ("quoted: {A:", "quoted: {C:", "theirs: quoted for C, which is no column"),
        ("quoted: {A: \".300\"}", "quoted: {A: \".300\"}, policy: max", "a row shows exactly one of"),
        ("    trained: [parts]", "    references: [beam]\n    trained: [parts]", "parts-played.references: .*'beam'"),
    ],
)  # fmt: skip
def test_a_wrong_study_is_told_by_name_with_the_nearest_valid_one(folder, old, new, told):
    import re

    message = spoilt(folder, old, new)
    assert re.search(told, message), message
    assert "study.yaml" in message
    assert "\n" not in message


def test_the_study_that_comes_with_the_package_is_sound_and_quick_runs_end_soon():
    from importlib.resources import files as resources

    path = str(resources("meshwright.configs").joinpath("results.yaml"))
    whole, quick = load_study(path), load_study(path, quick=True)
    assert {run.training for run in quick.runs} == {run.training for run in whole.runs}
    for run in quick.runs:
        data = {}
        for change in run.changes:
            data = settings.override(data, change)
        assert data.get("total_steps", 0) <= 10_000, run.name
        assert "total_steps" in data or data.get("generations", data.get("updates", 9)) <= 2, run.name
