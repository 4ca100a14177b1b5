"""Writers of a learning curve by name; each imports its library when a run begins, and only where it is asked for."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from ...errors import ConfigError
from .callback import TrainingCallback

LIBRARIES = {"wandb": "wandb", "mlflow": "mlflow"}
"""The library of each writer that one must install, which is also the name of our extra."""


def check_installed(names: Sequence[str]) -> None:
    """Refuse writers whose library is not installed.

    Raises:
        ConfigError: so it is.
    """
    for name in names:
        library = LIBRARIES.get(name)
        if library is not None and importlib.util.find_spec(library) is None:
            problem = f"{library} is not installed; the extra is: pip install 'meshwright[{library}]'"
            raise ConfigError(problem, field="log", value=name)


def writers(names: Sequence[str], method: str) -> list[TrainingCallback]:
    """The writers of these names.

    Args:
        names: see `names.NAMES`.
        method: of training; that of PPO writes its own event files for TensorBoard, with more in them.
    """
    made: list[TrainingCallback] = []
    for name in dict.fromkeys(names):
        if name == "stdout":
            from .lines import LineWriter

            made.append(LineWriter())
        elif name == "csv":
            from .csv_file import CsvWriter

            made.append(CsvWriter())
        elif name == "tensorboard" and method != "ppo":
            from .scalars import ScalarWriter

            made.append(ScalarWriter())
        elif name == "wandb":
            from .wandb_run import WandbWriter

            made.append(WandbWriter())
        elif name == "mlflow":
            from .mlflow_run import MlflowWriter

            made.append(MlflowWriter())
    return made
