"""Benchmarks by name and by path."""

from pathlib import Path

import pytest

from meshwright.envs.benchmark import benchmark_names, load_benchmark, load_variants
from meshwright.errors import ConfigError, InputFileError, MeshwrightError


@pytest.mark.parametrize("name", benchmark_names())
def test_every_shipped_benchmark_bears_the_name_of_its_file(name):
    assert load_benchmark(f"preset:{name}").name == name
    assert load_benchmark(name) == load_benchmark(f"preset:{name}")


def test_paths_refer_to_the_folder_of_the_benchmark(small_benchmark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert small_benchmark.build().cluster.num_devices == 8


def test_a_path_that_is_not_beside_the_benchmark_refers_to_the_current_folder(small_benchmark, tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    text = "name: b\nscenario: {cluster: here.yaml, workload: preset:toy, num_jobs: 3}\n"
    (tmp_path / "benchmarks" / "b.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, InputFileError), match=r"here\.yaml"):
        load_benchmark("benchmarks/b.yaml").build()
    (tmp_path / "here.yaml").write_text(Path(small_benchmark.scenario.cluster).read_text())
    assert load_benchmark("benchmarks/b.yaml").scenario.cluster == "here.yaml"
    assert load_benchmark("benchmarks/b.yaml").build().cluster.num_devices == 8


def test_a_folder_does_not_hide_a_shipped_benchmark_but_a_file_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    assert load_benchmark("toy").name == "toy"
    (tmp_path / "toy").rmdir()
    (tmp_path / "toy").write_text("name: mine\nscenario: {cluster: preset:toy, workload: preset:toy, num_jobs: 3}\n")
    assert load_benchmark("toy").name == "mine"
    assert load_benchmark("preset:toy").name == "toy"


FAMILY = """
name: family
scenario: {cluster: preset:host-8, workload: workload.yaml, num_jobs: 9}
policies: [max]
variants:
  twice:
    - scenario.num_jobs=18
    - scenario.workload_changes.arrivals.interarrival_s=350
  random-times:
    - "scenario.workload_changes.arrivals={kind: poisson, mean_interarrival_s: 700}"
    - scenario.workload_changes.graphs=[zoo:alexnet]
  elsewhere:
    - scenario.cluster=pair.yaml
    - policies=[min]
"""
WORKLOAD = """
graphs: [zoo:squeezenet, zoo:alexnet]
steps: {kind: fixed, num_steps: 5000}
arrivals: {kind: fixed, interarrival_s: 700.0}
deadline: {kind: none}
"""
PAIR = """
name: pair
device: a100
topology: {kind: single-host, num_devices: 2, fabric: switch, bandwidth_gbytes_per_s: 100.0, latency_us: 1.0}
"""


@pytest.fixture
def family(tmp_path, monkeypatch):
    """The path of a family of benchmarks that does not lie in the current folder."""
    home = tmp_path / "mine"
    home.mkdir()
    for name, text in (("family.yaml", FAMILY), ("workload.yaml", WORKLOAD), ("pair.yaml", PAIR)):
        (home / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return "mine/family.yaml"


def test_a_variant_equals_the_same_changes_by_hand(family):
    for name, changes in load_benchmark(family).variants.items():
        variant = load_benchmark(f"{family}/{name}")
        by_hand = load_benchmark(family, changes=[*changes, "variants={}"])
        assert variant.name == f"family/{name}"
        assert variant.model_copy(update={"name": "family"}) == by_hand
        assert variant.build().digest == by_hand.build().digest


def test_changes_reach_the_scenario(family):
    twice, random_times, elsewhere = (variant.build() for variant in load_variants(family))
    assert (twice.settings.num_jobs, twice.workload.mean_interarrival_s) == (18, 350)
    assert random_times.workload.settings.arrivals.kind == "poisson"
    assert [graph.name for graph in random_times.workload.graphs] == ["alexnet"]
    assert (elsewhere.settings.num_jobs, elsewhere.cluster.name) == (9, "pair")
    assert load_variants(family)[2].policies == ("min",)


def test_a_family_by_itself_is_what_is_trained_on(family):
    base = load_benchmark(family)
    assert list(base.variants) == ["twice", "random-times", "elsewhere"]
    assert base.build().workload.mean_interarrival_s == 700
    assert load_variants("toy") == (load_benchmark("toy"),)


def test_a_change_reaches_every_variant_and_wins(family):
    changed = load_variants(family, changes=["scenario.num_jobs=5"])
    assert [variant.scenario.num_jobs for variant in changed] == [5, 5, 5]
    assert load_benchmark(f"{family}/twice", changes=["scenario.num_jobs=5"]) == changed[0]


def test_scenarios_that_differ_in_arrivals_alone_share_a_digest(family):
    twice, random_times, _ = (variant.build() for variant in load_variants(family, changes=["scenario.num_jobs=9"]))
    base = load_benchmark(family).build()
    assert twice.digest != base.digest
    assert twice.digest_but_arrivals == base.digest_but_arrivals
    assert random_times.digest_but_arrivals != base.digest_but_arrivals  # other graphs


def test_shipped_variants_are_benchmarks_too():
    sweep = load_variants("load-sweep")
    gaps = [variant.scenario.workload_changes["arrivals"]["interarrival_s"] for variant in sweep]
    assert gaps == [400, 600, 1000, 1500, 2500, 4000]
    assert load_benchmark("preset:load-sweep/every-600-s") == load_benchmark("load-sweep/every-600-s") == sweep[1]
    assert sweep[1].name == "load-sweep/every-600-s"


@pytest.mark.reference
def test_the_sweep_passes_through_the_published_benchmark(reference):
    graphs = reference / "pipedream"
    in_sweep = load_benchmark("load-sweep/every-1000-s").build(graphs_dir=graphs)
    assert in_sweep.digest == load_benchmark("pacml-compat-A").build(graphs_dir=graphs).digest


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("preset:load-sweep/every-60-s", r"benchmark load-sweep: no such variant \(got 'every-60-s'\); valid: "),
        ("load-sweep/often", r"no such variant \(got 'often'\); valid: every-1000-s, "),
        ("toy/often", r"benchmark toy: this benchmark has no variants \(got 'often'\)$"),
        ("preset:lod-sweep/every-600-s", r"unknown benchmark \(got 'lod-sweep'\); did you mean 'load-sweep'\?"),
        ("mine/family.yaml/twise", r"did you mean 'twice'\?"),
    ],
)
def test_an_unknown_variant_is_told_with_the_nearest(family, variant, message):
    with pytest.raises(ConfigError, match=message):
        load_benchmark(variant)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("[scenario.num_job=3]", r"b\.yaml:3: variants: v: scenario\.num_job: unknown key .* did you mean 'num_jobs'\?"),
        ("[scenario.num_jobs=0]", r"b\.yaml:3: variants: v: scenario\.num_jobs: .* \(got 0\)"),
        ("[scenario.num_jobs]", r"b\.yaml:3: variants: v: --set: must read key=value \(got 'scenario\.num_jobs'\)"),
        ("scenario.num_jobs=3", r"b\.yaml:4: variants\.v: "),
    ],
)
def test_a_wrong_variant_is_told_in_one_line(tmp_path, changes, message):
    text = f"name: b\nscenario: {{cluster: preset:toy, workload: preset:toy, num_jobs: 3}}\nvariants:\n  v: {changes}\n"
    (tmp_path / "b.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_benchmark(str(tmp_path / "b.yaml"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("arrivals.interarival_s=5", r"scenario\.workload_changes\.arrivals\.interarival_s: unknown key .* 'interarrival_s'\?"),
        ("steps.num_steps=0", r"scenario\.workload_changes\.steps\.num_steps: .* \(got 0\)"),
        ("graphs=[zoo:alexnett]", r"graphs: no such job in the zoo \(got 'alexnett'\); did you mean 'alexnet'\?"),
    ],
)
def test_a_wrong_change_of_the_workload_is_told_by_its_key(family, change, message):
    with pytest.raises(MeshwrightError, match=message):
        load_benchmark(family, changes=[f"scenario.workload_changes.{change}"]).build()
    with pytest.raises(ConfigError, match=r"^--set: scenario\.num_jobs: "):  # not blamed on the file
        load_benchmark(f"{family}/twice", changes=["scenario.num_jobs=0"])


