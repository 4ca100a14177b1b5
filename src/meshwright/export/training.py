"""Training strategies in exports: files for the launchers that run a script, and refusals by those that cannot express it.

A refusal names the key and the nearest plan that the target can express.
"""

from __future__ import annotations

from .. import files
from ..errors import ExportError
from ..plans.compression import AnyCompression, LowRank, Quantise, Sign
from ..plans.document import PlacementPlan
from ..plans.training import AnyTraining, Asynchronous, DiLoCo, Gossip, LocalSgd, Masked, PostLocalSgd, StaleSynchronous
from .target import Files

STRATEGY = "training.json"
SNIPPET = "training_strategy.py"

LAUNCHERS = ("torchrun", "slurm", "kubernetes", "openmpi", "ray")
"""Targets that start the user's own script, which carries the strategy out."""

NEAREST = "the nearest plan that it can say is the same one without"


def check_said(plan: PlacementPlan, target: str) -> None:
    """Refuse a plan whose strategy a target cannot say.

    Raises:
        ExportError: with the key, and the nearest plan that can be said.
    """
    training, code = plan.training, plan.compression
    if training is not None and training.kind != "synchronous":
        if target in ("megatron", "torchtitan", "deepspeed", "device-map", "tensorflow"):
            _refuse(f"{target} sums gradients in every step", "training", training.kind)
        assert target in (*LAUNCHERS, "chakra"), target
        if isinstance(training, StaleSynchronous | Asynchronous) and target != "ray":
            _refuse(f"{target} has no parameter server", "training", training.kind)
        if target == "chakra" and not isinstance(training, LocalSgd | PostLocalSgd | DiLoCo | Gossip | Masked):
            steps_text = (
                "traces hold the steps from one average to the next, rounds of gossip, and a step of each phase of masked"
            )
            _refuse(steps_text, "training", training.kind)
    if code is not None:
        if target in ("megatron", "torchtitan", "device-map", "tensorflow"):
            _refuse(f"{target} sends gradients as they are", "compression", code.kind)
        layout = plan.layout()
        is_sharded = layout is not None and layout.zero >= 3
        if target == "deepspeed" and not isinstance(code, Sign) and not (is_sharded and zero_keys(code)):
            steps_text = (
                "DeepSpeed has optimizers of one bit (kind=sign), and with zero=3 parameters in 8 bits and gradients in 4"
            )
            _refuse(steps_text, "compression", code.text)
        if target in LAUNCHERS and is_sharded:
            _refuse("torch's hooks code gradients of whole replicas", "compression", code.text)
        if target in LAUNCHERS and hook_of(code) is None:
            problem = "torch has hooks for quantise with 16 or 8 bits and for low-rank"
            _refuse(problem, "compression", code.text)


def zero_keys(code: AnyCompression) -> dict[str, bool]:
    """Return the keys of DeepSpeed's ``zero_optimization`` that code what ZeRO-3 sends; none where it cannot.

    Source:
        deepspeedai/DeepSpeed, deepspeed/runtime/zero/config.py (``zero_quantized_weights``, ``zero_quantized_gradients``), which
        sends parameters in 8 bits and gradients in 4 (Wang et al., "ZeRO++", 2023, sections 3.1 and 3.3).
    """
    widths = {"parameters": ("zero_quantized_weights", 8), "gradients": ("zero_quantized_gradients", 4)}
    if not isinstance(code, Quantise) or code.what == "both" or code.bits != widths[code.what][1]:
        return {}
    return {widths[code.what][0]: True}


