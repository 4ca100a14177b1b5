"""Readers of cost choices, constants of kernels, measured collectives and other figures that were measured."""

import json
from functools import partial
from pathlib import Path

import numpy as np

from meshwright.costs.collectives.libraries import tables
from meshwright.costs.collectives.libraries.system import System
from meshwright.costs.training_step.kernels import kernel_model
from meshwright.costs.work.operations import FusedAttention, Product, Sweep
from meshwright.devices import device_type
from meshwright.evaluation.calibration import kernel_table
from meshwright.evaluation.calibration.fit_a100 import LAYER_TIMES
from meshwright.evaluation.calibration.fit_a100 import calibrate as calibrate_kernels
from meshwright.evaluation.calibration.fit_collectives import calibrate
from meshwright.evaluation.validation.flows import validate as validate_flows
from meshwright.evaluation.validation.pacml.replay import validate as validate_pacml
from meshwright.evaluation.validation.step_times.published_step_times import VTRAIN_COLUMNS, read_rows
from meshwright.evaluation.validation.step_times.validate import validate as validate_steps
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.instance_files import load_instance, to_data
from meshwright.simulation.operators.piper_files import load_piper
from meshwright.simulation.operators.placement import value
from meshwright.simulation.operators.published_files import load_published

from ..cli.commands.validate.test_validate_pacml import FIGURES
from ..evaluation.calibration.test_collective_files import JSON as NCCL_REPORT
from ..planners.operators.instances import fork
from ..simulation.operators.published_samples import PIPER, PUBLISHED
from . import inputs
from .commands import answered
from .inputs import written
from .possible import MOST_SECONDS, checked, positive
from .running import Target


def _kernels_of_a100() -> tuple[str, ...]:
    return ((inputs.CONFIGS / "kernels" / "a100.yaml").read_text(),)


def _kernels(text: str, folder: Path) -> None:
    """Constants, by what they say of one product, one attention kernel, one sweep and one update."""
    model = kernel_model(device_type("a100"), str(written(folder / "kernels.yaml", text)))
    product = Product("product", 4096, 4096, 4096)
    for item in (product, FusedAttention("attention", 1e12, 1e8, False), Sweep("sweep", 1e9, 3, kind="loss")):
        positive(f"seconds of {item.name}", model.kernel_s(item), 1e-12, 1e6)
    positive("seconds of an update", model.optimizer_s(7e9), 1e-12, 1e6)


def _estimated(key: str, text: str, folder: Path) -> None:
    """One layout priced with a file of this key of the cost model, or of all its keys."""
    (folder / "given.yaml").write_text(text)
    (folder / "pair.yaml").write_text(inputs.PAIR)
    (folder / "config.json").write_text(json.dumps(inputs.TRANSFORMERS[0]))
    answered(
        "estimate",
        "--job",
        "config.json",
        "--cluster",
        "pair.yaml",
        "--layout",
        inputs.LAYOUTS[0],
        "--set",
        key + str(folder / "given.yaml"),
    )


def _table(text: str, folder: Path) -> None:
    _priced(tables.load(str(written(folder / "table.yaml", text))))


def _priced(system: System) -> None:
    for key in system.curves:
        for num_ranks in {key.num_ranks, 3, 1024}:
            way = system.way(key.operation, num_ranks, num_hosts=key.num_hosts, data_type=key.data_type)
            for payload_bytes in (1.0, 1e6, 1e9):
                seconds = 0.0 if way is None else way.price(payload_bytes).seconds
                positive("seconds of a collective", seconds, 0.0, 1e9)


def _measured_collectives(name: str, text: str, folder: Path) -> None:
    path = written(folder / name, text)
    _priced(calibrate([path], operation="all_reduce" if name.endswith("txt") else None).build())


def _measured_kernels(text: str, folder: Path) -> None:
    model = kernel_model(device_type("h100"))
    for item in kernel_table.read(written(folder / "kernels.yaml", text)).items:
        priced = item.priced()
        positive("measured", item.us or 0.0, 0.0, 1e12)
        if priced is not None:
            positive("predicted", model.kernel_s(priced), 0.0, MOST_SECONDS)


def _layer_times(text: str, folder: Path) -> None:
    """The A100's constants from the times of one layer and a table that is as it is made."""
    _fitted(folder, text, TABLE)


def _fitted_table(text: str, folder: Path) -> None:
    """The same from a table, and layers that are as they are made."""
    _fitted(folder, json.dumps(LAYERS), text)


def _fitted(folder: Path, layers: str, table: str) -> None:
    checked(calibrate_kernels([written(folder / "layers.json", layers), written(folder / "table.csv", table)]).to_data())


def _steps(name: str, text: str, folder: Path) -> None:
    path = written(folder / name, text)
    for row in read_rows(path):
        positive("measured", row.measured_s, 0.0, MOST_SECONDS)
    checked(validate_steps([path]).to_data())


def _flows(text: str, folder: Path) -> None:
    for row in validate_flows([written(folder / "flows.json", text)]).rows:
        positive("finish", row.predicted, -1e15, 1e23)


def _reference(text: str, folder: Path) -> None:
    (folder / "graphs" / "one").mkdir(parents=True)
    (folder / "graphs" / "one" / "graph.txt").write_text(inputs.valid("profile.txt"))
    checked(validate_pacml(written(folder / "reference.json", text), folder / "graphs").to_data())


