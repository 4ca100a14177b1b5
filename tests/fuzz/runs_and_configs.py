"""Readers of benchmarks, training configs and studies, and of what one page shows of runs."""

import json
from functools import partial
from pathlib import Path

from meshwright.cli.keys import cost_settings
from meshwright.envs.benchmark import load_benchmark, load_variants
from meshwright.evaluation.saved_results import read_results
from meshwright.evaluation.tables import to_csv, to_markdown
from meshwright.planners.linear import DIGEST, FEATURES, FORMAT_VERSION, KIND, LinearWeights
from meshwright.training.linear.settings import LinearSettings
from meshwright.training.run_folder import to_yaml
from meshwright.training.settings import load_train_settings, load_with_paths

from . import inputs
from .commands import answered, words
from .inputs import written
from .jobs_and_clusters import WORKLOADS
from .running import Target


def _benchmark(text: str, folder: Path) -> None:
    for variant in load_variants(str(written(folder / "benchmark.yaml", text))):
        json.dumps(variant.model_dump(mode="json"), allow_nan=False)


def _evaluated(text: str, folder: Path) -> None:
    """A benchmark played by two rules of thumb, with its report."""
    (folder / "benchmark.yaml").write_text(text)
    (folder / "pair.yaml").write_text(inputs.PAIR)
    (folder / "graph.txt").write_text(inputs.valid("graph.txt"))
    (folder / "jobs.csv").write_text(inputs.valid("jobs.csv"))
    (folder / "workload.yaml").write_text(WORKLOADS[0])
    answered("evaluate", "--benchmark", "benchmark.yaml", "--seeds", "2", "--out", "out")


def _planned(text: str, folder: Path) -> None:
    (folder / "graph.txt").write_text(inputs.valid("graph.txt"))
    (folder / "pair.yaml").write_text(inputs.PAIR)
    answered("plan", "--job", "graph.txt", "--cluster", "pair.yaml", *words(text))


def _training(text: str, folder: Path) -> None:
    config = load_train_settings(written(folder / "train.yaml", text))
    assert load_train_settings(written(folder / "again.yaml", to_yaml(config))).model_dump() == config.model_dump()


def _tuning(text: str, folder: Path) -> None:
    load_with_paths(LinearSettings, written(folder / "train.yaml", text))


def _changes(text: str, folder: Path) -> None:
    load_benchmark("toy", changes=[text])


def _cost_changes(text: str, folder: Path) -> None:
    cost_settings([text])


def _read_results(text: str, folder: Path) -> None:
    result = read_results(written(folder / "results.json", text))
    to_csv(result)
    to_markdown(result)


def _summarised(spoilt: str, text: str, folder: Path) -> None:
    """One page of two runs, where a file of one run is spoilt."""
    whole = {"results.json": inputs.valid("results.json"), "learning_curve.json": CURVE, "config.yaml": CONFIG}
    other = whole | {
        "results.json": whole["results.json"].replace('"max"', '"other"'),
        "config.yaml": "name: b\nseed: 1\nbenchmark: small\n",
    }
    for name, files in (("a", whole | {spoilt: text}), ("b", other)):
        (folder / "runs" / name).mkdir(parents=True)
        for file, content in files.items():
            written(folder / "runs" / name / file, content)
    answered("evaluate", "--summarise", "runs", "--out", "out", "--against", "other")


def _scorer(text: str, folder: Path) -> None:
    weights = LinearWeights.load(written(folder / "policy.json", text))
    weights.save(folder / "again.json")


BENCHMARKS = (
    """name: small
scenario:
  cluster: pair.yaml
  workload: workload.yaml
  num_jobs: 6
  num_warmup_jobs: 1
  max_degree: 2
  placement_rules: [first-fit, best-fit]
  queue_capacity: 1
policies: [max, min]
num_seeds: 2
num_validation_seeds: 2
reward: {accepted: 1.0, blocked: -1.0, slack: 0.5}
""",
    """name: family
scenario:
  cluster: pair.yaml
  workload: workload.yaml
  workload_changes: {arrivals: {kind: poisson, mean_interarrival_s: 10.0}, deadline: {kind: uniform, low: 0.5, high: 2.0}}
  num_jobs: 6
  max_degree: 2
  arrivals_per_slot: 2.0
  failures: {mean_time_between_failures_h: 100.0, repair_s: 60.0, checkpoint_every_s: 60.0, restart_s: 10.0}
  preemption: {rate_per_job_h: 0.1, pause_s: 60.0}
  splitting: {rule: sip-ml, quantum_us: 10.0}
  costs: {collectives: ring, contention: serialised}
policies: [max]
num_seeds: 2
variants: {slow: ["scenario.workload_changes.arrivals.mean_interarrival_s=100.0"], old: ["scenario.num_jobs=7"]}
""",
)

FORMER_RESULTS = [inputs.valid(f"results-1-{world}.json") for world in ("cluster", "fleet", "elastic", "operators", "tasklets")]
"""Results of version 1 of each world."""

CONFIG = "name: a\nseed: 0\nbenchmark: small\n"

CURVE = json.dumps([{"steps": s, "validation_blocking_rate": 0.1 - s / 100, "elapsed_s": 1.0} for s in range(3)])

TARGETS = (
    Target("benchmarks", "yaml", lambda: BENCHMARKS, _benchmark),
    Target("evaluations", "yaml", lambda: BENCHMARKS, _evaluated, is_quick=False),
    Target(
        "plan-options",
        "words",
        lambda: ("--steps 100 --deadline-s 60.0 --max-degree 2 --policy max@best-fit", "--policy fixed-2 --steps 1000"),
        _planned,
        is_quick=False,
    ),
    Target(
        "training",
        "yaml",
        lambda: [(inputs.CONFIGS / "train" / f"{n}.yaml").read_text() for n in ("toy", "quickstart")],
        _training,
    ),
    Target("tuning", "yaml", lambda: [(inputs.CONFIGS / "train" / "linear.yaml").read_text()], _tuning),
    Target(
        "changes", "words", lambda: ("scenario.cluster=preset:toy", "scenario.failures={repair_s: 5.0}", "num_seeds=3"), _changes
    ),
    Target("cost-changes", "words", lambda: ("collectives=ring", "gradient_bucket_bytes=26214400"), _cost_changes),
    Target(
        "results",
        "json",
        lambda: [inputs.valid("results.json"), *FORMER_RESULTS],
        partial(_summarised, "results.json"),
        is_quick=False,
    ),
    Target("results-tables", "json", lambda: [inputs.valid("results.json"), *FORMER_RESULTS], _read_results),
    Target("curves", "json", lambda: [CURVE], partial(_summarised, "learning_curve.json"), is_quick=False),
    Target("run-configs", "yaml", lambda: [CONFIG], partial(_summarised, "config.yaml"), is_quick=False),
    Target(
        "scorers",
        "json",
        lambda: [
            json.dumps(
                {
                    "kind": KIND,
                    "format_version": FORMAT_VERSION,
                    "features": DIGEST,
                    "placement_rules": ["first-fit"],
                    "weights": dict.fromkeys(FEATURES, 0.5),
                    "trained": {},
                }
            )
        ],
        _scorer,
    ),
)
