"""A study as YAML: which policies are trained, where they are evaluated, and which tables and figures show it.

Names that hold ``<each>`` stand for several entries, one for each label of the entry's ``each``. A training run is called
by its training's name and seed, ``compat-A-seed-0``, and so is its policy in every table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import Field, StringConstraints, model_validator

from meshwright import settings
from meshwright.errors import ConfigError
from meshwright.evaluation.bounds import NAMES as REFERENCES
from meshwright.evaluation.bounds import is_beam

from .contents import GREEDY, Contents, TableSettings

EACH = "<each>"
# No dots: a policy is called by its folder's name up to the last of them.
Name = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]|<each>)([A-Za-z0-9_-]|<each>){0,62}$")]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,30}$")]


class TrainingSettings(settings.Settings):
    """Training runs of one config.

    Attributes:
        name: of the training; with variants each of them is a training ``NAME-VARIANT``.
        each: labels that ``<each>`` stands for.
        config: ``preset:NAME`` or a path.
        changes: ``key=value`` texts, applied in order.
        variants: further changes of each variant, by its label.
        seeds: a run for each.
        quick: changes of a quick study; they come before those of the variants.
    """

    name: Name
    each: tuple[Label, ...] = ()
    config: str
    changes: tuple[str, ...] = ()
    variants: dict[Label, tuple[str, ...]] = Field(default_factory=dict)
    seeds: tuple[Annotated[int, Field(ge=0, le=1_000_000)], ...] = Field(default=(0,), min_length=1)
    quick: tuple[str, ...] = ()


class EvaluationSettings(settings.Settings):
    """An evaluation; of a family of benchmarks, one of each variant.

    Attributes:
        name: of the evaluation.
        each: labels that ``<each>`` stands for.
        benchmark: ``preset:NAME`` or a path, of a family ``/VARIANT`` too.
        changes: ``key=value`` texts, applied in order.
        policies: compared beside those that the benchmark names.
        trained: trainings, or parents of variants, whose policies are compared.
        asked: how these are asked; each way gives a row of its own. Other than greedily for operator placement alone.
        pretrained: the same, whose networks as they were before PPO are compared.
        planned: the same, of linear scorers, each of which is the base policy of a rollout planner that is compared.
        references: clairvoyant ones.
        quick: changes of a quick study.
    """

    name: Name
    each: tuple[Label, ...] = ()
    benchmark: str
    changes: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    asked: tuple[str, ...] = Field(default=(GREEDY,), min_length=1)
    pretrained: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


class QuickSettings(settings.Settings):
    """What a quick study is cut down to.

    Attributes:
        num_seeds: test episodes.
        training_seeds: runs of each training.
    """

    num_seeds: int = Field(default=2, ge=1, le=100)
    training_seeds: int = Field(default=1, ge=1)


class StudySettings(settings.Settings):
    """The YAML of a study.

    Attributes:
        quick: how a quick one is cut down.
        training: what is trained.
        evaluations: what is played.
        tables: what is shown, by the name of its place on the page.
    """

    quick: QuickSettings = QuickSettings()
    training: tuple[TrainingSettings, ...] = ()
    evaluations: tuple[EvaluationSettings, ...] = Field(min_length=1)
    tables: dict[Label, Contents] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _each_where_it_is_named(self) -> Self:
        entries: tuple[TrainingSettings | EvaluationSettings, ...] = (*self.training, *self.evaluations)
        for entry in entries:
            if (EACH in entry.name) != bool(entry.each):
                raise ValueError(f"{entry.name}: {EACH} in the name and labels under each go together")
        return self


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        name: of the run and its policy.
        training: the training that it is a seed of.
        parent: the same, without the variant.
        config: ``preset:NAME`` or a path.
        changes: ``key=value`` texts, those for name and seed among them.
    """

    name: str
    training: str
    parent: str
    config: str
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A study, every name written out.

    Attributes:
        runs: in the order of the YAML.
        evaluations: likewise, without ``<each>``.
        tables: by name.
        quick: how it is cut down; None where it is not.
    """

    runs: tuple[Run, ...]
    evaluations: tuple[EvaluationSettings, ...]
    tables: dict[str, TableSettings]
    quick: QuickSettings | None

    def runs_of(self, training: str) -> list[Run]:
        """The runs of a training, or of all variants of one."""
        return [run for run in self.runs if training in (run.training, run.parent)]


def load_study(path: str | Path, *, quick: bool = False) -> Study:
    """Read a study.

    Args:
        path: the YAML file.
        quick: cut it down to minutes.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, an unknown key or an impossible value; a name is used twice or names nothing.
    """
    chosen = settings.load(StudySettings, path)
    runs = [
        run for entry in _written_out(chosen.training) for run in _runs(entry, chosen.quick if quick else None, Path(path).parent)
    ]
    evaluations = [_evaluation(entry, quick, Path(path).parent) for entry in _written_out(chosen.evaluations)]
    study = Study(tuple(runs), tuple(evaluations), dict(chosen.tables), chosen.quick if quick else None)
    try:
        _check(study)
    except ConfigError as error:
        raise error.at(file=path) from None
    return study


Entry = TypeVar("Entry", TrainingSettings, EvaluationSettings)


def _written_out(entries: Iterable[Entry]) -> list[Entry]:
    """Each entry, or one for each of its labels."""
    found = []
    for entry in entries:
        for label in entry.each or ("",):
            found.append(entry if not entry.each else entry.model_validate(_replaced(entry.model_dump(exclude={"each"}), label)))
    return found


def _replaced(value: object, label: str) -> object:
    if isinstance(value, str):
        return value.replace(EACH, label)
    if isinstance(value, dict):
        return {key: _replaced(item, label) for key, item in value.items()}
    return tuple(_replaced(item, label) for item in value) if isinstance(value, tuple) else value


def _runs(entry: TrainingSettings, quick: QuickSettings | None, folder: Path) -> list[Run]:
    seeds = entry.seeds if quick is None else entry.seeds[: quick.training_seeds]
    changes = entry.changes if quick is None else (*entry.changes, *entry.quick)
    found = []
    for variant, further in entry.variants.items() or [("", ())]:
        training = f"{entry.name}-{variant}" if variant else entry.name
        for seed in seeds:
            name = f"{training}-seed-{seed}"
            all_changes = (*changes, *further, f"name={name}", f"seed={seed}")
            found.append(Run(name, training, entry.name, _beside(entry.config, folder), all_changes))
    return found


def _evaluation(entry: EvaluationSettings, quick: bool, folder: Path) -> EvaluationSettings:
    changes = (*entry.changes, *entry.quick) if quick else entry.changes
    return entry.model_copy(update={"changes": changes, "benchmark": _beside(entry.benchmark, folder)})


def _beside(spec: str, folder: Path) -> str:
    """A path from the study's folder where a file is there; a preset, or a path from the current folder, as it is."""
    return str(folder / spec) if not spec.startswith("preset:") and (folder / spec).is_file() else spec


