"""Train a policy on each of some drawn benchmarks of fleets, and compare it with the best rule there.

Benchmarks differ in network (Clos, rails, torus, uneven tree), size, mix of models, load, and objective. A seed draws one, and
no shipped policy was trained on any. ``meshwright train BENCHMARK`` trains on each. Three policies then play the same test
episodes: the best rule of its validation episodes, the shipped policy of its objective, and the trained network.

    python -m benchmarks.fleet_any --num 12 --minutes 10 --out runs/fleet-any

A row that exists is not made again, and a training that was stopped resumes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from meshwright import files, yaml12
from meshwright.packaged import shipped_path

from .results import PROGRAM

FIRST_SEED = 1_000
KINDS = ("clos", "rail", "torus", "uneven")
SIZES = (64, 128, 256, 512)
ASKED = {1: 10, 2: 5, 4: 10, 8: 40, 16: 15, 32: 12, 64: 8}
"""How often users ask for each number of devices, up to a quarter of the cluster; that of the preset llm-256."""
RULES = {
    "mean_completion_s": ("sjf+backfill", "sjf:best-fixed-entry", "sjf:best-goodput-shares", "sjf:best-priced"),
    "blocking_rate": (
        "edf+backfill",
        "sjf:best-fixed-entry+backfill",
        "edf:best-fixed-entry+backfill",
        "edf:best-fixed-entry+backfill+best-refusal",
        "edf:goodput-shares+backfill+best-refusal",
        "edf:marginal-gain+backfill",
    ),
}
SHIPPED = {"mean_completion_s": "shipped:llm-anywhere", "blocking_rate": "shipped:uneven-64"}


def drawn(seed: int, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a benchmark and its cluster as YAML data; kind, size and objective follow the seed, the rest is drawn."""
    rng = np.random.default_rng([FIRST_SEED, seed])
    kind, objective = KINDS[seed % 4], tuple(RULES)[seed // 4 % 2]
    num_devices = int(rng.choice(SIZES[:2] if kind == "uneven" else SIZES))
    name = f"fleet-any-{seed}"
    cluster = {"name": name, "device": str(rng.choice(["a100", "h100"])), "topology": _topology(kind, num_devices, rng)}
    types = [one for preset in ("llm-256", "llm-unseen") for one in _job_types(preset)]
    choice = rng.choice(len(types), int(rng.integers(4, 9)), replace=False)
    has_deadlines = objective == "blocking_rate"
    fleet: dict[str, Any] = {
        "cluster": str(folder / "cluster.yaml"),
        "job_types": [types[number] for number in sorted(choice.tolist())],
        "weights": rng.lognormal(0.0, 0.5, len(choice)).round(2).tolist(),
        "num_jobs": 300,
        "num_warmup_jobs": 30,
        "num_cooldown_jobs": 30,
        "load": round(float(rng.uniform(0.6, 0.95)), 2),
        "duration": {"median_s": 1200, "sigma": 1.0, "most_s": 14400},
        "requested": {request: often for request, often in ASKED.items() if request <= num_devices // 4},
        "queue_capacity": 32 if has_deadlines else 128,
        "visible_jobs": 32 if has_deadlines else 8,
        "candidate_features": "none" if has_deadlines else "analytic",
        "objective": objective,
    }
    if has_deadlines:
        fleet |= {"deadline": {"low": 1.2, "high": 4.0}, "placements": ["construct" if kind == "uneven" else "packed"]}
    return {"name": name, "fleet": fleet, "policies": list(RULES[objective])}, cluster


def _topology(kind: str, num_devices: int, rng: np.random.Generator) -> dict[str, Any]:
    hop = {"nic_latency_us": 1.35, "intra_host_latency_us": 0.6}
    if kind == "torus":
        shape = {64: [2, 4, 8], 128: [4, 4, 8], 256: [4, 8, 8], 512: [8, 8, 8]}[num_devices]
        links = {"link_bandwidth_gbytes_per_s": float(rng.choice([50.0, 100.0])), "link_latency_us": 1.0}
        return {"kind": "torus", "shape": shape, "devices_per_host": 8, **links}
    if kind == "uneven":
        leaves, hosts_at = iter(range(num_devices)), []
        while len(hosts_at) < num_devices // 2:
            leaf, size = next(leaves), int(rng.integers(1, 9))
            at = ["core", f"site{leaf % 2}", f"leaf{leaf}"]
            hosts_at += [[str(len(hosts_at) + host), *at] for host in range(min(size, num_devices // 2 - len(hosts_at)))]
        links = {"nics_per_host": 1, "nic_bandwidth_gbytes_per_s": 12.5, "leaf_uplink_gbytes_per_s": 25.0}
        links |= {"leaf_uplink_latency_us": 0.5, "pod_uplink_gbytes_per_s": 12.5, "pod_uplink_latency_us": 50.0}
        host = {"kind": "trace", "devices_per_host": 2, "intra_host_bandwidth_gbytes_per_s": 300.0}
        return {**host, **hop, **links, "hosts_at": hosts_at}
    links = {"nics_per_host": 8, "nic_bandwidth_gbytes_per_s": float(rng.choice([12.5, 25.0, 50.0])), "num_spines": 4}
    links |= {"oversubscription": float(rng.choice([1.0, 2.0, 4.0, 8.0])), "spine_latency_us": 0.5}
    links |= {"hosts_per_leaf": 8 if kind == "rail" else 4, "wiring": "rail" if kind == "rail" else "host"}
    host = {"kind": "clos", "num_hosts": num_devices // 8, "devices_per_host": 8, "intra_host_bandwidth_gbytes_per_s": 300.0}
    return {**host, **hop, **links}


def _job_types(preset: str) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = yaml12.parse(files.read_text(shipped_path(f"job_types/{preset}.yaml")))[0]["job_types"]
    return result


def play(seed: int, minutes: float, out: Path) -> dict[str, Any]:
    """Train and evaluate on a drawn benchmark, and return its row."""
    folder = (out / str(seed)).resolve()
    row = folder / f"{minutes:g}-minutes.json"
    if row.exists():
        return dict(json.loads(row.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    benchmark, cluster = drawn(seed, folder)
    for name, data in (("cluster", cluster), ("benchmark", benchmark)):
        (folder / f"{name}.yaml").write_text(yaml12.dump(data))
    run, results, of = folder / f"run-{minutes:g}", folder / "results", str(folder / "benchmark.yaml")
    objective = benchmark["fleet"]["objective"]
    begun = ("--resume", str(run)) if (run / "config.yaml").exists() else (of, "--minutes", str(minutes), "--out", str(run))
    _meshwright("train", *begun)
    rule = json.loads((run / "line_to_beat.json").read_text())["rule"]
    policies = (rule, SHIPPED[objective], f"network:{run}")
    _meshwright("evaluate", *policies, "--benchmark", of, "--set", "policies=[]", "--out", str(results))
    rows = {row["policy"]: row for row in json.loads((results / "results.json").read_text())["rows"]}
    result = {"seed": seed, "network": cluster["topology"]["kind"], "objective": objective, "rule": rule}
    result["value"] = rows.pop(rule)["metrics"][objective]["mean"]
    for policy, other in rows.items():
        result["as it is" if policy.startswith("shipped:") else "trained"] = other["against"]["best baseline"]
    files.write_json(row, result)
    return result


def _meshwright(*arguments: str) -> None:
    subprocess.run((*PROGRAM, *arguments), check=True)


def main() -> None:
    """Print a row of each benchmark: the rule, its value, and the differences of the shipped and the trained policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("runs/fleet-any"))
    options = parser.parse_args()
    for seed in range(options.num):
        result = play(seed, options.minutes, options.out)
        cells = [str(seed), result["network"], result["rule"], f"{result['value']:.4g}"]
        cells += [
            f"{one['mean']:+.4g} [{one['low']:+.4g}, {one['high']:+.4g}]" for one in (result["as it is"], result["trained"])
        ]
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
