"""A named entry of a menu: how a job is cut, trained, coded and summed, in addition to what the search finds.

An entry that is exact gives the update of synchronous training: another schedule, sharded optimizers, other collectives. One that
is not may want more steps; how many is declared, with its source, and it counts for ``multiplier x step``. A multiplier speaks
for the model and data of its source alone.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from ... import settings
from ...costs.settings import Collectives
from ...plans import compression as codes
from ...plans.compression import Compression
from ...plans.strategies.declared_steps import Exactness
from ...plans.training import Asynchronous, StaleSynchronous, Synchronous, Training

OWN: Final = "own"
"""The name of the entries of a job that is trained otherwise than synchronously whatever is chosen."""

SEARCHED = "searched"
"""The name of what the search finds by itself: synchronous training without codes, with the collectives of the costs."""

NO_MULTIPLIER = "is not exact: give multiplier and multiplier_source, or list it under unranked"
"""Refusal of an entry that may need more steps and does not give their number."""

EXACTNESS: dict[Exactness, float] = {"approximate": 0.0, "bounded": 0.5, "exact": 1.0}
"""The value in observations."""

WHOLE_REPLICAS = {"zero": (0,), "distributed_optimizer": (False,), "cp": (1,), "ep": (1,)}
"""Values of a transformer's layout that strategies and codes ask for, which average or sum whole replicas."""

WHOLE_GRAPHS = {"zero": (0,), "distributed_optimizer": (False,)}
"""The same of any other job graph."""


class NamedEntrySettings(settings.Settings):
    """An entry of a menu.

    Attributes:
        name: for tables and rules, small letters.
        partition: values of the layout's keys that are tried in place of the menu's own, as ``menu.keep`` spells them.
        training: how replicas agree on their parameters.
        compression: how gradients are coded.
        collectives: what sums them, in place of the choice of the costs.
        orders: rank orders that are tried in place of the menu's: which ranks are next to each other.
        layouts: most layouts of a type on one number of devices.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
    partition: str = ""
    training: Training = Synchronous()
    compression: Compression | None = None
    collectives: Collectives | None = None
    orders: tuple[str, ...] = Field(default=(), exclude_if=lambda orders: not orders)
    layouts: int = Field(default=1, ge=1, le=64)

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.collectives == "measured":
            raise ValueError(f"{self.name}: collectives=measured is a choice of the fleet's costs, not of an entry")
        if self.name == SEARCHED:
            raise ValueError(f"{SEARCHED} is the name of what the search finds by itself")
        if self.name == OWN and not self.is_given:
            raise ValueError(f"{OWN} is the name of how a job type says that it is trained")
        if self.compression is not None and self.training.kind != "synchronous":
            raise ValueError(f"{self.name}: a compression goes with training of kind synchronous, whose gradients it codes")
        return self

    is_given: ClassVar[bool] = False

    @property
    def num_servers(self) -> int:
        """Number of hosts outside the cluster that hold parameters while a job runs."""
        return self.training.servers if isinstance(self.training, StaleSynchronous | Asynchronous) else 0

    @property
    def exactness(self) -> Exactness:
        """Whether its update is that of synchronous training."""
        return codes.exactness_of(self.training, self.compression)

    @property
    def is_exact(self) -> bool:
        """Whether the entry gives the update of synchronous training."""
        return self.exactness == "exact"

    @property
    def steps_multiplier(self) -> float | None:
        """Steps needed over synchronous ones; None where none was declared."""
        return codes.steps_multiplier(self.training, self.compression)

    @property
    def source(self) -> str:
        """The source of the multiplier."""
        return codes.multiplier_source(self.training, self.compression)

    @property
    def is_layout_alone(self) -> bool:
        """Whether nothing but the layout and its collectives sets it apart, so that it is priced as any layout is."""
        return self.training.kind == "synchronous" and self.compression is None


class OwnStrategy(NamedEntrySettings):
    """The training of a job under every choice: its steps are of this training, and jobs of its type have no other.

    A multiplier, where one is declared, is the number of them for each step that the fleet counts.
    """

    is_given: ClassVar[bool] = True
    name: Literal["own"] = OWN

    @property
    def steps_multiplier(self) -> float:
        """Steps needed over synchronous ones; 1 where none was declared: nothing is compared with other training."""
        declared = super().steps_multiplier
        return 1.0 if declared is None else declared


def exactness_of(named: NamedEntrySettings | None) -> float:
    """Return 1 for an exact entry, a half for one with a bound, 0 for others; what the search finds is exact."""
    return EXACTNESS["exact" if named is None else named.exactness]


def multiplier_of(named: NamedEntrySettings | None) -> float:
    """Return the steps needed over synchronous ones."""
    result = 1.0 if named is None else named.steps_multiplier
    assert result is not None, "an entry without a multiplier is on no menu"
    return result


def name_of(named: NamedEntrySettings | None) -> str:
    """Return the name of an entry in tables."""
    return SEARCHED if named is None else named.name