def test_a_trace_goes_to_a_benchmark_that_follows_one(family):
    with pytest.raises(ConfigError, match="--trace: jobs of this workload do not arrive as a trace recorded them"):
        load_benchmark(family, trace="philly.csv").build()
    with pytest.raises(ConfigError, match=r"arrivals\.file: .* --trace FILE; Microsoft's Philly trace .* petuum/adaptdl"):
        load_benchmark("clos-256-philly").build()
    with pytest.raises(InputFileError, match=r"philly\.csv: no such file"):
        load_benchmark("clos-256-philly", trace="philly.csv").build()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("preset:quikstart", r"unknown benchmark \(got 'quikstart'\); did you mean 'quickstart'\?"),
        ("quikstart", r"no such benchmark and no such file \(got 'quikstart'\); did you mean 'preset:quickstart'\?"),
        ("absent/there.yaml", r"absent/there\.yaml: no such file"),
    ],
)
def test_an_unknown_benchmark_is_told_with_the_nearest(spec, message):
    with pytest.raises((ConfigError, InputFileError), match=message):
        load_benchmark(spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nscenarioo: {}\n", r"b\.yaml:2: scenarioo: unknown key \(got 'scenarioo'\); did you mean 'scenario'\?"),
        ("name: x\n", "scenario: the key is missing"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5, num_warmup_jobs: 5}\n", r"must be less than num_jobs \(5\)"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5, placement_rules: [best-fitt]}\n", "did you mean 'best-fit'"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5, placement_rules: []}\n", "must name at least one rule"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5}\npolicies: [max, max]\n", "must name each policy once"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5}\nreward: {accepted: .nan}\n", r"reward\.accepted"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 0}\n", r"scenario\.num_jobs"),
    ],
)
def test_a_wrong_benchmark_is_told_in_one_line(tmp_path, text, message):
    (tmp_path / "b.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_benchmark(str(tmp_path / "b.yaml"))
    assert "\n" not in str(caught.value)
