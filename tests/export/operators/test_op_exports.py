"""Laws of exports of ops on devices: every op where the plan puts it, in the reader's words, or a refusal that names it."""

import importlib.util
import json

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.errors import ExportError
from meshwright.export import export, targets
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.job import Job
from meshwright.plans import op_placement_plan

from ...samples.sample_clusters import TWO_HOSTS
from ..conftest import on_devices

HAS_ACCELERATE = all(importlib.util.find_spec(name) for name in ("accelerate", "transformers"))


def named(names, device_of, edges=None):
    """A chain of ops of these names on devices of two hosts of four."""
    n = len(names)
    ones = np.ones(n)
    chain = [[v, v + 1] for v in range(n - 1)] if edges is None else edges
    graph = JobGraph("mine", tuple(names), ("op",) * n, ones, ones, ones, ones, ones, ones, ones, chain, samples_per_step=4)
    return op_placement_plan(Job(graph, 1), Cluster.from_data(TWO_HOSTS), np.array(device_of), graph.order, "latency")


def told(plan, target, options=None):
    with pytest.raises(ExportError) as refused:
        export(plan, target, options)
    return str(refused.value)


def device_map(plan, **options):
    return json.loads(export(plan, "device-map", options)["device_map.json"])


def loaded(files, name, folder):
    """A written Python module."""
    for file, text in files.items():
        (folder / file).write_text(text)
    spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), folder / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_module_is_named_as_high_as_its_ops_agree():
    names = ["encoder.embed", "encoder.layers.0.attn", "encoder.layers.0.mlp", "encoder.layers.1.attn", "decoder.proj", "head"]
    assert device_map(named(names, [0, 0, 0, 1, 2, 2])) == {
        "encoder.embed": 0,
        "encoder.layers.0": 0,
        "encoder.layers.1": 1,
        "decoder": 2,
        "head": 2,
    }
    assert device_map(named(names, [3] * 6)) == {"": 3}


def test_a_torn_layer_and_a_torn_module_are_refused_with_both_ops():
    refused = told(named(["h.0.attn.q", "h.0.mlp"], [0, 1]), "device-map")
    assert refused == ("partition.device_of: module h.0 would be on two devices: h.0.attn.q on 0, h.0.mlp on 1 (got 'h.0.mlp')")
    refused = told(named(["encoder", "encoder.proj"], [0, 1]), "device-map")
    assert "module encoder would be on two devices: encoder on 0, encoder.proj on 1" in refused


def test_two_hosts_are_refused_with_the_rank():
    assert told(named(["a", "b"], [0, 4]), "device-map") == (
        "rank 1: a device map is for one process on one host, gpu-07; 2 hosts have ranks (got 'gpu-03')"
    )


def test_the_zoos_names_become_a_familys():
    plan = on_devices()
    result = device_map(plan, modules="gpt2")
    assert result["transformer.wte"] == result["transformer.wpe"] == result["transformer.h.0"] == 0
    assert result["transformer.h.11"] == result["transformer.ln_f"] == result["lm_head"] == 1
    assert "no op of the zoo's transformers" in told(named(["conv1"], [0]), "device-map", {"modules": "gpt2"})
    assert "modules" in told(plan, "device-map", {"modules": "gtp2"})


@pytest.mark.scheduler("accelerate")
@pytest.mark.skipif(
    not HAS_ACCELERATE, reason="accelerate and transformers are not installed (pip install accelerate transformers)"
)
def test_a_real_gpt2_runs_by_the_map_and_computes_the_same(tmp_path):
    """Four layers, the second stage's modules offloaded: Accelerate's own hooks fetch each when it runs, module by module."""
    import torch
    from accelerate import dispatch_model, init_empty_weights
    from accelerate.utils.modeling import check_device_map
    from transformers import GPT2Config, GPT2LMHeadModel

    small = {"n_layer": 4, "n_embd": 32, "n_head": 4, "vocab_size": 64, "n_positions": 32, "bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(**small, tie_word_embeddings=False)
    config.save_pretrained(tmp_path)
    result = device_map(on_devices(str(tmp_path)), modules="gpt2")
    assert set(result.values()) == {0, 1}
    with init_empty_weights():
        check_device_map(GPT2LMHeadModel(config), result)  # refuses a parameter without a device
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).eval()
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        expected = model(tokens).logits
        here = {name: "disk" if device else "cpu" for name, device in result.items()}
        dispatched = dispatch_model(model, device_map=here, main_device="cpu", offload_dir=str(tmp_path / "offload"))
        assert dispatched.transformer.h[3].mlp.c_fc.weight.device.type == "meta"
        assert dispatched.transformer.h[0].mlp.c_fc.weight.device.type == "cpu"
        assert torch.equal(dispatched(tokens).logits, expected)


