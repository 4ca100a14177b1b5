"""Readers of plans, layouts, options and logs."""

import json
from pathlib import Path

from meshwright.errors import ConfigError, ExportError
from meshwright.export import export, export_run, read_places, targets, verify, write
from meshwright.planning.estimate import estimate
from meshwright.planning.plans_of_episode import plan_files
from meshwright.plans import PlacementPlan, load_plan

from . import inputs
from .commands import answered, words
from .inputs import written
from .possible import checked, positive
from .running import NonsenseError, Target

QUICK_FORMATS = tuple(name for name in targets if name != "chakra")


def _loaded(text: str, folder: Path) -> PlacementPlan:
    plan = load_plan(written(folder / "plan.json", text))
    for figure in plan.predicted:
        if figure.unit in ("s", "bytes") and not 0 <= figure.value <= 1e21:
            raise NonsenseError(f"predicted {figure.unit}: {figure.name} is {figure.value}")
    if plan.job.deadline_s is not None:
        positive("deadline", plan.job.deadline_s, 0.0, 1e12)
    plan.save(folder / "again.json")
    assert load_plan(folder / "again.json") == plan
    assert plan.summary_rows()
    return plan


def _plan(text: str, folder: Path) -> None:
    """A plan, in the form of every scheduler that can express it."""
    plan = _loaded(text, folder)
    for name in QUICK_FORMATS:
        try:
            write(export(plan, name), folder / name)
        except ExportError:
            continue


def _traced(text: str, folder: Path) -> None:
    write(export(_loaded(text, folder), "chakra"), folder / "out")


def _layout(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(inputs.TRANSFORMERS[0]))
    checked(estimate(str(folder / "config.json"), inputs.pair(), text).to_data())


def _search(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(inputs.TRANSFORMERS[0]))
    (folder / "pair.yaml").write_text(inputs.PAIR)
    answered("plan", "--search", "--job", "config.json", "--cluster", "pair.yaml", *words(text))


def _options(text: str, folder: Path) -> None:
    (folder / "plan.json").write_text(inputs.plans()[0])
    answered("export", "plan.json", "--out", "out", *words(text))


def _log(text: str, folder: Path) -> None:
    plan = PlacementPlan.model_validate_json(inputs.plans()[1])
    places = read_places(text, "log")
    for place in places:
        positive("rank", place.rank, 0, 1e9)
    verify(plan, "slurm", places)


def _index(text: str, folder: Path) -> None:
    """Plans of a run by their index, and what an earlier export left in the folder that is written."""
    (folder / "plans").mkdir()
    for name in ("a", "b"):
        (folder / "plans" / f"{name}.json").write_text(inputs.plans()[3])
    (folder / "plans" / "index.json").write_text(text)
    try:
        export_run({name: load_plan(path) for name, path in plan_files(folder / "plans").items()}, "slurm", folder / "out")
    except ConfigError:
        raise AssertionError("an export has no settings of its own") from None


def _made() -> dict[str, str | bytes]:
    return export(PlacementPlan.model_validate_json(inputs.plans()[3]), "slurm")


def _exported(text: str, folder: Path) -> None:
    made = _made()
    write(made, folder / "out")
    (folder / "out" / "export.json").write_text(text)
    write(made, folder / "out")


INDEX = {"plans": ["a", "b"], "policy": "max", "jobs": []}

TARGETS = (
    Target("plans", "json", inputs.plans, _plan),
    Target("chakra", "json", lambda: inputs.plans()[:3], _traced, is_quick=False),
    Target("layouts", "words", lambda: inputs.LAYOUTS, _layout),
    Target(
        "searches",
        "words",
        lambda: (
            "--batch 4 --keep tp=1|2,schedule=1f1b|gpipe,overlap_dp=false --devices 1-2 --set top=3",
            "--batch 8 --keep dp=1|2,virtual_stages=1,ep=1,shard_group=2 --set order=tp-cp-dp-pp --sequence-length 64",
            "--batch 4 --devices 1,2 --set overlap_slowdown=1.1 --set collectives=ring --set routing=ecmp",
        ),
        _search,
        is_quick=False,
    ),
    Target(
        "export-options",
        "words",
        lambda: (
            "--format slurm --set name=mine --set script=train.py --set topology_conf=true --set master_port=29500",
            "--format kubernetes --set image=me/it:1 --set kubernetes=kueue --set queue=q --set command='python -m x'",
            "--format ray --set host_label=host --set wait_s=30 --set probe=true",
        ),
        _options,
    ),
    Target("logs", "text", lambda: (inputs.valid("probed.txt"), inputs.valid("labelled.txt"), inputs.valid("mapped.txt")), _log),
    Target("plan-indices", "json", lambda: (json.dumps(INDEX),), _index),
    Target("exported-folders", "json", lambda: (str(_made()["export.json"]),), _exported),
)
