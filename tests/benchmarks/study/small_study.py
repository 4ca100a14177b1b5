"""A study of a benchmark of two devices, and a program that stands in for ``meshwright`` and takes no time."""

import runpy
import sys

STUDY = """
quick: {num_seeds: 2, training_seeds: 1}
training:
  - name: net-<each>
    each: [A, B]
    config: train.yaml
    changes: [total_steps=64]
    seeds: [0, 1]
    quick: [total_steps=16]
  - name: parts
    config: train.yaml
    variants: {full: [], blind: ["network.without=[look-ahead]"]}
evaluations:
  - name: rules-<each>
    each: [A, B]
    benchmark: benchmark.yaml
  - name: nets-<each>
    each: [A, B]
    benchmark: benchmark.yaml
    changes: ["policies=[]"]
    trained: [net-<each>]
  - name: parts-played
    benchmark: benchmark.yaml
    trained: [parts]
tables:
  main:
    kind: comparison
    columns: [A, B]
    evaluations: [rules-<column>, nets-<column>]
    ours: net-<column>
    source: Somebody, 2020
    rows:
      - {label: theirs, quoted: {A: ".300"}}
      - {label: most ranks, policy: max}
      - {label: tuned, policy: best-fixed}
  worth:
    kind: ablations
    columns: [A]
    evaluations: [parts-played]
    ours: parts
    labels: {full: the whole}
  times: {kind: durations}
"""

FILES = {
    "study.yaml": STUDY,
    "cluster.yaml": """
name: pair
device: a100
topology: {kind: single-host, num_devices: 2, fabric: switch, bandwidth_gbytes_per_s: 100.0, latency_us: 1.0}
""",
    "workload.yaml": """
graphs: [zoo:squeezenet]
steps: {kind: fixed, num_steps: 1000}
arrivals: {kind: fixed, interarrival_s: 20.0}
deadline: {kind: none}
""",
    "benchmark.yaml": """
name: pair
scenario: {cluster: cluster.yaml, workload: workload.yaml, num_jobs: 10, max_degree: 2}
policies: [max, best-fixed]
num_seeds: 2
num_validation_seeds: 2
""",
    "train.yaml": """
name: pair
benchmark: benchmark.yaml
total_steps: 32
ppo: {num_envs: 2, rollout_steps: 8, minibatch: 8, epochs: 1}
""",
}

# Does what the commands leave, as far as the runner looks at it: a training writes its config, resolved, and a policy that
# tells its settings; an evaluation copies what it is given. A file `calls` tells all calls; one called `hang-NAME` lets a
# training wait after its config is written until that file is gone; one called `break-NAME` lets it fail. It imports nothing
# that takes time.
PROGRAM = """
import json, shutil, sys, time
from pathlib import Path

here, (word, *words) = Path(__file__).parent, sys.argv[1:]
with (here / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")

def option(name):
    return Path(words[words.index(name) + 1])

if word == "train":
    out = option("--resume") if "--resume" in words else option("--out")
    if "--resume" not in words:
        out.mkdir(parents=True)
        keys = dict(line.split(": ", 1) for line in Path(words[0]).read_text().strip().splitlines())
        for change in [words[i + 1] for i, part in enumerate(words) if part == "--set"]:
            key, _, value = change.partition("=")
            parent, _, child = key.partition(".")
            keys[parent] = f"{{{child}: {value}}}" if child else value
        keys["benchmark"] = str(here / "benchmark.yaml")
        (out / "config.new").write_text("".join(f"{key}: {value}\\n" for key, value in keys.items()))
        (out / "config.new").rename(out / "config.yaml")  # whole or not at all, as the program does it
    if (here / f"break-{out.name}").exists():
        sys.exit("no such luck")
    while (here / f"hang-{out.name}").exists():
        time.sleep(0.05)
    shutil.copy(out / "config.yaml", out / "policy.pt")
    row = {"steps": 32, "validation_blocking_rate": 0.5, "training_blocking_rate": None, "elapsed_s": 45.0}
    last = row | {"steps": 64, "validation_blocking_rate": 0.25, "elapsed_s": 90.0}
    (out / "learning_curve.json").write_text(json.dumps([row, last]))
else:
    target = option("--json")
    shutil.copy(here / f"{target.parent.name}.json", target)
"""


class PlayedHere:
    """Stands in for a process of the stand-in: it runs in this one, to its end, when it is begun."""

    def __init__(self, command, **_):
        at = next(i for i, word in enumerate(command) if word.endswith("program.py"))
        before, sys.argv = sys.argv, list(command[at:])
        try:
            runpy.run_path(command[at])
        finally:
            sys.argv = before

    returncode = 0

    def poll(self):
        return self.returncode


def write(folder):
    """Put everything into a folder; returns the command of the stand-in."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "program.py").write_text(PROGRAM)
    return (sys.executable, "-I", "-S", str(folder / "program.py"))  # without what starts slowly


def results(benchmark, rates, learned=(), chosen=None):
    """Results with nothing in them but what readers want and tables look at: blocking rates by policy."""
    rows = [
        {
            "policy": policy,
            "kind": "learned" if policy in learned else "baseline",
            "blocking_rate": {"mean": sum(values) / len(values), "low": None, "high": None},
            "per_seed": {"blocking_rate": values},
            "degrees": {"1": 0.25, "2": 0.75},
            "states": {},
        }
        for policy, values in rates.items()
    ]
    return {
        "format_version": 2,
        "benchmark": benchmark,
        "scenario": {"cluster": "pair", "num_devices": 2, "graphs": ["squeezenet"], "mean_interarrival_s": 20.0},
        "seeds": [0, 1],
        "best_fixed": {name: {"chosen": value} for name, value in (chosen or {}).items()},
        "rows": rows,
        "timing": {"decision_latency_s": {policy: {"p50": 0.0005, "p99": 0.0021} for policy in rates}},
    }
