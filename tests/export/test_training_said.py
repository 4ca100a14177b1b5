"""Which targets say which strategies and codes, in a table, and the whole of what launchers of scripts are given."""

import json

import pytest

from meshwright.errors import ExportError
from meshwright.export import targets
from meshwright.export.training import (
    LAUNCHERS,
    NEAREST,
    SCRIPT,
    SNIPPET,
    STRATEGY,
    check_said,
    hook_of,
    said,
    snippet,
    zero_keys,
)
from meshwright.jobs.masked import Core
from meshwright.plans import Layout
from meshwright.plans.compression import LowRank, Quantise, RandomK, Sign, TopK
from meshwright.plans.document import LayoutPartition, PlannedPhase, Rank, Stage
from meshwright.plans.training import (
    Asynchronous,
    DiLoCo,
    Gossip,
    IndependentSubnets,
    LocalSgd,
    Masked,
    PostLocalSgd,
    StaleSynchronous,
    Synchronous,
)

from .grids import plan_of

ALL, SCRIPTS = set(targets), {"torchrun", "slurm", "kubernetes", "openmpi", "ray"}
LOCAL, POST, DILOCO = LocalSgd(every=2), PostLocalSgd(every=3, warmup_steps=5), DiLoCo(every=9)
GOSSIP, MASKED = Gossip(topology="aer"), Masked(core=Core(width=0.5), core_steps=3, full_steps=1)
FP16, INT8, INT4 = (Quantise(bits=bits) for bits in (16, 8, 4))


def plan_with(zero=0, **keys):
    return plan_of(Layout(dp=2, micro_batch=1, global_batch=2, zero=zero)).model_copy(update=keys)


TRAININGS = [
    (None, ALL),
    (Synchronous(), ALL),
    *((one, SCRIPTS | {"chakra"}) for one in (LOCAL, POST, DILOCO, GOSSIP, MASKED)),
    (IndependentSubnets(every=9), SCRIPTS),
    (StaleSynchronous(staleness=2), {"ray"}),
    (Asynchronous(), {"ray"}),
]


@pytest.mark.parametrize(("training", "sayers"), TRAININGS, ids=lambda one: getattr(one, "kind", ""))
def test_each_strategy_is_said_by_these_targets_alone(training, sayers):
    assert set(LAUNCHERS) == SCRIPTS
    for target in ALL:
        assert refusal(plan_with(training=training), target) == (None if target in sayers else ("training", training.kind))


CODES = [
    # code, ZeRO stage, and who says it
    *((code, 0, SCRIPTS | {"chakra"}) for code in (FP16, INT8, LowRank(rank=2))),
    *((code, 0, {"chakra"}) for code in (INT4, TopK(fraction=0.1), RandomK(fraction=0.1))),
    (Sign(), 0, {"chakra", "deepspeed"}),
    # What is sharded is not whole, and ZeRO-3 of DeepSpeed sends gradients in 4 bits and parameters in 8.
    *((code, 3, {"chakra"}) for code in (FP16, INT8, LowRank(rank=2))),
    (INT4, 3, {"chakra", "deepspeed"}),
    (Quantise(bits=8, what="parameters"), 3, {"chakra", "deepspeed"}),
    (Quantise(bits=4, what="parameters"), 3, {"chakra"}),
    (Quantise(bits=8, what="both"), 3, {"chakra"}),
    (Quantise(bits=4, what="both"), 3, {"chakra"}),
    # ZeRO-2 keeps gradients whole on the way.
    (FP16, 2, SCRIPTS | {"chakra"}),
    (INT4, 2, {"chakra"}),
]


@pytest.mark.parametrize(("code", "zero", "sayers"), CODES, ids=lambda one: getattr(one, "text", None))
def test_each_code_is_said_by_these_targets_alone(code, zero, sayers):
    as_they_are = {"megatron", "torchtitan", "device-map", "tensorflow"}  # these have no word for any code
    for target in ALL:
        value = code.kind if target in as_they_are else code.text
        assert refusal(plan_with(zero, compression=code), target) == (None if target in sayers else ("compression", value))


