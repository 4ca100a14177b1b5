"""Readers of what others recorded: what schedulers list, traces of PyTorch's profiler and of Chakra, models as ONNX, jobs of
Helios and Acme."""

import importlib.util
import json
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from meshwright.devices import device_type
from meshwright.export.chakra.schema import Collective, NodeType, RankTrace, TraceNode, encode
from meshwright.jobs.load import load_graph
from meshwright.live.sources import kubernetes, ray, slurm, slurm_json
from meshwright.live.sources.listings import Listing
from meshwright.live.state import ClusterState
from meshwright.profiling.chakra_trace import read_chakra

from . import inputs
from .inputs import ROOT, written
from .jobs_and_clusters import recorded
from .possible import MOST_SECONDS, positive, possible_graph
from .running import NonsenseError, Target

RECORDED = ROOT / "tests" / "live" / "sources" / "data"


def _possible(listing: Listing) -> None:
    """Refuse a device that is held twice or that its host does not have; a state is kept and read as it is."""
    state = listing.state
    held: defaultdict[str, set[int]] = defaultdict(set)
    for job in state.jobs:
        for host, devices in job.devices.items():
            size = state.hosts[host].num_devices if host in state.hosts else None
            if held[host] & set(devices) or (size is not None and devices and max(devices) >= size):
                raise NonsenseError(f"devices: {job.id} holds {devices} of {size} on {host}")
            held[host].update(devices)
    assert ClusterState.model_validate_json(state.model_dump_json()) == state
    assert all(remark and len(remark) < 1000 for remark in listing.remarks)


def _listing(read: Callable[[str], Listing], text: str, folder: Path) -> None:
    _possible(read(text))


def _listed(name: str) -> str:
    """A recorded JSON in one line, as mutations of a text want it."""
    return json.dumps(json.loads((RECORDED / name).read_text()))


SLURM_JSON = ("slurm-22.05-again.json", "slurm-v0.0.39-by-hand.json", "slurm-v0.0.41-by-hand.json")


BYTES = "latin-1"
"""One letter for each byte, so that what is no text is spoilt as text is."""


CALLS = [
    SimpleNamespace(name="up", kind="linear", input_shapes=((3, 8), (16, 8), (16,))),
    SimpleNamespace(name="relu", kind="relu", input_shapes=((3, 16),)),
]


def _kineto_traces() -> tuple[str, ...]:
    """A step of two calls on a processor, and two steps on a GPU."""
    importlib.import_module("meshwright.profiling.kineto")  # loads PyTorch, which takes longer than a reading may
    return tuple(json.dumps(_kineto(*at)) for at in (((0,), False), ((0, 1000), True)))


def _kineto(starts: tuple[int, ...], has_kernels: bool) -> dict[str, object]:
    events: list[dict[str, object]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
    for start in starts:
        for number, call in enumerate(CALLS):
            args = {"External id": start + number, "Sequence number": start + number}
            figures = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": start + 20.5 * number, "dur": 10}
            name = f"aten::{call.kind}"
            events.append({**figures, "name": name, "args": args | {"Input Dims": [list(shape) for shape in call.input_shapes]}})
            back = {**figures, "tid": 2, "ts": start + 500 + 20 * number, "name": f"autograd::engine::evaluate_function: {name}"}
            events.append({**back, "args": {"External id": start + 100 + number, "Sequence number": start + number}})
            if has_kernels:
                on_gpu = {"ph": "X", "cat": "kernel", "name": "k", "ts": start + 700, "dur": 5.25}
                events.append({**on_gpu, "args": {"External id": start + number}})
    return {"traceEvents": events, "deviceProperties": [{"name": "NVIDIA H100 80GB HBM3"}] if has_kernels else []}


def _times(text: str, folder: Path) -> None:
    from meshwright.profiling.kineto import read_times

    times = read_times(written(folder / "trace.json", text), CALLS)
    assert len(times.forward_s) == len(times.backward_s) == len(CALLS)
    for one in (*times.forward_s.tolist(), *times.backward_s.tolist()):
        positive("seconds of a call", one, 0.0, MOST_SECONDS)
    assert all("\n" not in remark for remark in times.remarks)


def _chakra_traces() -> tuple[str, ...]:
    """One whose ops go forward and backward, and one of nodes by themselves."""
    figures = {"num_ops": 1_000_000, "tensor_size": 4096, "duration_s": 0.25}
    ways = (("a forward", ()), ("b forward", (0,)), ("b backward", (1,)), ("a backward", (2,)))
    nodes = [TraceNode(number, name, NodeType.COMP, 0, 0, (), deps, figures) for number, (name, deps) in enumerate(ways)]
    summed = {"comm_type": Collective.ALL_REDUCE, "comm_size": 64, "pg_name": "0"}
    nodes.append(TraceNode(4, "a all-reduce", NodeType.COMM_COLL, 0, 0, (), (3,), summed))
    alone = [TraceNode(7, "x", NodeType.COMP, 0, 5), TraceNode(9, "y", NodeType.COMP, 5, 2, (), (7,), figures)]
    return tuple(encode(RankTrace({}, tuple(one))).decode(BYTES) for one in (nodes, alone))


def _chakra(text: str, folder: Path) -> None:
    (folder / "rank.0.et").write_bytes(text.encode(BYTES, errors="replace"))
    possible_graph(read_chakra(folder / "rank.0.et"))


@cache
def _onnx_models() -> tuple[str, ...]:
    """A convolution before a product, with a shape that the file computes; see `tests.profiling.test_files`."""
    from onnx import TensorProto, helper, numpy_helper

    importlib.import_module("meshwright.profiling.onnx_model")
    weights = {"w": np.ones((2, 1, 3, 3), np.float32), "m": np.ones((3, 32), np.float32), "s": np.array([2, -1], np.int64)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["f"]),
        helper.make_node("Gemm", ["f", "m"], ["y"], transB=1, name="last"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 1, 4, 4]), ("y", [2, 3]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(v, n) for n, v in weights.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return (made.SerializeToString().decode(BYTES),)


def _onnx(text: str, folder: Path) -> None:
    from meshwright.profiling.profile import profile

    (folder / "m.onnx").write_bytes(text.encode(BYTES, errors="replace"))
    result = profile(str(folder / "m.onnx"), device_type("a100"))
    possible_graph(result.graph)
    result.graph.save(folder / "graph.json")
    assert load_graph(str(folder / "graph.json")).digest == result.graph.digest


TARGETS = (
    Target("slurm", "text", lambda: ((RECORDED / "slurm-22.05.txt").read_text(),), partial(_listing, slurm.read)),
    Target(
        "slurm-json",
        "text",
        lambda: tuple((RECORDED / name).read_text() for name in SLURM_JSON),
        partial(_listing, slurm_json.read),
    ),
    Target("kubernetes", "json", lambda: (_listed("kubernetes.json"),), partial(_listing, kubernetes.read)),
    Target("ray", "json", lambda: (_listed("ray-2.60.json"),), partial(_listing, ray.read)),
    Target("helios", "csv", lambda: (inputs.valid("helios.csv"),), partial(recorded, "helios.csv")),
    Target("acme", "csv", lambda: (inputs.valid("seren.csv"), inputs.valid("kalos.csv")), partial(recorded, "acme.csv")),
    Target("kineto", "json", _kineto_traces, _times),
    Target("chakra-traces", "text", _chakra_traces, _chakra),
    *([] if importlib.util.find_spec("onnx") is None else [Target("onnx", "text", _onnx_models, _onnx, is_quick=False)]),
)
"""That of ONNX where its package is installed, as ``make test-libraries`` does."""
