"""``meshwright train``."""

from __future__ import annotations

import sys
from importlib.resources import files as resources
from pathlib import Path

from ... import files, inputs, settings
from ...errors import CheckpointError, ConfigError, MeshwrightError
from ...jobs.load import profile_names
from .. import interrupts, output

LINEAR = "linear"


def train_policy(
    config: str | None,
    changes: list[str],
    resume: Path | None,
    out: Path | None,
    overwrite: bool,
    graphs: Path | None,
    json_file: str | None,
) -> None:
    """Train, or go on training, and say where the run folder is and what the policy reached."""
    from ...training.run_folder import RunFolder, resumed_files

    for path in () if resume is None else resumed_files(resume):
        inputs.declare_file("--resume", path, is_update=True)
    output.check_file("--json", json_file)
    output.check_folder("--out", out, is_replaced=True)
    if graphs is not None:
        profile_names(graphs)  # refuses a folder without any
    if resume is not None and (out is not None or overwrite):
        raise ConfigError("goes on in its own run folder; leave out --out and --overwrite", field="--resume", value=str(resume))
    if resume is None and config is None:
        raise ConfigError("name a config, or a run folder with --resume", field="CONFIG", choices=preset_names())
    if method(config, changes, resume) == LINEAR:
        from . import tune

        tune.tune_scorer(None if config is None else config_path(config), changes, resume, out, overwrite, graphs, json_file)
        return
    from ...training.settings import load_train_settings

    chosen = load_train_settings(config_path(config), changes) if config is not None else None
    if resume is not None:
        begun = RunFolder.open(resume).settings()
        if chosen is None and changes:
            raise CheckpointError("a run is resumed as it was begun; leave out --set", file=resume, value=changes[0])
        chosen = chosen or begun
    assert chosen is not None
    folder = resume or out or Path("runs") / chosen.name
    if resume is None:
        output.check_folder("--out", folder, is_replaced=True)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        from ...envs.benchmark import load_benchmark

        with output.set_up(bars) as simulated:
            scenario = load_benchmark(chosen.benchmark, changes=chosen.changes).build(graphs_dir=graphs, progress=simulated)
            from ...training.train import TrainProgress, train
        task = bars.add_task("training", total=chosen.total_steps, note="")

        def report(now: TrainProgress) -> None:
            check_interrupt()
            note = "" if now.blocking_rate is None else f"blocking {now.blocking_rate:.3f} (best {now.best:.3f})"
            if now.tuned < 1.0:
                note = f"linear scorer, {100 * now.tuned:.0f} %: {note}"
            bars.update(task, total=now.total_steps, completed=min(now.steps, now.total_steps), note=note)

        made = train(
            chosen,
            folder,
            resume=resume is not None,
            overwrite=overwrite,
            command=["meshwright", *sys.argv[1:]],
            graphs_dir=graphs,
            scenario=scenario,
            progress=report,
        )
    curve = files.read_json(made.learning_curve)
    best = min(curve, key=lambda row: row["validation_blocking_rate"])
    untrained = curve[0]["steps"] == 0
    rows = [
        ["run folder", str(made.path)],
        ["decisions learned from", f"{curve[-1]['steps']:,}"],
        [
            "validation blocking rate",
            f"{100 * best['validation_blocking_rate']:.2f} % at {best['steps']:,} decisions (kept as policy.pt)",
        ],
        ["of the untrained network" if untrained else "at the first look", f"{100 * curve[0]['validation_blocking_rate']:.2f} %"],
        ["time", f"{curve[-1]['elapsed_s']:.0f} s"],
    ]
    output.write_json(json_file, {"run": str(made.path), "policy": str(made.policy), "learning_curve": curve})
    output.table(output.console(json_file), f"Trained {chosen.name}", ["", ""], rows, numbers_from=2)


def method(config: str | None, changes: list[str], resume: Path | None) -> str | None:
    """How the policy is found: the key ``method`` of the config, or else of the run folder's; None without one, for PPO.

    What is wrong with a config otherwise is told by those who read all of it.

    Raises:
        ConfigError: no such method.
        CheckpointError: config and run folder differ in it.
    """
    found: list[str | None] = []
    for path, changed in ((None if config is None else config_path(config), changes), (resume and resume / "config.yaml", [])):
        if path is None:
            continue
        try:
            data, _ = settings.read_yaml(path)
            for change in changed:
                data = settings.override(data, change)
        except MeshwrightError:
            continue
        named = data.get("method") if isinstance(data, dict) else None
        if named not in (None, LINEAR):
            raise ConfigError(
                "no such method; leave the key out for PPO", file=path, field="method", value=named, choices=[LINEAR]
            )
        found.append(named)
    if len(found) == 2 and found[0] != found[1]:
        raise CheckpointError("differs from the config that the run was begun with", file=resume, field="method")
    return found[0] if found else None


def preset_names() -> list[str]:
    """The training configs that ship with the package."""
    folder = Path(str(resources("meshwright.configs"))) / "train"
    return sorted(f"preset:{path.stem}" for path in folder.glob("*.yaml"))


def config_path(spec: str) -> Path:
    """The YAML that a config's spelling names.

    Raises:
        ConfigError: the preset is unknown, or a bare name is neither one nor a file.
    """
    if not spec.startswith("preset:"):
        path = Path(spec)
        if path.name == spec and path.suffix not in (".yaml", ".yml") and not path.exists():
            raise ConfigError("no such training config and no such file", field="CONFIG", value=spec, choices=preset_names())
        return path
    if spec not in preset_names():
        raise ConfigError("no such training config", field="CONFIG", value=spec, choices=preset_names())
    return Path(str(resources("meshwright.configs"))) / "train" / f"{spec.removeprefix('preset:')}.yaml"