def _published_instance(text: str, folder: Path) -> None:
    """An instance of dnn-partitioning, by the values of all ops on one device and along a few orders."""
    _valued(load_published(written(folder / "instance.json", text)))


def _own_instance(text: str, folder: Path) -> None:
    _valued(load_instance(written(folder / "instance.json", text)))


def _valued(instance: OperatorInstance) -> None:
    if instance.num_ops * instance.num_devices > 10_000:
        return
    for device in range(min(3, instance.num_devices)):
        alone = np.full(instance.num_ops, device)
        if instance.can_run[:, device].all():
            for objective in ("latency", "throughput"):
                positive(objective, value(instance, alone, objective), -1e-9, 1e23)


def _piper_instance(text: str, folder: Path) -> None:
    result = load_piper(written(folder / "piper.json", text))
    positive("time", float(result.times_s[np.isfinite(result.times_s)].max()), -1e-9, MOST_SECONDS)


COSTS = (
    "{compute: roofline, collectives: ring, flows: cut-through, routing: ecmp, routing_seed: 3, contention: fair}\n",
    "{overlap_slowdown: 1.2, gradient_bucket_bytes: 26214400, message_chunk_bytes: 1048576, in_network_trees: 2}\n",
    "{collectives: measured, collectives_table: a100, kernels: a100, priority: shortest-first}\n",
)

STEP = {
    "id": "run-1",
    "family": "mine",
    "model": {"layers": 4, "hidden": 256, "heads": 8, "vocab": 51200, "sequence": 128, "experts": None, "kv_heads": 4},
    "cluster": {"device": "a100-80gb", "devices_per_host": 8, "num_devices": 16, "nics_per_host": 8, "nic_gbit_per_s": 200},
    "layout": {
        "tp": 2,
        "pp": 2,
        "dp": 4,
        "micro_batch": None,
        "global_batch": 16,
        "schedule": "1f1b",
        "virtual_stages": 1,
        "recompute": "none",
    },
    "measured": {"step_time_s": 1.0},
    "source": "somebody 2024",
}

STEPS = {"rows": [STEP]}

VTRAIN = ",".join(VTRAIN_COLUMNS) + "\n2,16,8,1024,16,4,1024,1,1,2,72.16\n8,32,4,1024,16,4,1024,2,2,2,19.73\n"

LAYERS = {
    "korthikanti_table4_per_layer_22B": {
        "rows": [{"experiment": name, "fwd_ms": "7.7", "bwd_ms": 11.9} for name, _, _ in LAYER_TIMES]
    }
}

TABLE = ",".join(VTRAIN_COLUMNS) + "".join(
    f"\n1,{2 * num},2,1024,16,{layers},1024,1,1,1,{num * (3 * layers + 10) + 0.4 * layers + 2}"
    for num in (1, 2, 4)
    for layers in (12, 24)
)

FLOWS = {
    "links": {"a": {"bandwidth": 1e9, "latency": 1e-6}, "b": {"bandwidth": 2e9, "latency": 0.0}},
    "flows": [
        {"path": ["a"], "bytes": 1e6, "start": 0.0, "finish": 0.0015},
        {"path": ["a", "b"], "bytes": 1e6, "start": 0.0, "finish": 0.002},
    ],
    "source": "by hand",
}

PACML = FIGURES | {
    "config": {
        "topology": {
            "type": "ramp",
            "num_communication_groups": 4,
            "num_racks_per_communication_group": 4,
            "num_servers_per_rack": 2,
            "total_node_bandwidth": 1.6e12,
            "intra_gpu_propagation_latency": 5e-8,
            "worker_io_latency": 1e-7,
        },
        "jobs": {"num_training_steps": 50},
    }
}

TARGETS = (
    Target("kernels", "yaml", _kernels_of_a100, _kernels),
    Target("kernels-priced", "yaml", _kernels_of_a100, partial(_estimated, "kernels=")),
    Target("costs", "yaml", lambda: COSTS, partial(_estimated, "")),
    Target("collectives", "yaml", lambda: (inputs.valid("collectives.yaml"),), _table),
    Target("nccl-text", "text", lambda: (inputs.valid("nccl.txt"),), partial(_measured_collectives, "a.txt")),
    Target("nccl-json", "json", lambda: (json.dumps(NCCL_REPORT),), partial(_measured_collectives, "a.json")),
    Target("nccl-csv", "csv", lambda: (inputs.valid("nccl.csv"),), partial(_measured_collectives, "a.csv")),
    Target("measured-kernels", "yaml", lambda: (inputs.valid("measured-kernels.yaml"),), _measured_kernels),
    Target("layer-times", "json", lambda: (json.dumps(LAYERS),), _layer_times, is_quick=False),
    Target("fitted-tables", "csv", lambda: (TABLE,), _fitted_table, is_quick=False),
    Target("steps", "json", lambda: (json.dumps(STEPS),), partial(_steps, "steps.json")),
    Target("vtrain", "csv", lambda: (VTRAIN,), partial(_steps, "vtrain.csv")),
    Target("pacml", "json", lambda: (json.dumps(PACML),), _reference),
    Target("published-instance", "json", lambda: (json.dumps(PUBLISHED),), _published_instance),
    Target("operator-instance", "json", lambda: (json.dumps(to_data(fork())),), _own_instance),
    Target("piper-instance", "json", lambda: (json.dumps(PIPER),), _piper_instance),
    Target("flows", "json", lambda: (json.dumps(FLOWS),), _flows),
)
