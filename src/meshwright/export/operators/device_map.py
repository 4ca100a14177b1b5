"""A device map for Accelerate and Transformers: the device of one host that each module of a model runs on.

Ops are named after modules, as ``transformer.h.0.attn.c_attn``, or as the zoo and a ``config.json`` name them, which ``modules``
brings to a family's names. A layer of a transformer is moved as a whole, for what it adds up inside must be on one device. Above
layers and ops a module is named where all ops below it agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ... import files
from ...errors import ExportError
from ...plans.document import PlacementPlan
from ..options import ExportOptions
from ..requirements import hosts_of
from ..target import Files, Target, header
from .op_devices import placed_graph

MAP = "device_map.json"
LOADER = "dispatch.py"

_LAYER = re.compile(r"^(?:.*\.)?(?:layers?|blocks?|h)[._]?[0-9]{1,6}(?=\.|$)")

_OPS = ("embedding", "layer", "final_norm", "lm_head", "loss")
_FAMILIES: dict[str, dict[str, tuple[str, ...]]] = {
    family: dict(zip(_OPS, (*modules, ()), strict=True))
    for family, *modules in (
        ("gpt2", ("transformer.wte", "transformer.wpe"), ("transformer.h.{}",), ("transformer.ln_f",), ("lm_head",)),
        ("llama", ("model.embed_tokens", "model.rotary_emb"), ("model.layers.{}",), ("model.norm",), ("lm_head",)),
        (
            "gpt-neox",
            ("gpt_neox.embed_in", "gpt_neox.rotary_emb"),
            ("gpt_neox.layers.{}",),
            ("gpt_neox.final_layer_norm",),
            ("embed_out",),
        ),
    )
}
"""Modules of Transformers' models by the zoo's ops, from ``modeling_gpt2.py``, ``modeling_llama.py`` (with names of Mistral,
Qwen and Gemma) and ``modeling_gpt_neox.py`` of Transformers 5."""

_NOT_GUARANTEED = (
    "Parallelism: one process runs the modules one after another, each on its device; there is no pipeline, other devices wait, "
    "and it does not go with DistributedDataParallel.",
    "Order: modules run when the model calls them; two that the plan runs at the same time do so only as far as the queues of "
    "their devices let them.",
    "Names: keys are the modules that ops are named after; Accelerate refuses a map that leaves a parameter out, and names it.",
    "Tied weights: what two modules share lies on both their devices, and is equal only where Accelerate ties it.",
    "GPU numbering: a number is the device's on its host by PCI order, so set CUDA_DEVICE_ORDER=PCI_BUS_ID; "
    "CUDA_VISIBLE_DEVICES must not leave one out before it.",
)


def device_map(plan: PlacementPlan, modules: str = "names") -> dict[str, int]:
    """Return the device of each module.

    Args:
        plan: one of ops on devices of one host.
        modules: ``names``: ops are named after modules; a family of `_FAMILIES`: they are named as the zoo does.

    Raises:
        ExportError: another kind of plan, a rank on another host, replicas, an op that the family does not know. Or a module on
            two devices; both ops are named.
    """
    hosts = hosts_of(plan)
    result = placed_graph(plan)
    for rank in plan.ranks:
        if rank.host != plan.ranks[0].host:
            problem = f"a device map is for one process on one host, {plan.ranks[0].host}; {len(hosts)} hosts have ranks"
            raise ExportError(problem, field=f"rank {rank.rank}", value=rank.host)
    for number, group in enumerate(result.partition.groups):
        if group.replicas > 1:
            raise ExportError("one process has no replicas", field=f"partition.groups.{number}.replicas", value=group.replicas)
    holder: dict[str, tuple[str, int]] = {}
    for op, rank in zip(result.graph.op_names, result.rank_of, strict=True):
        for module in _modules(op, modules):
            first, device = holder.setdefault(module, (op, rank.local_rank))
            if device != rank.local_rank:
                raise _torn(module, first, device, op, rank.local_rank)
    for module, (op, device) in holder.items():
        parts = module.split(".")
        for above in (".".join(parts[:count]) for count in range(1, len(parts))):
            if above in holder and holder[above][1] != device:
                raise _torn(above, *holder[above], op, device)
    return _as_high_as_agreed({module: device for module, (_, device) in holder.items()})


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the map and a loader whose head says what it is for.

    Raises:
        ExportError: as `device_map`.
    """
    head = header(options.job_name(plan), plan, "a device map", _NOT_GUARANTEED)
    return {MAP: files.json_text(device_map(plan, options.modules)) + "\n", LOADER: head + _LOADER}


def _modules(op: str, family: str) -> Iterable[str]:
    """Return the modules that an op belongs to, the innermost that may not be torn."""
    if family == "names":
        layer = _LAYER.match(op)
        return (layer[0] if layer else op,)
    layer = re.match(r"layer(\d+)\.", op)
    known = _FAMILIES[family]
    if layer is None and op not in known:
        problem = f"no op of the zoo's transformers, so its module in {family} is unknown; modules=names takes it as it is"
        raise ExportError(problem, field="modules", value=op, choices=list(known))
    return tuple(name.format(layer[1]) for name in known["layer"]) if layer else known[op]


def _as_high_as_agreed(device_of: dict[str, int]) -> dict[str, int]:
    """Return the same devices, with modules of one device below a common one put together; no word names the model itself."""
    below: dict[str, set[int]] = {}
    for module, device in device_of.items():
        parts = module.split(".")
        for count in range(len(parts) + 1):
            below.setdefault(".".join(parts[:count]), set()).add(device)
    result: dict[str, int] = {}
    for module, device in device_of.items():
        parts = module.split(".")
        agreed = next(name for name in (".".join(parts[:count]) for count in range(len(parts) + 1)) if len(below[name]) == 1)
        result[agreed] = device
    return result


def _torn(module: str, first: str, device: int, other: str, other_device: int) -> ExportError:
    problem = f"module {module} would be on two devices: {first} on {device}, {other} on {other_device}"
    return ExportError(problem, field="partition.device_of", value=other)


_LOADER = '''"""Run a model by the planned device map, in one process that runs its modules one after another."""

import json
import pathlib


def device_map():
    """Module name to device of this host; also what from_pretrained(device_map=...) takes."""
    return json.loads(pathlib.Path(__file__).with_name("device_map.json").read_text())


def dispatch(model, **options):
    """The model with each module on its device; Accelerate moves what passes between them."""
    from accelerate import dispatch_model

    return dispatch_model(model, device_map=device_map(), **options)
'''

TARGET = Target(
    name="device-map",
    summary="a device map for Accelerate's dispatch_model and Transformers' from_pretrained, on one host",
    guaranteed=(
        "Every module that the ops are named after has the planned device of the host.",
        "A layer of a transformer is on one device; a plan that tears one is refused.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
)
