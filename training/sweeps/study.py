"""`sweep`: trials of a sweep, asked of Optuna and trained, into a folder that holds all that a sweep goes on from.

::

    sweep.yaml      the sweep, every default written out
    sweep.db        Optuna's storage: every trial with its values and validations
    trials/0003/    the run folder of a trial (see `training.run_folder`)
    best.yaml       the training config of the best trial, as ``meshwright train`` takes it

Trials are numbered as they are asked for. What is drawn for one depends on the sweep's seed, the trial's number and on the
trials that have ended then: with one process the same sweep gives the same trials, also when it was killed and resumed.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ... import files
from ...errors import CheckpointError, ConfigError, NothingToLearnError
from ...worker_pool import WorkerPool
from ..elastic.settings import ElasticTrainSettings
from ..fleet.settings import FleetTrainSettings
from ..hooks.callback import TrainingCallback, ValidationRecord
from ..methods import train
from ..operators.settings import OperatorTrainSettings
from ..run_folder import to_yaml
from ..tasklets.settings import TaskletTrainSettings
from .settings import SweepSettings, config_of

SWEEP, STORAGE, TRIALS, BEST = "sweep.yaml", "sweep.db", "trials", "best.yaml"
PROBLEM = "problem"
"""Attribute of a trial: why it could not be trained."""


@dataclass(frozen=True)
class TrialSummary:
    """A trial that has ended.

    Attributes:
        number: of it.
        state: ``complete``, ``pruned`` or ``failed``.
        values: of the keys that are tried.
        value: the best validation; None where there was none.
        validations: best so far, by the number of the validation.
        seconds: that it took; None where it was cut off.
        problem: why it could not be trained; None for others.
    """

    number: int
    state: str
    values: dict[str, Any]
    value: float | None
    validations: dict[int, float]
    seconds: float | None
    problem: str | None


def check_optuna() -> None:
    """Refuse to begin without Optuna.

    Raises:
        ConfigError: it is not installed.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("Optuna is not installed; the extra is: pip install 'meshwright[sweep]'", field="sweep")


def sweep(
    chosen: SweepSettings,
    folder: Path,
    *,
    resume: bool = False,
    jobs: int = 1,
    budget_s: float | None = None,
    told: Callable[[TrialSummary, int], None] = lambda trial, ended: None,
) -> list[TrialSummary]:
    """Train the trials of a sweep that are left, and write the best config.

    Args:
        chosen: the sweep; of one that is resumed, only ``trials`` may differ.
        folder: of the sweep; new or empty unless ``resume``.
        resume: go on: trials that have ended are kept, those that were cut off count as failed and are asked for again.
        jobs: processes that train at a time, this one among them.
        budget_s: no trial is begun after so many seconds; None: no limit.
        told: called with each trial that has ended and how many have.

    Returns:
        All trials of the sweep that have ended.

    Raises:
        ConfigError: Optuna is not installed, or all trials' values do not go together.
        CheckpointError: the folder holds something, or is of another sweep, or one is under way there.
        NothingToLearnError: policies do not differ on the benchmark.
        MeshwrightError: a run cannot be trained, for another reason than its values.
    """
    check_optuna()
    _begin(chosen, folder, resume=resume)
    budget_ends = None if budget_s is None else time.monotonic() + budget_s
    with _alone(folder):
        _fail_what_was_cut_off(chosen, folder)
        known = {trial.number for trial in ended(chosen, folder)}
        counted = [trial for trial in ended(chosen, folder) if trial.problem is not None or trial.state != "failed"]
        left = chosen.trials - len(counted)

        def tell_new() -> None:
            for trial in ended(chosen, folder):
                if trial.number not in known:
                    known.add(trial.number)
                    told(trial, len(known))

        if jobs == 1:
            for _ in range(left):
                if budget_ends is not None and time.monotonic() >= budget_ends:
                    break
                run_trial(chosen, folder, is_alone=True)
                tell_new()
        else:
            _side_by_side(chosen, folder, left, jobs, budget_ends, tell_new)
        write_best(chosen, folder)
        return ended(chosen, folder)


def run_trial(chosen: SweepSettings, folder: Path, *, is_alone: bool) -> None:
    """Ask for a trial, train it, and report its best validation; runs in any process."""
    import optuna

    study = _study(chosen, folder, is_alone=is_alone)
    trial = study.ask()
    values = {key: _suggested(trial, key, of) for key, of in chosen.parameters.items()}
    began = time.perf_counter()
    callback = PruningCallback(trial, prunes=chosen.pruner != "none")
    try:
        config = config_of(chosen, values, f"{chosen.name}-{trial.number:04}")
        train(config, folder / TRIALS / f"{trial.number:04}", callbacks=[callback], overwrite=True)
    except (ConfigError, NothingToLearnError) as error:
        trial.set_user_attr(PROBLEM, str(error))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        if isinstance(error, NothingToLearnError):
            raise
        return
    trial.set_user_attr("seconds", time.perf_counter() - began)
    if callback.is_pruned:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    else:
        study.tell(trial, callback.best)


