"""``meshwright validate``: our figures held against figures from elsewhere."""

from __future__ import annotations

import typer

from . import collectives, elastic, flows, kernels, pacml, placements, sharing, step_times, strategies

validate = typer.Typer(
    name="validate", help="Hold our figures against figures from elsewhere; exit 1 where one disagrees.", no_args_is_help=True
)
validate.command("flows", short_help="Finish times of flows by max-min fair sharing.")(flows.validate_flows)
validate.command("pacml", short_help="Figures and decision logs of the published PAC-ML simulator.")(pacml.validate_pacml)
validate.command("elastic", short_help="Completion times of the published elastic workloads.")(elastic.validate_elastic)
validate.command("collectives", short_help="Measured collectives, of sizes and groups that were left out.")(
    collectives.validate_collectives
)
validate.command("step-times", short_help="Measured training steps of published runs.")(step_times.validate_step_times)
validate.command("kernels", short_help="Kernels and layers that were measured on a device.")(kernels.validate_kernels)
validate.command("sharing", short_help="Step times of jobs that share links, against simulated sets of jobs.")(
    sharing.validate_sharing
)
validate.command("placements", short_help="Published figures of operator placement.")(placements.validate_placements)
validate.command("strategies", short_help="Published figures of training strategies.")(strategies.validate_strategies)
