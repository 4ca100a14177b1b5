"""A small folder of measured elastic applications and workloads, made by formulas."""

import json
from itertools import product

import numpy as np

from meshwright.jobs.readers.elastic import ElasticWorkload, load_applications
from meshwright.simulation.elastic.simulation import ElasticCluster, ElasticSimulation
from meshwright.worlds.elastic.benchmark import load_elastic_benchmark

CLUSTER = ElasticCluster(num_nodes=3)
LOCAL = (4, 8, 16)
BATCHES = (16, 32, 64)
SPEED = {"quick": 0.25, "slow": 2.0}
EPOCHS = {"quick": 2, "slow": 4}
STEPS = 300
"""Of the smallest batch, an epoch."""


def times(name, num_hosts, num_ranks, local):
    sync = 0.001 if num_ranks == 1 else 0.01 * num_ranks + 0.05 * (num_hosts > 1)
    return SPEED[name] * (0.02 + 0.01 * local) + sync, sync


def rows(head, lines):
    return "\n".join([head, *(",".join(map(str, line)) for line in lines)]) + "\n"


def write_applications(folder):
    """Two applications on up to three hosts of four devices."""
    for name in SPEED:
        (folder / name).mkdir(parents=True)
        placed = [(digits,) for digits in range(1, 5)] + [pair for pair in product(range(1, 5), repeat=2) if pair[0] <= pair[1]]
        lines = [("".join(map(str, p)), b, *times(name, len(p), sum(p), b)) for p in placed for b in LOCAL]
        (folder / name / "placements.csv").write_text(rows("placement,local_bsz,step_time,sync_time", lines))
        lines = [(3, ranks, b, *times(name, 3, ranks, b)) for ranks in (3, 6, 9, 12) for b in LOCAL]
        (folder / name / "scalability.csv").write_text(rows("num_nodes,num_replicas,local_bsz,step_time,sync_time", lines))
        for batch in BATCHES:
            steps = [
                (STEPS * (t + 1) + batch / 8, STEPS * (t + 1) * 20 / (4 + batch), 1.0 / (t + 1), 2.0 + t)
                for t in range(EPOCHS[name])
            ]
            text = rows("progress,iteration,grad_sqr,grad_var", steps)
            (folder / name / f"validation-{batch}.csv").write_text(text)
    return folder


def write_folder(folder, num_jobs=6):
    """Applications, one workload, and no completion times."""
    write_applications(folder / "applications")
    (folder / "workloads" / "load-1.0").mkdir(parents=True)
    lines = [(f"job-{j}", 50 * j, ("quick", "slow")[j % 2], (1, 4, 6)[j % 3], 64) for j in range(num_jobs)]
    text = rows("name,time,application,num_replicas,batch_size", lines)
    (folder / "workloads" / "load-1.0" / "workload-1.csv").write_text(text)
    (folder / "published").mkdir()
    return folder


def small_benchmark(folder):
    """The published benchmark on the small folder, which is written, and on three hosts."""
    changes = [f"elastic.data={write_folder(folder)}", "elastic.cluster.num_nodes=3"]
    return load_elastic_benchmark("preset:elastic-published-1.0", changes=changes)


def write_times(folder, policy, spans, load="load-1.0", workload="workload-1"):
    figures = {workload: {f"job-{j}": int(span) for j, span in enumerate(spans)}}
    (folder / "published" / f"{policy}-{load}.json").write_text(json.dumps({"jcts": figures}))


def simulation_of(folder, **changed):
    return ElasticSimulation(load_applications(folder), CLUSTER.model_copy(update=changed))


def workload(jobs):
    """From tuples of submission, application, ranks and batch."""
    columns = np.array(jobs, np.int64).T
    return ElasticWorkload("drawn", tuple(f"job-{j}" for j in range(len(jobs))), *columns)