def _check(study: Study) -> None:
    trainings = list(dict.fromkeys(name for run in study.runs for name in (run.training, run.parent)))
    evaluations = [one.name for one in study.evaluations]
    _check_once([run.name for run in study.runs], "training")
    _check_once([*trainings, *(run.name for run in study.runs), *evaluations, *study.tables], "evaluations and tables")
    for one in study.evaluations:
        for field in ("trained", "pretrained", "planned"):
            _check_known(getattr(one, field), trainings, f"evaluations.{one.name}.{field}")
        for reference in one.references:
            if not is_beam(reference):
                _check_known([reference], REFERENCES, f"evaluations.{one.name}.references")
    for name, table in study.tables.items():
        for column in table.columns or ("",):
            _check_known(table.evaluations_of(column), evaluations, f"tables.{name}.evaluations")
            _check_known(table.trainings_of(column), trainings, f"tables.{name}")
            played = table.evaluations_of(column)
            asked = list(dict.fromkeys(how for one in study.evaluations if one.name in played for how in one.asked))
            _check_known(table.asked_of(column), asked, f"tables.{name}.asked")


def _check_once(names: Sequence[str], field: str) -> None:
    for name in names:
        if list(names).count(name) > 1:
            raise ConfigError("two things of the study carry this name", field=field, value=name)


def _check_known(names: Iterable[str], choices: Sequence[str], field: str) -> None:
    for name in names:
        if name not in choices:
            raise ConfigError("nothing in the study has this name", field=field, value=name, choices=choices)
