"""What saved policies have in common: where shipped ones lie, and what is refused of a file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .. import settings
from ..errors import CheckpointError, ConfigError, PolicyError

if TYPE_CHECKING:
    import torch

SHIPPED = "shipped:"

Chosen = TypeVar("Chosen", bound=settings.Settings)
Network = TypeVar("Network", bound="torch.nn.Module")


def shipped_folder() -> Path:
    """The folder of the policies that come with the package."""
    return Path(str(resources("meshwright.models"))) / "shipped"


def shipped_with(ending: str) -> list[str]:
    """Names of the shipped policies whose files end so."""
    return sorted(path.name.removesuffix(ending) for path in shipped_folder().iterdir() if path.name.endswith(ending))


def policy_path(spec: str, ending: str, what: str) -> Path:
    """The run folder or file of a policy, which need not exist; ``shipped:NAME`` comes with the package.

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


def check_weights(weights: Mapping[str, Any], file: str | Path) -> None:
    """Refuse weights that are no finite numbers.

    Raises:
        CheckpointError: some are not; the first one is named.
    """
    import torch  # takes a while, and who looks for policies needs none

    for name, tensor in weights.items():
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
            raise CheckpointError("holds something other than finite numbers", file=file, field=f"weights.{name}")


def network_settings(kind: type[Chosen], data: Any, file: str | Path) -> Chosen:
    """The settings of a saved network.

    Raises:
        CheckpointError: they are wrong; with their key.
    """
    try:
        return settings.build_settings(kind, data)
    except ConfigError as error:
        raise CheckpointError(error.problem, file=file, field=f"network.{error.field}", value=error.value) from None


def with_weights(network: Network, weights: Mapping[str, Any], file: str | Path) -> Network:
    """A network with saved weights, ready to play.

    Raises:
        CheckpointError: they are of other shapes than the settings make.
    """
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        raise CheckpointError("its weights are not those of its settings", file=file) from None
    return network.eval()