class PruningCallback(TrainingCallback):
    """Reports each validation to a trial of Optuna, and stops a run that its pruner gives up.

    Args:
        trial: of Optuna.
        prunes: whether it stops any.

    Attributes:
        best: value of the validations so far.
        is_pruned: whether the run was stopped.
    """

    def __init__(self, trial: Any, *, prunes: bool) -> None:
        self._trial, self._prunes = trial, prunes
        self.best: float | None = None
        self.is_pruned = False

    def on_validation(self, record: ValidationRecord) -> bool:
        """See `TrainingCallback.on_validation`; the last validation prunes nothing."""
        self.best = record.best
        self._trial.report(record.best, record.number)
        self.is_pruned = self._prunes and record.step < record.total_steps and bool(self._trial.should_prune())
        return not self.is_pruned


def ended(chosen: SweepSettings, folder: Path) -> list[TrialSummary]:
    """Trials that have ended, by number."""
    import optuna

    names = {
        optuna.trial.TrialState.COMPLETE: "complete",
        optuna.trial.TrialState.PRUNED: "pruned",
        optuna.trial.TrialState.FAIL: "failed",
    }
    found = []
    for trial in _study(chosen, folder, is_alone=True).get_trials(deepcopy=False):
        if trial.state not in names:
            continue
        reported = {int(step): float(value) for step, value in trial.intermediate_values.items()}
        best = float(trial.value) if trial.value is not None else reported[max(reported)] if reported else None
        values = {key: _value(chosen, key, value) for key, value in trial.params.items()}
        seconds, problem = trial.user_attrs.get("seconds"), trial.user_attrs.get(PROBLEM)
        found.append(TrialSummary(trial.number, names[trial.state], values, best, reported, seconds, problem))
    return found


def best_of(trials: list[TrialSummary], *, is_less_better: bool) -> TrialSummary | None:
    """The best of the trials that were trained to their end; of equal ones the first."""
    complete = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    return min(complete, key=lambda trial: (trial.value or 0.0) * (1 if is_less_better else -1), default=None)


def write_best(chosen: SweepSettings, folder: Path) -> TrialSummary | None:
    """Write the training config of the best trial, where there is one."""
    best = best_of(ended(chosen, folder), is_less_better=is_less_better(chosen))
    if best is not None:
        config = config_of(chosen, best.values, f"{chosen.name}-best", logs=True)
        files.write_text(folder / BEST, to_yaml(config))
    return best


def importances(chosen: SweepSettings, folder: Path) -> dict[str, float]:
    """How much each key mattered among the trials that were trained to their end, shares of 1; empty with fewer than four.

    Source:
        Watanabe, Bansal and Hutter, "PED-ANOVA: efficiently quantifying hyperparameter importance in arbitrary subspaces", 2023.
    """
    import optuna

    study = _study(chosen, folder, is_alone=True)
    complete = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    if len(complete) < 4 or len({trial.value for trial in complete}) < 2:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {key: float(value) for key, value in found.items()}


def is_less_better(chosen: SweepSettings) -> bool:
    """Whether less of what the method's validation measures is better."""
    config = config_of(chosen, {}, chosen.name)
    if not isinstance(config, FleetTrainSettings):
        return True
    from ...envs.fleet.benchmark import load_fleet_benchmark
    from ...envs.fleet.objective import is_better

    return is_better(load_fleet_benchmark(config.benchmark, changes=config.changes).fleet, 0.0, 1.0)


def measure_of(chosen: SweepSettings) -> str:
    """What the method's validation measures, as callbacks name it."""
    config = config_of(chosen, {}, chosen.name)
    if isinstance(config, FleetTrainSettings):
        from ...envs.fleet.benchmark import load_fleet_benchmark

        return str(load_fleet_benchmark(config.benchmark, changes=config.changes).fleet.objective)
    if isinstance(config, ElasticTrainSettings):
        return "mean_completion_s"
    if isinstance(config, TaskletTrainSettings):
        return "over_chain"
    return "over_rule" if isinstance(config, OperatorTrainSettings) else "blocking_rate"


