"""Exporting: the registry of targets, plan -> files, files -> folder.

Next to the target's own files every export holds ``export.json``: the rank map, the guarantees, and the names of the files. By
it a later export knows that it may replace the folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files, settings
from ..errors import ConfigError, ExportError, InputFileError, PlanError
from ..plans import legality
from ..plans.document import PlacementPlan
from ..plans.frameworks.table import framework as known_framework
from . import training
from .chakra import traces
from .frameworks.fronts import FRONTS, FrameworkFront
from .kubernetes import forms
from .launchers import openmpi, ray, slurm, torchrun
from .operators import device_map, tensorflow
from .options import ExportOptions
from .target import Files, Needs, Target, dns_label

targets: dict[str, Target] = {
    target.name: target
    for target in (
        slurm.TARGET,
        forms.TARGET,
        torchrun.TARGET,
        ray.TARGET,
        openmpi.TARGET,
        *(front.target() for front in FRONTS.values() if front.launch is not None),
        traces.TARGET,
        device_map.TARGET,
        tensorflow.TARGET,
    )
}
"""Every target, by the name that ``--format`` takes."""

_ALIASES = {
    "kubernetes": ("k8s", "jobset", "volcano", "kueue"),
    "slurm": ("sbatch", "srun"),
    "openmpi": ("mpi", "mpirun"),
    "torchrun": ("pytorch", "fsdp", "fsdp2"),
    "megatron": ("megatron-lm",),
    "torchtitan": ("titan",),
    "device-map": ("accelerate", "transformers"),
    "tensorflow": ("tf",),
}
OTHER_NAMES = {name: target for target, names in _ALIASES.items() for name in names}
"""Names by which people ask for a target."""

MANIFEST = "export.json"
INDEX = "index.json"


@dataclass(frozen=True)
class ExportedRun:
    """The result of exporting the plans of a run.

    Attributes:
        written: file names of each exported plan.
        refused: for each plan that the target cannot express, the reason.
    """

    written: dict[str, tuple[str, ...]]
    refused: dict[str, str]


def export(
    plan: PlacementPlan,
    target: str,
    options: ExportOptions | Mapping[str, Any] | None = None,
    framework: str | None = None,
) -> Files:
    """Return a plan in a target's form.

    Args:
        plan: what to export.
        target: a key of `targets`.
        options: what the plan does not say.
        framework: whose arguments the ranks get, see `made_for`.

    Returns:
        ``{file name: text or bytes}``; a name may lead into a subfolder, as ``traces/rank0.et``.

    Raises:
        ExportError: an unknown target or option, or a plan that the target or the framework cannot express.
        PlanError: a plan that contradicts itself.
    """
    writer = target_of(target)
    export_options = _options(options)
    plan = made_for(plan, target, framework)
    legality.check(plan)
    front = front_of(plan, target)
    said_by = front.name if front is not None and front.name in targets else target
    training.check_said(plan, said_by)
    said = training.said(plan, said_by)
    needs = Needs(plan) if front is None else front.part(plan, export_options)
    launched = export_options if front is None else export_options.with_needs(needs)
    rendered = {**needs.files, **writer.render(needs.plan, launched), **said}
    sentences = None if front is None else needs.not_guaranteed
    if sentences is not None and launched.carried and target in ("torchrun", "openmpi", "ray"):
        sentences += (f"Files: every host must see {', '.join(launched.carried)} in this folder, under the same path.",)
    return {**rendered, MANIFEST: _manifest(needs.plan, writer, export_options, rendered, sentences)}


def made_for(plan: PlacementPlan, target: str, framework: str | None) -> PlacementPlan:
    """Return the plan with the framework whose arguments a launcher's export gets.

    Args:
        plan: what is exported.
        target: a key of `targets`.
        framework: None is the one that the plan was searched for; ``none`` says that it was searched for none.

    Raises:
        ExportError: the target starts no framework, or another one; or ``none`` of a plan that was made for one, which would
            leave without its arguments.
        PlanError: an unknown framework.
    """
    if framework is None or framework == target:
        return plan
    if target not in training.LAUNCHERS:
        does = f"is {FRONTS[target].title} over ssh" if target in FRONTS else "starts no ranks"
        problem = f"the format {target} {does}; a framework is started by {', '.join(training.LAUNCHERS)}"
        raise ExportError(problem, field="--framework", value=framework)
    if framework == "none" and plan.framework is not None:
        advice = "leave --framework out, or search without --for"
        problem = f"the plan was searched for {plan.framework}, without whose arguments its ranks would not run it; {advice}"
        raise ExportError(problem, field="--framework", value=framework)
    try:
        name = None if framework == "none" else known_framework(framework).name
    except PlanError as error:
        choices = error.choices and [*error.choices, "none"]
        raise PlanError(error.problem, field="--framework", value=error.value, choices=choices) from None
    return plan.model_copy(update={"framework": name})


def front_of(plan: PlacementPlan, target: str) -> FrameworkFront | None:
    """Return the framework that a plan was made for in a launcher's export; None for other plans and targets."""
    return None if plan.framework is None or target not in training.LAUNCHERS else FRONTS[plan.framework]


