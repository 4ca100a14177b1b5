"""Common parts of saved policies: the paths of shipped ones, the checks of a file, and how a policy was made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .. import files
from ..errors import CheckpointError, PolicyError

if TYPE_CHECKING:
    import torch

SHIPPED = "shipped:"
NETWORK = "network:"
"""Begins a run's policy that plays itself also where a rule was better."""

STAGES = "stages"
"""Key of what a policy file holds under ``trained``: the stages that the kept weights went through, made by `stage`."""
ABLATION = "ablation"
"""Another key of shipped policies: what was measured without a part."""

LINE_TO_BEAT = "line_to_beat.json"
"""File of a run folder: the best rule on the validation episodes, and whether the policy is better."""
VERDICT = "verdict"
"""Another key of a run's policy: which rule it was compared with on which benchmarks, and whether it is better."""
POLICY_FILES = ("policy.pt", "policy.json")
"""Files of policies in run folders: a network, weights of linear scores."""

_STAGE_WORDS = {"search": "searched weights", "imitation": "imitation", "ppo": "PPO"}

Network = TypeVar("Network", bound="torch.nn.Module")
Made = TypeVar("Made")


def shipped_folder() -> Path:
    """Return the folder of the policies that come with the package."""
    return Path(str(resources("meshwright.models"))) / "shipped"


def shipped_with(ending: str) -> list[str]:
    """Return the names of the shipped policies whose files end so."""
    return sorted(path.name.removesuffix(ending) for path in shipped_folder().iterdir() if path.name.endswith(ending))


def policy_path(spec: str, ending: str, what: str) -> Path:
    """Return the run folder or file of a policy, which need not exist; ``shipped:NAME`` comes with the package.

    Args:
        spec: a path, or ``shipped:NAME``.
        ending: of the files of shipped policies of this kind.
        what: they are policies of.

    Raises:
        PolicyError: no such shipped policy.
    """
    if not spec.startswith(SHIPPED):
        return Path(spec)
    name, names = spec.removeprefix(SHIPPED), shipped_with(ending)
    if name not in names:
        choices = [SHIPPED + one for one in names]
        raise PolicyError(f"no such shipped policy of {what}", field="policy", value=spec, choices=choices)
    return shipped_folder() / (name + ending)


def with_weights(network: Network, weights: Mapping[str, Any], file: str | Path) -> Network:
    """Return a network with saved weights, ready to play.

    Raises:
        CheckpointError: they are of other shapes than the settings make.
    """
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        raise CheckpointError("its weights are not those of its settings", file=file) from None
    return network.eval()


def stage(
    name: str, steps: int, unit: str, validation: float | None = None, *, of: str | None = None
) -> dict[str, str | int | float | None]:
    """Return a stage of training as a policy file holds it.

    Args:
        name: ``search``, ``imitation`` or ``ppo``.
        steps: done by the weights that are kept.
        unit: of steps, as ``decisions``.
        validation: objective on the validation episodes after it; None where it is not known.
        of: what was searched or imitated.
    """
    return {"stage": name, "steps": steps, "unit": unit, "validation": validation, **({} if of is None else {"of": of})}


def how_made(trained: Mapping[str, Any]) -> str:
    """Return how a policy was made, as "searched weights (18 weights, 60 generations); no PPO".

    Args:
        trained: of its file; one without stages gives "unknown".
    """
    stages = trained.get(STAGES)
    if not isinstance(stages, Sequence) or not all(isinstance(each, Mapping) and "stage" in each for each in stages):
        return "unknown"
    parts = []
    for each in stages:
        details = [str(each["of"])] if "of" in each else []
        steps = each.get("steps")
        details += [f"{steps:,} {each.get('unit', 'steps')}"] if isinstance(steps, int) else []
        parts.append(f"{_STAGE_WORDS.get(str(each['stage']), each['stage'])} ({', '.join(details)})")
    has_ppo = any(each["stage"] == "ppo" for each in stages)
    words = ", ".join(parts) or "untrained"
    measured = trained.get(ABLATION)
    return "; ".join([words, *([] if has_ppo else ["no PPO"]), *([str(measured)] if measured else [])])


def how_file_was_made(path: Path) -> str:
    """Return `how_made` of a policy's file, or of the file of a run folder, with the verdict of its run.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    trained = _trained(path)
    verdict = trained.get(VERDICT)
    return f"{how_made(trained)}; {verdict['sentence']}" if verdict else how_made(trained)


def decided(spec: str, make: Callable[[str], Made], benchmark: str | None = None) -> tuple[str, Made, tuple[str, ...]]:
    """Return the rule that plays in place of a run's policy that is not better, or else the policy, with remarks.

    Only a path may be replaced. Of ``network:PATH`` the path is returned.

    Args:
        spec: of a policy.
        make: builds what plays from a spelling. Where it refuses the rule, the policy plays.
        benchmark: that is played; the policies of other benchmarks play themselves. None: whatever is planned.

    Returns:
        The spelling that plays, what ``make`` made of it, and remarks about a rule.

    Raises:
        CheckpointError: the file is damaged.
        PolicyError: ``make`` refuses the policy.
    """
    policy, held = spec.removeprefix(NETWORK), [spec]
    if not spec.endswith((".pt", ".json")):
        held = [os.path.join(spec, name) for name in POLICY_FILES]
    file = next(filter(os.path.isfile, held), None)
    verdict = None if file is None else _trained(Path(file)).get(VERDICT)
    compared_on = verdict.get("benchmarks", ()) if verdict else ()
    if not verdict or verdict["is_better"] or benchmark not in (None, *compared_on):
        return policy, make(policy), ()
    rule, compared = str(verdict["rule"]), f"on {', '.join(compared_on) or 'its benchmark'} the policy is {verdict['sentence']}"
    try:
        return rule, make(rule), (f"{rule} decides: {compared}",)
    except PolicyError as error:
        return policy, make(policy), (f"the network decides although {compared}; {rule} {error.problem}",)


def keep_verdict(path: Path, verdict: Mapping[str, Any]) -> None:
    """Write into a policy's file which rule it was compared with, and whether it is better.

    Args:
        path: of the file.
        verdict: ``rule``, ``benchmarks`` (their names), ``is_better`` and ``sentence``.
    """
    data = _read(path)
    data["trained"] = {**data["trained"], VERDICT: dict(verdict)}
    if path.suffix == ".json":
        files.write_json(path, data)
    else:
        from .tensor_file import save_tensors

        save_tensors(path, data)


def _trained(path: Path) -> Mapping[str, Any]:
    """Return what a policy's file, or that of a run folder, holds under ``trained``."""
    if path.is_dir():
        path = next((path / name for name in POLICY_FILES if (path / name).is_file()), path / POLICY_FILES[0])
    data = _read(path)
    trained = data.get("trained") if isinstance(data, Mapping) else None
    return trained if isinstance(trained, Mapping) else {}


def _read(path: Path) -> Any:
    if path.suffix == ".json":
        return files.read_json(path)
    from .tensor_file import load_tensors  # takes a while

    return load_tensors(path)