def _begin(chosen: SweepSettings, folder: Path, *, resume: bool) -> None:
    """Make the folder, or see that it is of this sweep.

    Raises:
        CheckpointError: it is not.
    """
    if not resume:
        if folder.exists() and any(folder.iterdir()):
            raise CheckpointError("holds something already; give another folder, or --resume it", file=folder)
        folder.mkdir(parents=True, exist_ok=True)
        files.write_text(folder / SWEEP, to_yaml(chosen))
        return
    if not (folder / SWEEP).is_file() or not (folder / STORAGE).is_file():
        raise CheckpointError(f"is no folder of a sweep (it has no {SWEEP} and {STORAGE})", file=folder)
    from ... import settings

    begun = settings.load(SweepSettings, folder / SWEEP)
    for field, value in chosen.model_dump().items():
        if field != "trials" and getattr(begun, field) != getattr(chosen, field):
            raise CheckpointError("differs from the sweep that was begun there", file=folder, field=field, value=value)


def _study(chosen: SweepSettings, folder: Path, *, is_alone: bool) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(
        f"sqlite:///{(folder / STORAGE).absolute()}", engine_kwargs={"connect_args": {"timeout": 60}}
    )
    direction: Literal["minimize", "maximize"] = "minimize" if is_less_better(chosen) else "maximize"
    study = optuna.create_study(storage=storage, study_name=chosen.name, direction=direction, load_if_exists=True)
    # Those that were cut off do not count, so that the sweep goes on as if nothing had happened.
    states = optuna.trial.TrialState
    lost = states.FAIL, states.WAITING
    counted = [each for each in study.get_trials(deepcopy=False) if each.state not in lost or PROBLEM in each.user_attrs]
    seed = (chosen.seed * 1_000_003 + len(counted)) % 2**32
    if chosen.sampler == "random":
        study.sampler = optuna.samplers.RandomSampler(seed=seed)
    else:
        study.sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=chosen.num_startup_trials, constant_liar=not is_alone
        )
    study.pruner = optuna.pruners.NopPruner()
    if chosen.pruner == "median":
        study.pruner = optuna.pruners.MedianPruner(
            n_startup_trials=chosen.num_startup_trials, n_warmup_steps=chosen.num_warmup_validations
        )
    return study


def _suggested(trial: Any, key: str, of: Any) -> Any:
    if of.choices:
        return json.loads(trial.suggest_categorical(key, [json.dumps(value) for value in of.choices]))
    if of.whole:
        return trial.suggest_int(key, int(of.low), int(of.high), log=of.log)
    return trial.suggest_float(key, of.low, of.high, log=of.log)


def _value(chosen: SweepSettings, key: str, value: Any) -> Any:
    return json.loads(value) if chosen.parameters[key].choices else value


def _fail_what_was_cut_off(chosen: SweepSettings, folder: Path) -> None:
    """Count trials that were under way when the sweep was killed as failed, and ask for their values again."""
    import optuna

    study = _study(chosen, folder, is_alone=True)
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if len(trial.params) == len(chosen.parameters):
            study.enqueue_trial(trial.params)


def _side_by_side(
    chosen: SweepSettings, folder: Path, left: int, jobs: int, budget_ends: float | None, tell_new: Callable[[], None]
) -> None:
    """Trials in several processes, this one among them: it has all loaded already, which takes the others seconds.

    This process takes its trials from the end of the others' queue.
    """
    with WorkerPool(jobs - 1) as pool:
        queued = [pool.submit(_in_a_process, chosen, folder, budget_ends) for _ in range(left)]
        try:
            for trial in reversed(queued):
                if trial.cancel():
                    _in_a_process(chosen, folder, budget_ends)
                    _raise_problems(queued)
                    tell_new()
            under_way = {trial for trial in queued if not trial.cancelled()}
            while under_way:
                _, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                _raise_problems(queued)
                tell_new()
        except BaseException:
            pool.end()
            raise


def _raise_problems(trials: Sequence[Future[None]]) -> None:
    for trial in trials:
        if trial.done() and not trial.cancelled():
            trial.result()


def _in_a_process(chosen: SweepSettings, folder: Path, budget_ends: float | None) -> None:
    """A trial, unless the time is over by now; `time.monotonic` is the same in all processes of a machine."""
    if budget_ends is None or time.monotonic() < budget_ends:
        run_trial(chosen, folder, is_alone=False)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; it ends with its holder, however that ends.

    Raises:
        CheckpointError: another sweep holds it.
    """
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CheckpointError("a sweep is under way in this folder", file=folder) from None
    finally:
        os.close(held)