def refusal(plan, target):
    """Key and value of a refusal, which names the nearest plan; None where a target says this one."""
    try:
        check_said(plan, target)
    except ExportError as error:
        return (error.field, error.value) if error.problem.endswith(f"; {NEAREST} {error.field}") else error.problem
    return None


def test_plans_without_a_layout_have_no_sharded_replicas(make_plan):
    assert refusal(make_plan(["a", "b"]).model_copy(update={"compression": FP16}), "torchrun") is None


def test_zero_plus_plus_has_a_key_for_parameters_in_8_bits_and_one_for_gradients_in_4():
    expected = {("parameters", 8): {"zero_quantized_weights": True}, ("gradients", 4): {"zero_quantized_gradients": True}}
    for what in ("parameters", "gradients", "both"):
        for bits in (32, 16, 8, 4, 2, 1):
            assert zero_keys(Quantise(bits=bits, what=what)) == expected.get((what, bits), {})
    assert zero_keys(Sign()) == {}


HOOKS = [
    (FP16, "default_hooks", "(None, default_hooks.fp16_compress_hook)"),
    (INT8, "quantization_hooks", "(torch.distributed.group.WORLD, quantization_hooks.quantization_pertensor_hook)"),
    (
        LowRank(rank=4, error_feedback=False),
        "powerSGD_hook",
        "(powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=4, start_powerSGD_iter=2, "
        "use_error_feedback=False), powerSGD_hook.powerSGD_hook)",
    ),
]


@pytest.mark.parametrize(("code", "imports", "arguments"), HOOKS)
def test_gradients_are_coded_by_the_hook_of_torch(code, imports, arguments):
    lines = hook_of(code).splitlines()
    assert f"from torch.distributed.algorithms.ddp_comm_hooks import {imports}" in lines
    assert lines[-1] == f"    model.register_comm_hook{arguments}"
    assert snippet(LOCAL, code) == hook_of(code)


CALLS = [
    (LOCAL, "PeriodicModelAverager(period=2, warmup_steps=0)"),
    (POST, "PeriodicModelAverager(period=3, warmup_steps=5)"),
    (POST, "subgroup=subgroup, start_localSGD_iter=5)"),
    (DILOCO, "DiLoCo(manager, [model], inner, outer, sync_every=9)"),
    *(
        (Gossip(topology=topology), f'lr_scheduler_fn=lr_scheduler_fn, topology="{name}")\n')
        for topology, name in {
            "aer": "alternating-exp-ring",
            **{one: one for one in ("ring", "complete", "one-peer-exp")},
        }.items()
    ),
]


@pytest.mark.parametrize(("training", "call"), CALLS)
def test_a_strategy_is_carried_out_by_the_library_s_call(training, call):
    assert call in snippet(training, None)
    assert "import torch\n" not in snippet(GOSSIP, None)


def test_accumulating_adam_comes_with_the_gossip_that_steps_by_it():
    text = snippet(Gossip(topology="ring", optimizer="accum-adam", accum_iter=7), None)
    assert text.startswith(snippet(Gossip(topology="ring"), None).replace("from decent_dp", "import torch\nfrom decent_dp", 1))
    assert "class AccumAdam" in text
    assert "accum_iter=7):\n" in text