def write(contents: Mapping[str, str | bytes], out_dir: str | Path) -> None:
    """Write exported files into a folder, all or none.

    A folder of an earlier export is replaced as a whole.

    Raises:
        ExportError: the folder holds anything that no earlier export wrote, which would be lost.
        InputFileError: the folder cannot be written or is a link, or a name leads out of it.
    """
    out_dir = Path(out_dir)
    check_replaceable(out_dir)
    with files.atomic_folder(out_dir, marker=MANIFEST) as folder:
        _fill(folder, contents)


def export_run(
    plans: Mapping[str, PlacementPlan],
    target: str,
    out_dir: str | Path,
    options: ExportOptions | Mapping[str, Any] | None = None,
    framework: str | None = None,
) -> ExportedRun:
    """Export many plans: a subfolder for each, and ``index.json`` with a row for each, also for those refused.

    Args:
        plans: by name. It gives the subfolder's name (see `files.file_name`) and, where the options have none, the submitted
            job's.
        target: a key of `targets`.
        out_dir: folder to make or, if an earlier export made it, to replace.
        options: the same for all plans.
        framework: the same, as `made_for` takes it.

    Raises:
        ExportError: an unknown target or option, no plan that the target can express, or two plans with one submitted name or
            decision.
        PlanError: a plan that contradicts itself.
    """
    target_of(target)
    export_options = _options(options)
    out_dir = Path(out_dir)
    if not plans:
        raise ExportError("there are no plans to export")
    if export_options.decision is not None and len(plans) > 1:
        raise ExportError(f"names one plan, and there are {len(plans)}", field="decision", value=export_options.decision)
    job_names = _job_names(plans, export_options)
    contents, refused = dict[str, Files](), dict[str, str]()
    for name, plan in plans.items():
        named = export_options.model_copy(update={"name": job_names[name]})
        try:
            contents[name] = export(plan, target, named, framework)
        except ExportError as error:
            refused[name] = str(error)
    if not contents:
        name, reason = next(iter(refused.items()))
        raise ExportError(f"none of the {len(plans)} plans can be expressed; {name}: {reason}")
    folders = {name: files.file_name(name, reserved=[INDEX]) for name in contents}
    rows = [
        {"name": name, "job": plan.job.name, "hosts": list(plan.host_order), "num_ranks": plan.num_ranks}
        | ({"folder": folders[name], "files": sorted(contents[name])} if name in contents else {"refused": refused[name]})
        for name, plan in plans.items()
    ]
    check_replaceable(out_dir)
    with files.atomic_folder(out_dir, marker=INDEX) as folder:
        for name, texts in contents.items():
            _fill(folder / folders[name], texts)
        files.write_json(folder / INDEX, {"format": target, "plans": rows})
    return ExportedRun(written={name: tuple(sorted(texts)) for name, texts in contents.items()}, refused=refused)


