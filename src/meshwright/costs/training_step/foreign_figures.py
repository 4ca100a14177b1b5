"""Figures of other devices by which a job is priced where its own have none; they are named in remarks."""

from __future__ import annotations

from ...clusters.cluster import Cluster
from ..collectives import algorithm_of
from ..settings import CostSettings
from .kernels import ANY, kernel_settings


def foreign_figures(cluster: Cluster, costs: CostSettings, *, has_layers: bool) -> tuple[str, ...]:
    """Return the figures of the cost model that were measured on other devices than those of a cluster, in words.

    Args:
        cluster: where the job runs.
        costs: choices of the cost model, as they are taken.
        has_layers: whether a transformer is priced kernel by kernel; ops of another job have times, or take the roofline.

    Raises:
        MeshwrightError: a file that the choices name is missing or wrong.
    """
    kinds = cluster.device_types if has_layers and costs.kernels is None else ()
    lacking = [kind.name for kind in kinds if kernel_settings(kind.name).device == ANY]
    remark = "kernels: there are no constants of {}; the shares of its peaks that an a100 reaches are taken"
    return *algorithm_of(costs).foreign_figures(cluster), *map(remark.format, lacking)
