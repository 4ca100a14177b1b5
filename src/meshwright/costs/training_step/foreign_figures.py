"""Figures of other devices by which a job is priced where its own have none; they are named in remarks."""

from __future__ import annotations

from ...clusters.cluster import Cluster
from ..collectives import of
from ..settings import CostSettings
from .kernels import ANY, kernel_settings


def foreign_figures(cluster: Cluster, costs: CostSettings, *, has_layers: bool) -> tuple[str, ...]:
    """Figures of the cost model that were measured on other devices than those of a cluster, in words.

    Args:
        cluster: where the job runs.
        costs: choices of the cost model, as they are taken.
        has_layers: whether a transformer is priced kernel by kernel; ops of another job have times, or take the roofline.

    Raises:
        MeshwrightError: a file that the choices name is missing or wrong.
    """
    is_read = has_layers and costs.kernels is None
    lacking = [kind.name for kind in cluster.device_types if kernel_settings(kind.name).device == ANY] if is_read else []
    kernels = (
        f"kernels: there are no constants of {name}; the shares of its peaks that an a100 reaches are taken" for name in lacking
    )
    return *of(costs).foreign_figures(cluster), *kernels