CALLED = "Strategy: the script carries it out; training_strategy.py holds the calls."
TOLD = [
    ({"training": LOCAL}, [CALLED], True),
    ({"training": POST}, [CALLED], True),
    ({"training": GOSSIP}, [CALLED], True),
    ({"training": DILOCO}, [CALLED], True),
    ({"training": IndependentSubnets(every=9)}, [SCRIPT], False),
    (
        {"training": DiLoCo(every=9, quantise_bits=4)},
        [CALLED, "Strategy: quantise_bits=4 is not known to torchft, which averages whole numbers or 8 bits."],
        True,
    ),
    (
        {"training": DiLoCo(every=9, quantise_bits=8, fragments=2, overlap=True, offload=True)},
        [
            CALLED,
            "Strategy: quantise_bits=8 wants should_quantize=True of torchft's DiLoCo, and a GPU.",
            "Strategy: fragments=2 wants the model as a list of so many modules; the snippet has one.",
            "Strategy: overlap=true wants fragment_sync_delay of torchft's DiLoCo, whose steps are yours to choose.",
            "Strategy: offload=true: where torchft keeps the outer parameters is not checked.",
        ],
        True,
    ),
    ({"training": Asynchronous(servers=3)}, ["Strategy: the parameter server on 3 more hosts is yours to start."], False),
    (
        {"training": StaleSynchronous(staleness=2, servers=2)},
        ["Strategy: the parameter server on 2 more hosts is yours to start."],
        False,
    ),
    (
        {"compression": FP16, "training": Synchronous()},
        [
            CALLED,
            "Strategy: group=256: torch's hook of 16 bits has no groups; its scales are none.",
            "Strategy: error_feedback=true: torch's hook of 16 bits feeds nothing back.",
            "Strategy: summable=false: torch's hook of 16 bits sums coded numbers in transit.",
        ],
        True,
    ),
    (
        {"compression": Quantise(bits=8, error_feedback=False, summable=True)},
        [
            CALLED,
            "Strategy: group=256: torch's hook of 8 bits has no groups; its scales are one for each gradient.",
            "Strategy: summable=true: torch's hook of 8 bits gathers coded numbers in transit.",
        ],
        True,
    ),
    ({"compression": LowRank(rank=2)}, [CALLED], True),
    ({"compression": Quantise(bits=16, group=None, error_feedback=False, summable=True)}, [CALLED], True),
]


@pytest.mark.parametrize(("keys", "message", "has_snippet"), TOLD)
def test_a_script_s_launcher_is_given_the_whole_strategy(keys, message, has_snippet):
    plan = plan_with(**keys)
    files = said(plan, "torchrun")
    expected = {"not_guaranteed": message}
    for key in ("training", "compression"):
        if key in keys:
            expected[key] = {name: value for name, value in keys[key].model_dump(mode="json").items() if value is not None}
    assert json.loads(files[STRATEGY]) == expected
    assert files[STRATEGY].endswith("}\n")
    assert set(files) == ({STRATEGY, SNIPPET} if has_snippet else {STRATEGY})
    if has_snippet:
        assert files[SNIPPET] == snippet(keys.get("training"), keys.get("compression"))
    assert said(plan, "chakra") == {}


def test_synchronous_training_gets_no_files():
    for training in (None, Synchronous()):
        assert said(plan_with(training=training), "torchrun") == {}


def test_phases_stand_in_the_strategy_with_their_layouts_ranks_and_stages():
    rank = Rank(rank=0, host="a", local_rank=0, device=1)
    stage = Stage(stage=0, chunk=0, ranks=(0,), num_ops=1, ops=("head",))
    partition = LayoutPartition(layout=Layout(dp=1, micro_batch=2, global_batch=4))
    phase = PlannedPhase(name="core", steps=3, partition=partition, ranks=(rank,), stages=(stage,))
    data = json.loads(said(plan_with(training=MASKED, phases=(phase,)), "slurm")[STRATEGY])
    places = "Strategy: ranks of the launched job are those of the whole model; places of the core's phase are under phases."
    assert data["not_guaranteed"] == [SCRIPT, places]
    assert data["phases"] == [
        {
            **{"name": "core", "steps": 3, "layout": {"micro_batch": 2, "global_batch": 4}},
            "ranks": [{"rank": 0, "host": "a", "local_rank": 0, "device": 1}],
            "stages": [{"stage": 0, "chunk": 0, "ranks": [0], "num_ops": 1, "ops": ["head"]}],
        }
    ]