def said(plan: PlacementPlan, target: str) -> Files:
    """Return the files that a launcher's export gets for a strategy; none where training is synchronous."""
    training, code = plan.training, plan.compression
    if target not in LAUNCHERS or (code is None and (training is None or training.kind == "synchronous")):
        return {}
    sentences = [f"Strategy: the script carries it out; {SNIPPET} holds the calls." if _has_snippet(plan) else SCRIPT]
    sentences += [f"Strategy: {problem}" for problem in _unsaid(training, code)]
    if isinstance(training, StaleSynchronous | Asynchronous):
        sentences = [f"Strategy: the parameter server on {training.servers} more hosts is yours to start."]
    data: dict[str, object] = {"not_guaranteed": sentences}
    if training is not None:
        data["training"] = training.model_dump(mode="json", exclude_none=True)
    if plan.phases is not None:
        data["phases"] = [
            {
                "name": phase.name,
                "steps": phase.steps,
                "layout": phase.partition.layout.model_dump(mode="json", exclude_defaults=True),
                "ranks": [rank.model_dump(mode="json", exclude_none=True) for rank in phase.ranks],
                "stages": [stage.model_dump(mode="json") for stage in phase.stages],
            }
            for phase in plan.phases
        ]
    if code is not None:
        data["compression"] = code.model_dump(mode="json", exclude_none=True)
    rendered: Files = {STRATEGY: files.json_text(data) + "\n"}
    if _has_snippet(plan):
        rendered[SNIPPET] = snippet(training, code)
    return rendered


def _unsaid(training: AnyTraining | None, code: AnyCompression | None) -> list[str]:
    """Return the differences of a snippet's calls from the keys of a strategy."""
    result = []
    if isinstance(training, DiLoCo):
        if training.quantise_bits == 8:
            result.append("quantise_bits=8 wants should_quantize=True of torchft's DiLoCo, and a GPU.")
        elif training.quantise_bits < 8:
            result.append(
                f"quantise_bits={training.quantise_bits} is not known to torchft, which averages whole numbers or 8 bits."
            )
        if training.fragments > 1:
            result.append(f"fragments={training.fragments} wants the model as a list of so many modules; the snippet has one.")
        if training.overlap:
            result.append("overlap=true wants fragment_sync_delay of torchft's DiLoCo, whose steps are yours to choose.")
        if training.offload:
            result.append("offload=true: where torchft keeps the outer parameters is not checked.")
    if isinstance(training, Masked):
        result.append("ranks of the launched job are those of the whole model; places of the core's phase are under phases.")
    if isinstance(code, Quantise):
        scale = "none" if code.bits == 16 else "one for each gradient"
        if code.group is not None:
            result.append(f"group={code.group}: torch's hook of {code.bits} bits has no groups; its scales are {scale}.")
        if code.error_feedback:
            result.append(f"error_feedback=true: torch's hook of {code.bits} bits feeds nothing back.")
        if code.summable != (code.bits == 16):
            does = "sums coded numbers" if code.bits == 16 else "gathers coded numbers"
            result.append(f"summable={str(code.summable).lower()}: torch's hook of {code.bits} bits {does} in transit.")
    return result


SCRIPT = "Strategy: no library is known to carry it out; the script does it."


def _has_snippet(plan: PlacementPlan) -> bool:
    return isinstance(plan.training, LocalSgd | PostLocalSgd | DiLoCo | Gossip) or plan.compression is not None


def snippet(training: AnyTraining | None, code: AnyCompression | None) -> str:
    """Return a Python module whose functions carry a strategy out."""
    if code is not None:
        hook = hook_of(code)
        assert hook is not None
        return hook
    if isinstance(training, LocalSgd):
        return _AVERAGER.format(every=training.every, warmup_steps=0)
    if isinstance(training, PostLocalSgd):
        return _POST_LOCAL.format(every=training.every, warmup_steps=training.warmup_steps)
    if isinstance(training, DiLoCo):
        return _DILOCO.format(every=training.every)
    assert isinstance(training, Gossip), "checked before"
    written = _GOSSIP.format(topology=_TOPOLOGY_NAMES[training.topology])
    if training.optimizer != "accum-adam":
        return written
    with_torch = written.replace("from decent_dp", "import torch\nfrom decent_dp", 1)
    return with_torch + ACCUMULATING_ADAM.format(accum_iter=training.accum_iter)


def hook_of(code: AnyCompression) -> str | None:
    """Return the call by which DistributedDataParallel codes gradients; None where torch has none."""
    if isinstance(code, Quantise) and code.bits == 16:
        return _HOOK.format(imports="default_hooks", register="model.register_comm_hook(None, default_hooks.fp16_compress_hook)")
    if isinstance(code, Quantise) and code.bits == 8:
        call = "model.register_comm_hook(None, quantization_hooks.quantization_pertensor_hook)"
        return _HOOK.format(imports="quantization_hooks", register=call.replace("(None,", "(torch.distributed.group.WORLD,"))
    if isinstance(code, LowRank):
        state = f"process_group=None, matrix_approximation_rank={code.rank}, start_powerSGD_iter=2, "
        state += f"use_error_feedback={code.error_feedback}"
        return _HOOK.format(
            imports="powerSGD_hook",
            register=f"model.register_comm_hook(powerSGD_hook.PowerSGDState({state}), powerSGD_hook.powerSGD_hook)",
        )
    return None


