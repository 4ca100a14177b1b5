"""The rules by which a scenario is played: our own, or those of the published PAC-ML simulator and its defects."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ... import settings


def _switch(description: str) -> bool:
    value: bool = Field(default=True, strict=True, description=description)
    return value


class Defects(settings.Settings):
    """The defects of the published simulator, each a switch of its own: on keeps it, off computes what was meant.

    The description of each field names the defect and, after the semicolon, the computation without it. Any subset is
    valid.
    """

    milliseconds_as_seconds: bool = _switch("the profile's milliseconds are added up as seconds; they are converted")
    input_ops_run: bool = _switch("the data loader's Input ops are ops of the job; they are left out")
    edges_carry_memory: bool = _switch(
        "an edge carries activation and parameters of its source, or of its child where only the source is split; "
        "the activation of its source"
    )
    sync_carries_memory: bool = _switch(
        "weight sync moves activations too, also of ops without parameters; it moves parameters, where there are any"
    )
    sync_is_pairwise: bool = _switch("weight sync is one exchange for each pair of sub-ops; one collective of all of them")
    sync_counts_as_parent: bool = _switch(
        "a finished sync counts among the finished parents of the sub-op that it reaches; it releases nothing"
    )
    transceiver_rate_divided_twice: bool = _switch("a channel's rate is divided by the transceivers again; it is not")
    intra_rack_is_free: bool = _switch("a collective's exchange between servers of one rack takes no time; it pays a channel")
    racks_never_contend: bool = _switch("no two racks of a collective share transceivers; those of one communication group do")
    links_never_contend: bool = _switch("flows on one channel each run at its full rate; they share it")
    flows_end_at_ticks: bool = _switch(
        "the next tick looks at one flow of each channel, and a flow that ends earlier waits for it; at every flow"
    )
    ties_by_hash: bool = _switch(
        "of flows with equal run times on a channel, the order in which a set holds them picks the one that sets the tick "
        "(`lookahead.ties`); the one that ends first"
    )
    times_keyed_by_degree: bool = _switch(
        "an episode's first placement of a model and degree fixes their completion time; each placement has its own"
    )
    strict_deadline: bool = _switch("completion times meet deadlines by an exact comparison of floats; within one part in 1e9")
    running_jobs_are_blocked: bool = _switch(
        "jobs that run when the episode ends count as blocked; they count as accepted, and the rate is taken over a "
        "steady-state window"
    )
    last_reward_is_lost: bool = _switch(
        "a decision after which nothing happens is punished even where the job was accepted; its reward is its own"
    )
    mask_ignores_occupancy: bool = _switch(
        "a degree is valid if as many workers are free and an empty cluster has a block; if the job really fits now"
    )
    utilisation_of_one_step: bool = _switch(
        "worker utilisation divides one step's busy time by the time of all steps; all steps' busy time"
    )
    max_compute_flag_is_zero: bool = _switch("no op is ever flagged as the longest one; the longest one is")
    dep_size_feature_vanishes: bool = _switch(
        "the feature of a job's dependency bytes is divided by ten thousand times too much; by the largest job's"
    )
    pool_in_given_order: bool = _switch("the pool of jobs depends on the order in which files were found; sorted by name")
    reset_ignores_seed: bool = _switch("only the first seed given to an environment counts; each reset's own")
    resample_clips: bool = _switch("deadlines below the cut-off are raised to it; they are drawn again")


PHYSICAL = Defects.model_validate(dict.fromkeys(Defects.model_fields, False))
PRESETS: dict[str, Defects] = {"pacml-compat": Defects(), "pacml-physical": PHYSICAL}
"""``pacml-compat`` keeps every defect and reproduces the published figures, ``pacml-physical`` keeps none."""


class GeneralSemantics(settings.Settings):
    """Step times as `simulation.step.timeline` simulates them; a job owns one block; nothing is distorted."""

    kind: Literal["general"] = "general"


class PacmlSemantics(settings.Settings):
    """Cutting, step times, deadlines and blocking as `simulation.pacml` has them.

    Attributes:
        preset: ``pacml-compat`` keeps every defect of the published simulator, ``pacml-physical`` none.
        defects: switches that differ from the preset's.
    """

    kind: Literal["pacml"]
    preset: Literal["pacml-compat", "pacml-physical"] = "pacml-compat"
    defects: Defects = Defects()

    @model_validator(mode="before")
    @classmethod
    def _preset_below_changes(cls, data: Any) -> Any:
        """Fill in the switches of the preset that are not given."""
        if not isinstance(data, dict) or data.get("preset", "pacml-compat") not in PRESETS:
            return data
        changes = data.get("defects", {})
        if not isinstance(changes, dict):
            return data
        return {**data, "defects": {**PRESETS[data.get("preset", "pacml-compat")].model_dump(), **changes}}


Semantics = Annotated[GeneralSemantics | PacmlSemantics, Field(discriminator="kind")]
