"""Megatron's arguments, its host permutation, and the launcher run under a stand-in for torchrun."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.errors import ExportError
from meshwright.export.frameworks.fronts import FRONTS
from meshwright.export.frameworks.megatron import rank_order
from meshwright.export.options import ExportOptions
from meshwright.jobs.job import Job
from meshwright.jobs.zoo.catalogue import zoo_graph
from meshwright.plans import Layout, layout_plan, legality, place
from meshwright.plans.frameworks.megatron_groups import groups

from ...draws import draws
from ..grids import layer, plan_of, stage
from .over_ssh import launched

FRONT = FRONTS["megatron"]
AXES = ("pp", "dp", "cp", "ep", "tp")
SHOW = 'printf "%s\\0" "$CUDA_VISIBLE_DEVICES" "$PWD" "$@"'


def words(plan, **options):
    return [w for w in FRONT.render(plan, ExportOptions(**options))["megatron.args"].splitlines() if not w.startswith("#")]


def lines(text):
    return [line for line in text.splitlines() if not line.startswith("#")]


EXAMPLE = Layout(tp=2, pp=2, dp=2, micro_batch=1, global_batch=16, sequence_parallel=True, zero=1, overlap_dp=True)


def test_arguments_of_the_running_example():
    assert words(plan_of(EXAMPLE)) == [
        *("--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--context-parallel-size", "1"),
        *("--expert-model-parallel-size", "1", "--expert-tensor-parallel-size", "2"),
        *("--micro-batch-size", "1", "--global-batch-size", "16", "--sequence-parallel", "--use-distributed-optimizer"),
        *("--overlap-grad-reduce", "--overlap-param-gather"),
    ]


def test_hosts_and_devices_stand_in_rank_order():
    files = FRONT.render(plan_of(EXAMPLE), ExportOptions())
    assert lines(files["hosts.txt"]) == ["gpu-09\t3,2,1,0", "gpu-08\t3,2,1,0"]
    rows = [line.split("\t") for line in lines(files["ranks.tsv"])]
    assert rows[0] == ["rank", "plan_rank", "host", "device", "pp", "dp", "cp", "ep", "tp"]
    # rank 5 of 8: 5 = tp 1 + 2 dp 0 + 4 pp 1, the second device of the second host
    assert rows[6] == ["5", "5", "gpu-08", "2", "1", "0", "0", "0", "1"]
    for text in files.values():
        assert "# - Rank numbers:" in text[:600]


def test_the_master_is_the_host_of_megatrons_first_rank():
    # the plan counts the last stage first, so its own rank 0 is Megatron's rank 4
    plan = plan_of(EXAMPLE, [4, 5, 6, 7, 0, 1, 2, 3])
    assert plan.ranks[4].coordinates.pp == 0
    files = FRONT.render(plan, ExportOptions())
    assert lines(files["hosts.txt"])[0].split("\t")[0] == plan.ranks[4].host != plan.host_order[0]
    assert f"--master-addr={plan.ranks[4].host} " in files["launch.sh"]
    assert "\n# Starts torchrun on every host and waits;" in files["launch.sh"]


def test_hosts_that_hold_a_pipeline_each_take_the_other_order():
    # host of replica d: tp 2 x pp 2; Megatron's default order would spread a replica over both hosts
    plan = plan_of(EXAMPLE, host_of=lambda rank: f"replica-{rank // 2 % 2}")
    arranged = rank_order(plan)
    assert arranged.order == "tp-cp-ep-pp-dp"
    assert arranged.plan_rank == (0, 1, 4, 5, 2, 3, 6, 7)
    assert "--use-tp-pp-dp-mapping" in words(plan)
    assert [line.split("\t")[0] for line in lines(FRONT.render(plan, ExportOptions())["hosts.txt"])] == ["replica-0", "replica-1"]
    # the same placement with experts: the flag is unusable
    with pytest.raises(ExportError, match=r"rank 2: is Megatron's rank 2 by the order tp-cp-ep-dp-pp.*start it on replica-0"):
        rank_order(plan_of(EXAMPLE.model_copy(update={"ep": 2}), host_of=lambda rank: f"replica-{rank // 2 % 2}"))


layouts = st.builds(
    lambda tp, cp, dp, pp, k: (tp, cp, dp, pp, [e for e in range(1, dp * cp + 1) if dp * cp % e == 0][k % 2 - 1]),
    *(st.sampled_from([1, 2, 3]) for _ in range(4)),
    st.integers(0, 1),
)


@draws(15)
@given(layouts, st.randoms(use_true_random=False), st.booleans())
def test_groups_that_megatron_makes_are_the_plans(degrees, random, keep_layout):
    tp, cp, dp, pp, ep = degrees
    layout = Layout(tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, micro_batch=1, global_batch=dp, sequence_parallel=True, schedule="1f1b")
    order = random.sample(range(layout.world), layout.world)
    plan = plan_of(layout, order, num_hosts=pp, keep_layout=keep_layout)
    arranged = rank_order(plan)
    result = groups(arranged.degrees, arranged.order)
    own = np.array([[getattr(rank.coordinates, axis) for axis in ("pp", "dp", "cp", "ep", "tp")] for rank in plan.ranks])
    number = np.array(arranged.plan_rank)
    dense = {"tp": [0, 1, 2], "cp": [0, 1, 4], "dp": [0, 2, 4], "pp": [1, 2, 4], "dp-cp": [0, 4], "tp-pp": [1, 2]}
    for kind, common in dense.items():
        expected = {}
        for rank, shared in enumerate(own[:, common].tolist()):
            expected.setdefault(tuple(shared), set()).add(rank)
        assert {frozenset(number[row].tolist()) for row in result[kind]} == {frozenset(m) for m in expected.values()}
    for row in result["ep"]:
        members = own[number[row]]
        assert members[:, 3].tolist() == list(range(arranged.degrees.ep))
        assert len(np.unique(members[:, [0, 4]], axis=0)) == 1
    # each host is one run of the permuted ranks
    hosts = [plan.ranks[rank].host for rank in arranged.plan_rank]
    assert len([host for host, _ in itertools.groupby(hosts)]) == pp
    again = FRONT.target().as_launched(plan)
    legality.check(again)
    assert rank_order(again).plan_rank == tuple(range(layout.world))
    places = {(rank.host, rank.local_rank): rank.coordinates for rank in plan.ranks}
    assert {(rank.host, rank.local_rank): rank.coordinates for rank in again.ranks} == places


def test_a_layout_plan_of_our_own_keeps_its_numbers():
    cluster = load_cluster("preset:dgx-a100-8x8")
    graph = zoo_graph("gpt2-small")
    layout = Layout(tp=4, pp=2, dp=2, micro_batch=1, global_batch=8)
    plan = layout_plan(Job(graph, 10), cluster, layout, place(cluster, [*range(24, 32), *range(8, 16)]))
    assert rank_order(plan).plan_rank == tuple(range(16))
    host_order = list(plan.host_order)
    assert host_order != sorted(host_order)
    named = plan.model_copy(update={"stages": ()})
    assert [line.split("\t")[0] for line in lines(FRONT.render(named, ExportOptions())["hosts.txt"])] == host_order


def test_what_megatron_cannot_number_is_refused():
    two = Layout(tp=2, dp=2, micro_batch=1, global_batch=2)
    bare = plan_of(two, keep_layout=False)
    bare = bare.model_copy(update={"ranks": tuple(rank.model_copy(update={"coordinates": None}) for rank in bare.ranks)})
    with pytest.raises(ExportError, match="rank 0: has no coordinates"):
        rank_order(bare)
    with pytest.raises(ExportError, match="same number of ranks on every host: a has 3, b has 1"):
        rank_order(plan_of(two, host_of=lambda rank: "aaab"[rank]))
    # tensor-parallel pairs across hosts: 0 and 1 must stand next to each other
    with pytest.raises(ExportError, match=r"rank 1: is Megatron's rank 1 .* next to rank 0 \(got 'b'\)"):
        rank_order(plan_of(two, host_of=lambda rank: "abab"[rank]))
    experts = Layout(dp=4, ep=2, micro_batch=1, global_batch=4)
    other = {"rank1": {"ep": 0}, "rank2": {"ep": 1}}
    with pytest.raises(ExportError, match=r"rank 1: Megatron gives dp=1 cp=0 the expert slice ep=1 \(got 'ep=0'\)"):
        rank_order(plan_of(experts, **other))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"schedule": "gpipe"}, r"partition.layout.schedule: Megatron runs 1f1b.*got 'gpipe'"),
        ({"schedule": "zb-h1"}, r"partition.layout.schedule"),
        ({"zero": 2}, r"partition.layout.zero: Megatron's distributed optimizer is ZeRO stage 1 \(got 2\)"),
        ({"overlap_tp": True, "sequence_parallel": False}, r"overlap_tp: Megatron hides it with sequence_parallel only"),
        ({"ep": 2, "sequence_parallel": False}, r"sequence_parallel: Megatron wants it where there are both experts and tp"),
        ({"overlap_pp": True}, r"overlap_pp: Megatron hides pipeline transfers in the interleaved schedule only"),
    ],
)
def test_layouts_that_megatron_does_not_have_are_refused(changed, message):
    with pytest.raises(ExportError, match=message):
        words(plan_of(EXAMPLE.model_copy(update=changed)))


def test_stages_are_renumbered_with_their_ranks():
    order = [0, 4, 1, 5, 2, 6, 3, 7]  # the plan's even ranks are of the first stage, which Megatron numbers from 0 to 3
    stages = [stage(0, 0, *layer(0), ranks=range(0, 8, 2)), stage(1, 0, *layer(1), ranks=range(1, 8, 2))]
    assert [each.ranks for each in FRONT.target().as_launched(plan_of(EXAMPLE, order, stages=stages)).stages] == [
        (0, 1, 2, 3),
        (4, 5, 6, 7),
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, []),
        ({"sequence_parallel": True}, ["--sequence-parallel"]),
        ({"zero": 1}, ["--use-distributed-optimizer"]),
        ({"overlap_dp": True}, ["--overlap-grad-reduce"]),
        ({"overlap_dp": True, "zero": 1}, ["--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]),
        ({"overlap_tp": True, "sequence_parallel": True}, ["--sequence-parallel", "--tp-comm-overlap"]),
        ({"recompute": "selective"}, ["--recompute-granularity", "selective"]),
        (
            {"recompute": "full"},
            ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"],
        ),
        (
            {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 3},
            ["--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers", "3"],
        ),
        ({"precision": "fp16"}, ["--accumulate-allreduce-grads-in-fp32"]),
        ({"precision": "fp16", "fp32_gradients": False}, []),
        ({"precision": "fp8", "fp32_gradients": False}, ["--grad-reduce-in-bf16"]),
        ({"fused_accumulation": False}, ["--no-gradient-accumulation-fusion"]),
        ({"attention": "unfused"}, ["--attention-backend", "unfused"]),
        ({"schedule": "gpipe"}, []),  # there is no pipeline
        ({"overlap_pp": True}, []),
    ],
)
def test_each_choice_of_a_layout_is_its_own_argument(changed, message):
    layout = Layout(**{"tp": 2, "dp": 2, "micro_batch": 1, "global_batch": 4, **changed})
    assert words(plan_of(layout)) == [
        *("--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "1", "--context-parallel-size", "1"),
        *("--expert-model-parallel-size", "1", "--expert-tensor-parallel-size", "2"),
        *("--micro-batch-size", "1", "--global-batch-size", "4", *message),
    ]


@pytest.mark.parametrize(("ep", "etp"), [(10, 2), (40, 1)])
def test_every_degree_is_its_own_argument(ep, etp):
    layout = Layout(tp=2, pp=3, dp=4, cp=5, ep=ep, micro_batch=1, global_batch=12, sequence_parallel=True)
    assert words(plan_of(layout, num_hosts=1))[:10] == [
        *("--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "3", "--context-parallel-size", "5"),
        *("--expert-model-parallel-size", str(ep), "--expert-tensor-parallel-size", str(etp)),
    ]


def test_interleaved_stages_without_names_are_counted():
    layout = Layout(tp=1, pp=4, micro_batch=1, global_batch=4, virtual_stages=3, schedule="interleaved", recompute="full")
    given_words = words(plan_of(layout))
    assert given_words[given_words.index("--num-virtual-stages-per-pipeline-rank") + 1] == "3"
    assert "--no-overlap-p2p-communication" in given_words
    assert given_words[-6:] == [
        *("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1")
    ]


def test_uneven_micro_batches_are_interleaved_in_the_rounds_that_were_priced():
    keys = {"tp": 1, "pp": 4, "micro_batch": 1, "virtual_stages": 2, "schedule": "interleaved"}
    flag = "--microbatch-group-size-per-virtual-pipeline-stage"
    assert flag not in words(plan_of(Layout(global_batch=8, **keys)))
    # six in one round; nine in rounds of five, of which the last has four
    for batch, size in ((6, "6"), (9, "5")):
        given_words = words(plan_of(Layout(global_batch=batch, **keys)))
        batches = ["--micro-batch-size", "1", "--global-batch-size", str(batch), flag, size]
        assert given_words[given_words.index("--micro-batch-size") :][:6] == batches
    with pytest.raises(ExportError, match="no fewer micro-batches than stages, here 3 of 4"):
        words(plan_of(Layout(global_batch=3, **keys)))


def test_a_plan_without_a_layout_leaves_the_batch_to_the_script():
    given_words = words(plan_of(EXAMPLE, keep_layout=False))
    assert given_words[:4] == ["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"]
    assert not [word for word in given_words if "batch" in word]


def test_the_launcher_starts_torchrun_on_every_host_with_megatrons_arguments(tmp_path):
    stages = [
        stage(0, 0, "embedding", *layer(0), *layer(1), ranks=range(4)),
        stage(1, 0, *layer(2), *layer(3), "loss", ranks=range(4, 8)),
    ]
    shown = launched(
        FRONT, "torchrun", SHOW, plan_of(EXAMPLE, stages=stages), tmp_path, script="pretrain_gpt.py --data 'two words'"
    )
    assert sorted(shown) == ["gpu-08", "gpu-09"]
    for host, node in (("gpu-09", 0), ("gpu-08", 1)):
        devices, folder, *given_words = shown[host]
        assert devices == "3,2,1,0"
        assert folder == str(tmp_path)
        assert given_words[:6] == [
            *("--rdzv-backend=static", "--nnodes=2", "--nproc-per-node=4", "--master-addr=gpu-09", "--master-port=29500"),
            f"--node-rank={node}",
        ]
        assert given_words[6:9] == ["pretrain_gpt.py", "--data", "two words"]
        assert given_words[9:] == words(plan_of(EXAMPLE, stages=stages))
        assert given_words[given_words.index("--pipeline-model-parallel-layout") + 1] == "Et*2|t*2L"
