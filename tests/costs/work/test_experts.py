"""Experts as kernels: launches by framework, what chooses experts, and what sorts tokens by the experts of a rank."""

import pytest

from meshwright.costs.training_step.kernels import kernel_model
from meshwright.costs.training_step.passes import pass_time
from meshwright.costs.work.activations.stage_activations import activation_bytes
from meshwright.costs.work.operations import Message, Product, Sweep
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.errors import PlanError
from meshwright.evaluation.validation.step_times.published_runs import LLAMA
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.plans.partition import Layout

SHAPE = gpt(8, 512, 8, 1024, 128, **LLAMA, num_key_value_heads=2, feed_forward=256, is_gated=True).model_copy(
    update={"num_experts": 32, "experts_per_token": 4}
)


def layer_of(**keys):
    keys = {"micro_batch": 2, "global_batch": 32, "dp": 4, "ep": 4} | keys
    return describe(SHAPE, Layout(**keys), 128).layer


def of_experts(layer):
    return [one for one in (*layer.forward, *layer.backward) if isinstance(one, Product) and one.batch > 1]


@pytest.mark.parametrize(
    ("keys", "launches"),
    [
        ({}, [1] * 6),
        ({"framework": "fsdp2"}, [1] * 6),
        # 8 experts of a rank, two products forward and four backward, each by itself
        ({"framework": "megatron"}, [8] * 6),
        # in fp8 also a cast of what each of the two forward, and of the two that give gradients of inputs, multiplies
        ({"framework": "megatron", "precision": "fp8"}, [16, 16, 16, 8, 16, 8]),
    ],
)
def test_launches_of_the_experts_of_a_rank_worked_by_hand(keys, launches):
    assert [one.num_launches for one in of_experts(layer_of(**keys))] == launches


def test_a_further_launch_of_an_op_takes_the_host_less_than_an_op():
    model = kernel_model(device_type("a100"))
    host_s = [
        pass_time((Product("p", 64, 64, 64, 8, num_launches=launches),), model, lambda _: 0.0, 2).host_s for launches in (1, 2, 8)
    ]
    assert host_s[1] - host_s[0] == pytest.approx(model.host_us["host_us_per_launch"] / 1e6)
    assert host_s[2] - host_s[0] == pytest.approx(7 * model.host_us["host_us_per_launch"] / 1e6)
    assert model.constants.host_us_per_kernel > model.host_us["host_us_per_launch"]


@pytest.mark.parametrize(
    ("framework", "ep", "choice", "sorted_again"), [(None, 4, 0, 0), ("megatron", 4, 1, 2), ("megatron", 1, 1, 0)]
)
def test_choosing_experts_and_sorting_by_them_count_where_a_framework_is_named(framework, ep, choice, sorted_again):
    layer = layer_of(framework=framework, ep=ep)
    for items, routing in ((layer.forward, "routing"), (layer.backward, "routing gradient")):
        names = [item.name for item in items if isinstance(item, Sweep | Message)]
        assert (names.count(routing), names.count("token order by expert")) == (choice, sorted_again)
    assert ("token counts" in [one.name for one in layer.forward]) == (framework is not None and ep > 1)


@pytest.mark.parametrize(("etp", "ep"), [(1, 8), (2, 4)])
@pytest.mark.parametrize("is_sequence_cut", [True, False])
def test_experts_cut_less_than_dense_layers_worked_by_hand(etp, ep, is_sequence_cut):
    layer = layer_of(tp=4, dp=2, ep=ep, etp=etp, sequence_parallel=is_sequence_cut)
    sent = {(one.name, one.axis): one.payload_bytes for one in layer.forward if isinstance(one, Message)}
    # 2 sequences of 128 tokens, a quarter on each rank of tp, 4 experts a token, 512 numbers of two bytes
    assert sent["dispatch", "ep"] == sent["combine", "ep"] == 64 * 4 * 512 * 2
    # the ranks that share an expert have all that one of them got
    assert sent.get(("expert input", "etp"), 0) == sent.get(("expert output", "etp"), 0) == (64 * 2 * 4 * 512 * 2) * (etp == 2)
    # without sequence parallelism the other ranks of tp want the tokens too
    assert sent.get(("tokens", "tp"), 0) == (256 * 512 * 2) * (not is_sequence_cut)
    # three matrices of 512 x 256 an expert, 32 experts over ep and etp
    assert layer.expert_parameters == 32 // ep * 3 * 512 * 256 / etp
    assert {(one.batch, one.m) for one in of_experts(layer) if one.name in ("experts up", "experts down")} == {
        (32 // ep, round(64 * etp * 4 / (32 // ep)))
    }


def test_ranks_of_tp_share_the_optimizer_of_whole_experts_too():
    # with ep=1 eight ranks of tp and dp hold the same 32 experts, with ep=4 two hold 8 of them
    keys = {"micro_batch": 2, "global_batch": 32, "tp": 4, "dp": 2, "etp": 1, "zero": 1}
    for ep, shards in ((1, 8), (4, 2)):
        held = describe(SHAPE, Layout(**keys, ep=ep), 128).stages[0]
        assert held.expert_parameters == 8 * 32 // ep * 3 * 512 * 256
        assert held.optimizer_parameters == held.dense_parameters / 2 + held.expert_parameters / shards


def test_inputs_of_whole_experts_are_kept_once_among_the_ranks_of_tp():
    def kept(**keys):
        return activation_bytes(describe(SHAPE, Layout(micro_batch=2, global_batch=32, tp=4, dp=2, ep=2, **keys), 128))

    # 8 layers, 2 x 128 tokens, 4 experts each, 512 numbers in 2 bytes before and after they are sorted
    assert kept() - kept(etp=1) == pytest.approx(8 * 256 * 4 * 512 * (2 + 2) * 3 / 4)
    assert kept(sequence_parallel=True) == kept(sequence_parallel=True, etp=1)


def test_a_model_without_experts_has_none_to_cut():
    dense = SHAPE.model_copy(update={"num_experts": 1, "experts_per_token": 1})
    with pytest.raises(PlanError, match=r"layout\.etp: cuts experts, and .* has none \(got 1\)"):
        describe(dense, Layout(tp=2, etp=1, micro_batch=1, global_batch=1), 128)