def _refuse(problem: str, key: str, value: str) -> None:
    raise ExportError(f"{problem}; {NEAREST} {key}", field=key, value=value)


_HOOK = '''"""Codes the gradients of a DistributedDataParallel model: call code_gradients(model) once, before the first step."""

import torch
from torch.distributed.algorithms.ddp_comm_hooks import {imports}


def code_gradients(model: torch.nn.parallel.DistributedDataParallel) -> None:
    {register}
'''

_AVERAGER = '''"""Local SGD: call average(model.parameters()) behind every optimizer.step(), without DistributedDataParallel."""

from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

AVERAGER = None


def average(parameters) -> None:
    global AVERAGER
    if AVERAGER is None:  # wants the process group
        AVERAGER = PeriodicModelAverager(period={every}, warmup_steps={warmup_steps})
    AVERAGER.average_parameters(parameters)
'''

_POST_LOCAL = '''"""Post-local SGD: call prepare(model, optimizer) once, and step by the optimizer that it returns."""

import torch
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer


def prepare(model: torch.nn.parallel.DistributedDataParallel, optimizer, subgroup=None):
    """subgroup: whose gradients go on being summed in every step; each rank by itself by default."""
    if subgroup is None:
        subgroup, _ = torch.distributed.new_subgroups(group_size=1)
    state = PostLocalSGDState(process_group=None, subgroup=subgroup, start_localSGD_iter={warmup_steps})
    model.register_comm_hook(state, post_localSGD_hook)
    return PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period={every}, warmup_steps={warmup_steps}))
'''

_DILOCO = '''"""DiLoCo by torchft: train inside 'with diloco(manager, model, inner, outer):'."""

from torchft.local_sgd import DiLoCo


def diloco(manager, model, inner, outer):
    """outer: torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)."""
    return DiLoCo(manager, [model], inner, outer, sync_every={every})
'''

_GOSSIP = '''"""Gossip by decent-dp: wrap the model, then train as with DistributedDataParallel, without optimizer.step()."""

from decent_dp.ddp import DecentralizedDataParallel


def decentralised(model, optim_fn, lr_scheduler_fn=None):
    """optim_fn: makes the optimizer of a list of named parameters."""
    return DecentralizedDataParallel(model, optim_fn=optim_fn, lr_scheduler_fn=lr_scheduler_fn, topology="{topology}")
'''

_TOPOLOGY_NAMES = {"aer": "alternating-exp-ring", "one-peer-exp": "one-peer-exp", "ring": "ring", "complete": "complete"}

ACCUMULATING_ADAM = '''

class AccumAdam(torch.optim.Optimizer):
    """Adam whose moments take in the mean gradient of every accum_iter steps; in between a step adds its own gradient to them."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, accum_iter={accum_iter}):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, accum_iter=accum_iter))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            (first, second), every = group["betas"], group["accum_iter"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                gradient, state = weight.grad, self.state[weight]
                if not state:
                    state["step"] = 0
                    state |= {{name: torch.zeros_like(weight) for name in ("moment", "square", "summed")}}
                state["step"] += 1
                rounds = -(-state["step"] // every)
                moment = (state["moment"] + (1 - first) * gradient) / (1 - first**rounds)
                square = (state["square"] + (1 - second) * gradient**2) / (1 - second**rounds)
                weight -= group["lr"] * moment / (square.sqrt() + group["eps"])
                state["summed"] += gradient
                if state["step"] % every == 0:
                    mean = state["summed"] / every
                    state["moment"] = first * (state["moment"] + (1 - first) * mean)
                    state["square"] = second * (state["square"] + (1 - second) * mean**2)
                    state["summed"].zero_()
        return loss
'''
"""Accumulating Adam as an optimizer of PyTorch, for the snippet of gossip.

Source:
    Wang et al., "From promise to practice: realizing high-performance decentralized training", 2024, arXiv 2410.11998.
"""