def check_replaceable(out_dir: Path) -> None:
    """Refuse to replace a link, the working folder, or one that holds a file which no export wrote.

    Raises:
        ExportError: the working folder or above it, or a file in it is no export's.
        InputFileError: a link.
    """
    files.check_no_link(out_dir)
    if not out_dir.is_dir():
        return
    if Path.cwd().is_relative_to(out_dir.resolve()):
        raise ExportError("is the working folder or above it; name one below", field="out", value=str(out_dir))
    known = _exported_files(out_dir)
    for path in sorted(out_dir.rglob("*")):
        if path.is_symlink() or (path.is_file() and path.relative_to(out_dir).as_posix() not in known):
            raise ExportError("the folder holds a file that no export wrote; choose another", file=out_dir, value=path.name)


def target_of(name: str, *, field: str = "format") -> Target:
    """Return the target of a name.

    Raises:
        ExportError: there is none.
    """
    if name not in targets:
        if name.lower() in OTHER_NAMES:
            problem = f"unknown format (got {name!r}); did you mean {OTHER_NAMES[name.lower()]!r}?"
            raise ExportError(problem, field=field)
        raise ExportError("unknown format", field=field, value=name, choices=targets)
    return targets[name]


def _job_names(plans: Mapping[str, PlacementPlan], options: ExportOptions) -> dict[str, str]:
    """Return the name under which each plan of a run is submitted."""
    taken: dict[str, str] = {}
    for name in plans:
        label = options.name or dns_label(name)
        if options.name is None and label in taken.values():
            first = next(other for other, its in taken.items() if its == label)
            raise ExportError(f"would be submitted under the same name as {first}, {label}", field="plans", value=name)
        taken[name] = label
    return taken


def _options(options: ExportOptions | Mapping[str, Any] | None) -> ExportOptions:
    if isinstance(options, ExportOptions):
        return options
    try:
        return settings.build_settings(ExportOptions, dict(options or {}))
    except ConfigError as error:
        raise ExportError(error.problem, field=error.field, value=error.value, choices=error.choices) from None


def _manifest(
    plan: PlacementPlan,
    target: Target,
    options: ExportOptions,
    rendered: Mapping[str, str | bytes],
    of_framework: tuple[str, ...] | None = None,
) -> str:
    left_open = target.not_guaranteed if target.left_open is None else target.left_open(options)
    ranks = [rank.model_dump(mode="json", exclude_none=True) for rank in plan.ranks]
    content = {
        "format": target.name,
        **({} if of_framework is None else {"framework": plan.framework}),
        "name": options.job_name(plan),
        "guaranteed": target.guaranteed,
        "not_guaranteed": [*left_open, *(of_framework or ())],
        "host_order": plan.host_order,
        "ranks": ranks,
        "files": sorted([*rendered, MANIFEST]),
    }
    return files.json_text(content) + "\n"


def _fill(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    for name, content in contents.items():
        path = files.below(folder, name)
        if isinstance(content, bytes):
            with files.atomic_file(path) as file:
                file.write(content)
            continue
        files.write_text(path, content)
        if content.startswith("#!"):
            mode = path.stat().st_mode
            path.chmod(mode | (mode & 0o444) >> 2)  # whoever may read it may run it


def _exported_files(folder: Path) -> set[str]:
    """Return the files that an earlier export says it wrote into a folder and its subfolders."""
    known: set[str] = set()
    for manifest in folder.rglob(MANIFEST):
        inside = manifest.parent.relative_to(folder)
        known |= {(inside / name).as_posix() for name in _names(manifest, "files")}
    return known | ({INDEX} if (folder / INDEX).is_file() and _names(folder / INDEX, "plans") else set())


def _names(path: Path, key: str) -> list[str]:
    try:
        content = files.read_json(path, is_input=False)
    except InputFileError:
        return []
    names = content.get(key) if isinstance(content, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else []
