"""Times of a small GPT-2 that really ran: measured call by call, and read from a trace of PyTorch's profiler."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from meshwright.devices import device_type
from meshwright.errors import InputFileError, TraceError
from meshwright.profiling import measure as measuring
from meshwright.profiling.measure import known_device
from meshwright.profiling.profile import profile

A100 = device_type("a100")


def profiled(*, name="gpt2.py:GPT2", inputs=("ids=2x32:int64",), **options):
    return profile(name, A100, inputs=inputs, dtype="fp32", **options)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(measuring, "MOST_S", 0.002)


def test_every_call_of_a_small_gpt2_is_measured(gpt2, quick):
    plain, result = profiled(), profiled(measures=True)
    graph = result.graph
    assert graph.source == "measured"
    assert (graph.op_names, graph.op_kinds) == (plain.graph.op_names, plain.graph.op_kinds)
    assert graph.forward_flops.tolist() == plain.graph.forward_flops.tolist()
    assert (graph.forward_s > 0).all()
    is_product = plain.graph.backward_flops > 0
    assert (graph.backward_s[is_product] > 0).all()
    assert graph.reference_device is None or torch.cuda.is_available()
    remark = next(remark for remark in result.remarks if remark.startswith("measured on"))
    assert f"of {len(result.traced.ops)}, each alone" in remark  # layers are alike: fewer calls are measured than there are
    assert int(remark.split(": ")[1].split()[0]) < len(result.traced.ops)


def test_calls_of_the_same_shape_share_one_time_and_parts_sum(gpt2, quick):
    eager, joined = profiled(measures=True, is_eager=True).graph, profiled(measures=True)
    of = dict(zip(eager.op_names, eager.forward_s, strict=True))
    assert of["blocks.0.up.linear"] == of["blocks.1.up.linear"]
    assert len(set(joined.part_of)) == joined.graph.num_ops < eager.num_ops


def test_measured_times_are_those_of_the_clock(monkeypatch, tmp_path):
    # A call that sleeps 5 ms forward is measured so; its backward pass does not sleep.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(
        "import time, torch\n"
        "class Slow(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x, w):\n"
        "        return x * w\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        return g, g\n"
        "class M(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.w = torch.nn.Parameter(torch.ones(4, 4)); self.inner = torch.nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        return self.inner(x * self.w)\n"
    )
    result = profile("slow.py:M", A100, inputs=["4x4"], dtype="fp32", is_eager=True)
    op = result.traced.ops[0]

    def slow(*args, **kwargs):
        time.sleep(0.005)
        return op.func(*args, **kwargs)

    monkeypatch.setattr(measuring, "MOST_S", 0.01)
    slowed = measuring.measure([replace(op, func=slow)], on="cpu")
    assert 0.005 <= slowed.forward_s[0] < 0.05
    assert slowed.backward_s[0] < 0.005


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64])
def test_a_call_on_an_expanded_tensor_runs_as_that_of_keys_that_heads_share(gpt2, quick, dtype):
    keys = torch.empty(2, 5, 1, 4, device="meta", dtype=dtype).expand(-1, -1, 3, -1)
    op = replace(profiled().traced.ops[0], func=torch.reshape, args=(keys, (2, 15, 4)), kwargs={})
    assert measuring.measure([op], on="cpu").forward_s[0] > 0


def test_a_call_that_does_not_run_here_is_named(gpt2, quick, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no kernel")

    op = profiled().traced.ops[2]
    with pytest.raises(TraceError, match=r"--times here: .*does not run on this cpu in float32: RuntimeError: no kernel"):
        measuring.measure([replace(op, func=broken)], on="cpu")


def test_a_gpu_is_known_by_its_own_name():
    assert known_device("NVIDIA H100 80GB HBM3") == "h100"
    assert known_device("NVIDIA A100-SXM4-80GB") == "a100"
    assert [known_device(f"NVIDIA {name}") for name in ("H200", "GB200")] == ["h200", "gb200"]
    assert known_device("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "rtx-pro-6000"
    assert known_device("Tesla K80") is None


def recorded(model, path, *, steps=3, shapes=True):
    """A trace of some training steps after a first one that is thrown away."""
    ids = torch.zeros(2, 32, dtype=torch.int64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    model(ids).sum().backward()
    with torch.profiler.profile(activities=activities, record_shapes=shapes) as ran:
        for _ in range(steps):
            optimizer.zero_grad()
            model(ids).sum().backward()
            optimizer.step()
    ran.export_chrome_trace(str(path))
    return path


def test_a_trace_of_a_small_gpt2_gives_its_calls_their_times(gpt2, tmp_path):
    path = recorded(gpt2(), tmp_path / "trace.json")
    result, plain = profiled(times=path), profiled()
    graph = result.graph
    assert graph.op_names == plain.graph.op_names
    assert (graph.forward_s > 0).all()
    assert (graph.backward_s[plain.graph.backward_flops > 0] > 0).all()
    assert any(remark.startswith("times from trace.json: 3 steps") for remark in result.remarks)
    # The whole of it is what the file says of these operators: no more than all that ran, and most of it.
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"]
    ran_s = (max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)) / 1e6
    assert 0 < 3 * graph.step_s < ran_s


def written(path, step_us, *, kernels=False):
    """A trace by hand: a linear and a relu a step, forward 10 and 1 us, backward 20 and 2 us; on a GPU half."""
    events, name = [], iter(range(1, 999))
    for start in step_us:
        for op, at, us, number, dims in (
            ("aten::linear", 0, 10, 7, [[3, 8], [16, 8], [16]]),
            ("aten::relu", 100, 1, 8, [[3, 16]]),
            ("aten::linear", 200, 10, 9, [[3, 16], [4, 16], [4]]),
        ):
            seq, external = number + start, next(name)
            args = {"External id": external, "Sequence number": seq, "Input Dims": dims}
            events.append({"ph": "X", "cat": "cpu_op", "name": op, "ts": start + at, "dur": us, "pid": 1, "tid": 1, "args": args})
            back = {"External id": next(name), "Sequence number": seq}
            message = f"autograd::engine::evaluate_function: {op}"
            place = {"ts": start + 500 + at, "dur": 2 * us, "pid": 1, "tid": 2}
            events.append({"ph": "X", "cat": "cpu_op", "name": message, "args": back, **place})
            if kernels:
                for one, dur in ((external, us / 2), (back["External id"], us)):
                    where = {"ts": start, "dur": dur, "pid": 0, "tid": 7, "args": {"External id": one}}
                    events.append({"ph": "X", "cat": "kernel", "name": "k", **where})
    data = {"traceEvents": events, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}] if kernels else []}
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(("kernels", "share", "device"), [(False, 1.0, None), (True, 0.5, "h100")])
def test_a_trace_worked_by_hand(models, tmp_path, kernels, share, device):
    path = written(tmp_path / "t.json", [1000, 2000], kernels=kernels)
    graph = profile("models.py:mlp", A100, inputs=["3x8"], times=path, is_eager=True).graph
    assert graph.forward_s.tolist() == pytest.approx([share * us * 1e-6 for us in (10, 1, 10)])
    assert graph.backward_s.tolist() == pytest.approx([share * us * 1e-6 for us in (20, 2, 20)])
    assert graph.reference_device == device
    joined = profile("models.py:mlp", A100, inputs=["3x8"], times=path).graph
    assert joined.forward_s.tolist() == pytest.approx([share * 11e-6, share * 10e-6])


def test_a_trace_that_does_not_hold_the_model_is_refused(gpt2, models, tmp_path):
    path = written(tmp_path / "t.json", [1000])
    with pytest.raises(InputFileError, match=r"no whole step of this model: 0 of .* no aten::embedding of 512x64, 2x32"):
        profiled(times=path)
    with pytest.raises(InputFileError, match=r"1 of 3 calls are there in order, and then no aten::relu of 5x16|0 of 3"):
        profile("models.py:mlp", A100, inputs=["5x8"], times=path)
    with pytest.raises(InputFileError, match="recorded without shapes"):
        profiled(times=recorded(gpt2(), tmp_path / "bare.json", steps=1, shapes=False))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputFileError, match="no trace of PyTorch's profiler"):
        profiled(times=tmp_path / "other.json")
    with pytest.raises(TraceError, match=r"is a trace of PyTorch's profiler; name the model, and the trace as --times"):
        profile(str(path), A100)
    with pytest.raises(TraceError, match=r"--times: does not go with measured times"):
        profiled(times=path, measures=True)
    ages = (
        {"ph": "X", "cat": "kernel", "args": {"External id": 1}, "dur": 5e17},
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 5e17},
    )
    for event in ({"ph": "X", "cat": "cpu_op"}, {"ph": "X", "cat": "cpu_op", "name": "a", "ts": "x"}, 3, *ages):
        path.write_text(json.dumps({"traceEvents": [event]}))
        with pytest.raises(InputFileError, match="traceEvents: an event has no name, times or numbers"):
            profile("models.py:mlp", A100, inputs=["5x8"], times=path)


def test_medians_do_not_know_a_slow_step(models, tmp_path):
    path = written(tmp_path / "t.json", [1000, 2000, 3000])
    data = json.loads(path.read_text())
    data["traceEvents"][0]["dur"] = 49.0
    path.write_text(json.dumps(data))
    graph = profile("models.py:mlp", A100, inputs=["3x8"], times=path).graph
    assert np.sum(graph.forward_s) == pytest.approx(21e-6)
