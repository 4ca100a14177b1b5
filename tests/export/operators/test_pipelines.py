"""Laws of mesh.py of ops on devices: stages that the model's own order goes back and forth between are cut out of the trace."""

import subprocess
import sys
from pathlib import Path

import pytest

import meshwright
from meshwright.export import export

from .test_op_exports import loaded, named, told
from .trained_branches import Branches

SKIPS = [[0, 1], [0, 2], [0, 3], [1, 3], [2, 3]]


def back_and_forth(tmp_path):
    """mesh.py of a plan by which the model calls the stages 0, 1, 0, 2, and stages 1 and 2 read one tensor."""
    files = export(named(["a", "b", "c", "d"], [0, 1, 0, 2], edges=SKIPS), "torchrun")
    return loaded({"mesh.py": files["mesh.py"]}, "mesh.py", tmp_path)


@pytest.mark.parametrize("by", ["linear", "ideals"])
def test_the_readmes_placement_goes_to_torchrun(by):
    plan = meshwright.place("zoo:gnmt", "preset:host-8", objective="throughput", by=by).plan
    assert "def split_policy" in export(plan, "torchrun")["mesh.py"]


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning")  # torch's own, where it copies a traced model
def test_stages_in_another_order_than_the_models_are_cut_out_of_its_trace(tmp_path):
    import torch
    from torch.distributed.pipelining import pipeline

    mesh = back_and_forth(tmp_path)
    assert mesh.STAGE_OPS == (("a", "c"), ("b",), ("d",))
    assert not hasattr(mesh, "split_points")
    model, x = Branches(), torch.randn(2, 4)
    pipe = pipeline(model, mb_args=(x,), split_policy=mesh.split_policy())
    held = [{name.split(".")[0] for name, _ in pipe.get_stage_module(stage).named_parameters()} for stage in range(3)]
    assert held == [{"a", "c"}, {"b"}, {"d"}]
    torch.testing.assert_close(pipe(x)[0], model(x))


def test_a_model_that_is_not_the_plans_is_refused_by_name(tmp_path):
    import torch
    from torch.distributed.pipelining import pipeline

    def refused(model, modules=None):
        with pytest.raises((RuntimeError, ValueError)) as error:
            pipeline(model, mb_args=(torch.randn(2, 4),), split_policy=mesh.split_policy(modules))
        return str(error.value)

    class Backwards(Branches):
        def forward(self, x):
            return self.a(self.b(x)) + self.c(self.d(x))

    class InPlace(Branches):
        def forward(self, x):
            shared = self.a(x)
            before = self.b(shared)
            shared += 1
            return self.d(before + self.c(shared) + shared)

    mesh = back_and_forth(tmp_path)
    assert "aten.add_.Tensor changes a tensor in its place" in refused(InPlace())
    assert "the model calls no module e: name it in modules" in refused(Branches(), {"d": "e"})
    assert "module a of stage 0 reads from stage 1" in refused(Backwards())
    assert "torch gives a model's inputs to its first stage, and b of stage 1 reads x" in refused(
        Backwards(), {"a": None, "c": None}
    )
    assert "module a would be in two stages, 0 and 1" in refused(Branches(), {"b": "a"})


def test_a_tensor_for_two_stages_brings_the_policy_to_a_model_in_order_too():
    text = export(named(["a", "b", "c"], [0, 1, 2], edges=[[0, 1], [0, 2], [1, 2]]), "torchrun")["mesh.py"]
    assert "def split_points" in text
    assert "def split_policy" in text
    assert "def split_policy" not in export(named(["a", "b", "c"], [0, 1, 2]), "torchrun")["mesh.py"]


def test_a_stage_that_reads_from_a_later_one_is_refused_with_the_ways_out():
    refused = told(named(["a", "b", "c"], [0, 1, 0]), "torchrun")
    assert refused == (
        "partition.groups.0: torch.distributed.pipelining runs stages in order, and group 0 is none: this op comes behind one of "
        "group 1. `meshwright plan --ops --objective throughput` with --policy linear, ideals or milp-contiguous makes stages in "
        "order; tensorflow, slurm, kubernetes, ray, openmpi and chakra take ops on any device, "
        "device-map those on one host (got 'c')"
    )
    for target in ("tensorflow", "slurm", "kubernetes", "ray", "openmpi", "chakra", "device-map"):
        export(named(["a", "b", "c"], [0, 1, 0]), target)


@pytest.mark.slow
def test_processes_of_the_stages_find_the_gradients_of_the_whole_model(tmp_path):
    back_and_forth(tmp_path)
    program = [sys.executable, str(Path(__file__).with_name("trained_branches.py")), str(tmp_path), str(tmp_path / "rendezvous")]
    started = [subprocess.Popen([*program, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(3)]
    ended = [process.communicate(timeout=240)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], ended