def test_tensorflow_has_a_line_for_each_op_and_a_loader_that_reads_it(tmp_path):
    plan = named(["a", "b", "c"], [5, 0, 5])
    files = export(plan, "tensorflow")
    # Hosts are numbered in the plan's order: the first rank is on the first host.
    assert plan.host_order == ("gpu-07", "gpu-03")
    read = loaded({k: v for k, v in files.items() if k != "export.json"}, "placement.py", tmp_path).device_of()
    assert read == {
        "a": "/job:worker/task:1/device:GPU:1",
        "b": "/job:worker/task:0/device:GPU:0",
        "c": "/job:worker/task:1/device:GPU:1",
    }
    assert "\nb\t/job:worker/task:0/device:GPU:0\n" in files["placement.tsv"]
    for name in ("a\tb", "a\nb", "#a"):
        assert told(named([name], [0]), "tensorflow").startswith("job.graph.op_names: a line of the file cannot hold this name")


@pytest.mark.parametrize("target", ["device-map", "tensorflow"])
def test_a_plan_without_ops_on_devices_is_refused(layout_example, running_example, target):
    for plan in (layout_example, running_example):
        assert told(plan, target) == "partition: puts no op on a device by itself; `meshwright plan --ops` makes plans that do"


def test_torchrun_tells_stages_and_where_the_model_is_cut(tmp_path):
    files = export(named(["a", "b", "c", "d"], [2, 2, 0, 1]), "torchrun")
    mesh = loaded({"mesh.py": files["mesh.py"]}, "mesh.py", tmp_path)
    assert mesh.FIRST_OPS == ("c", "d")
    assert mesh.STAGES == [[0], [1], [2]]
    assert [mesh.stage(rank) for rank in range(3)] == [0, 1, 2]
    assert "CUDA_VISIBLE_DEVICES=2,0,1" in files["commands.txt"]
    from torch.distributed.pipelining import SplitPoint

    assert mesh.split_points({"c": "model.c"}) == {"model.c": SplitPoint.BEGINNING, "d": SplitPoint.BEGINNING}


@pytest.mark.parametrize("target", ["megatron", "deepspeed"])
def test_groups_that_are_no_runs_are_refused_with_the_first_op_that_is_not(target):
    # a and c on one device, b between them on another; and branches b and c of which the second is on the first one's device.
    back = told(named(["a", "b", "c"], [0, 1, 0]), target)
    assert "this op comes behind one of group 1" in back
    assert back.endswith("(got 'c')")
    branches = told(named(["a", "b", "c", "d"], [0, 1, 0, 1], edges=[[0, 1], [0, 2], [1, 3], [2, 3]]), target)
    assert branches.startswith("partition.groups.0: ")
    assert branches.endswith("(got 'c')")


def test_equal_layers_become_a_pipeline_of_megatron_and_deepspeed():
    plan = on_devices(num_devices=4)
    words = export(plan, "megatron")["megatron.args"].splitlines()
    assert words[words.index("--pipeline-model-parallel-size") + 1] == "4"
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Et*3|t*3|t*3|t*3L"
    config = json.loads(export(plan, "deepspeed")["ds_config.json"])
    assert config["train_batch_size"] == config["train_micro_batch_size_per_gpu"] == 16


@pytest.mark.parametrize("target", ["megatron", "deepspeed"])
def test_other_than_equal_layers_are_refused_with_the_first_op(target):
    names = [f"layer{n}.{part}" for n in range(4) for part in ("attention", "mlp")]
    assert told(named(names, [0] * 6 + [1] * 2), target).endswith(
        "here 2; this op would be in another stage (got 'layer2.attention')"
    )
    assert told(named(names, [0] * 5 + [1] * 3), target).endswith("(got 'layer2.attention')")
    assert told(named(names, [0] * 3 + [1] * 5), target).endswith("stage 1 begins inside layer 1 (got 'layer1.mlp')")
    assert "no op is named after a layer" in told(named(["a", "b"], [0, 1]), target)


@pytest.mark.parametrize("target", sorted(set(targets) - {"device-map", "tensorflow", "megatron", "torchtitan", "deepspeed"}))
def test_other_targets_take_the_ranks_as_they_are(target, op_example):
    manifest = json.loads(export(op_example, target)["export.json"])
    assert [(rank["host"], rank["local_rank"]) for rank in manifest["ranks"]] == [("gpu-07", 0), ("gpu-07", 1)]


def test_a_trace_holds_what_each_rank_computes_and_one_message_for_each_tensor(op_example):
    from meshwright.export.chakra.traces import traces_of

    traces, _ = traces_of(op_example)
    graph = op_example.job_graph()
    computed = [sum(node.type.name == "COMP" for node in trace.nodes) for trace in traces]
    held = [sum(op in group.ops for op in range(graph.num_ops)) for group in op_example.partition.groups]
    assert computed == held
    sent = [node for trace in traces for node in trace.nodes if node.type.name == "COMM_SEND"]
    # Between two stages one activation passes on, by itself and through the residual: of one op each, once.
    assert 1 <= len(sent) <= 2
    assert all(node.attributes["comm_size"] > 0 for node in sent)
