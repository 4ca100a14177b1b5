"""The switches: presets, any subset runs, each one changes something."""

import itertools

import numpy as np
import pytest

from meshwright.errors import ConfigError
from meshwright.settings import build_settings
from meshwright.simulation.pacml.demands import draw_demands
from meshwright.simulation.pacml.semantics import PRESETS, Defects
from meshwright.simulation.pacml.simulator import Simulator

from ...draws import FACTOR
from ...oracles.pacml_episode import Episode
from .conftest import make_graph

NAMES = sorted(Defects.model_fields)
SMALL = make_graph(
    [5.0, 0.3, 0.2, 0.4],
    [0.0, 0.6, 0.5, 0.2],
    [1e8, 2e9, 3e9, 1e9],
    [0.0, 1e9, 1e9, 0.0],
    [(0, 1), (0, 2), (1, 3), (2, 3)],
    kinds=["Input0", "Conv2d", "Conv2d", "Linear"],
    name="small",
)


def test_the_presets_are_all_and_none():
    assert all(PRESETS["pacml-compat"].model_dump().values())
    assert not any(PRESETS["pacml-physical"].model_dump().values())
    assert sorted(PRESETS) == ["pacml-compat", "pacml-physical"]


def test_wrong_names_and_values_are_refused():
    with pytest.raises(ConfigError, match="strict_deadline"):
        build_settings(Defects, {"strict_deadlin": False})
    with pytest.raises(ConfigError, match="strict_deadline"):
        build_settings(Defects, {"strict_deadline": 0})


def play(cluster, defects):
    """The totals of an episode of eight decisions; more steps where milliseconds are not read as seconds."""
    simulator = Simulator(cluster, [SMALL], defects, num_steps=500_000 if not defects.milliseconds_as_seconds else 500)
    demands = draw_demands(np.random.default_rng(0), ["small"], "C", 9, defects)
    episode = Episode(simulator, demands, 8)
    while not episode.is_over:
        valid = np.flatnonzero(episode.mask())
        episode.decide(int(valid[len(episode.decisions) % len(valid)]))
    return episode.totals()


@pytest.mark.parametrize("start", ["pacml-compat", "pacml-physical"])
def test_any_two_switches_may_be_thrown(cluster, start):
    base = PRESETS[start].model_dump()
    pairs = list(itertools.combinations(NAMES, 2))
    for one, other in pairs[:: max(1, round(24 / FACTOR))]:
        defects = Defects.model_validate(base | {one: not base[one], other: not base[other]})
        totals = play(cluster, defects)
        assert totals.arrived == 9
        assert 0 <= totals.blocking_rate <= 1
        again = play(cluster, defects)
        assert totals == again


# What an observer sees of each switch that shapes the time of a step; the others have tests of their own.
STEP = [
    "milliseconds_as_seconds",
    "input_ops_run",
    "edges_carry_memory",
    "sync_carries_memory",
    "sync_is_pairwise",
    "transceiver_rate_divided_twice",
    "intra_rack_is_free",
    "racks_never_contend",
    "links_never_contend",
    "flows_end_at_ticks",
]


@pytest.mark.parametrize("name", STEP)
def test_each_switch_of_the_step_changes_its_time(cluster, name):
    base = {"milliseconds_as_seconds": False}
    results = []
    for value in (True, False):
        simulator = Simulator(cluster, [SMALL], Defects(**(base | {name: value})), num_steps=1)
        anywhere, one_rack = np.ones(32, bool), np.arange(32) < 2
        places = [simulator.place("small", degree, free) for degree, free in ((2, anywhere), (2, one_rack), (4, anywhere))]
        results.append([simulator.step(place).step_s for place in places])
    assert results[0] != results[1]
    if name in ("intra_rack_is_free", "racks_never_contend", "links_never_contend"):
        assert all(stored <= fixed * (1 + 1e-12) for stored, fixed in zip(*results, strict=True))
    if name == "transceiver_rate_divided_twice":
        assert all(stored >= fixed for stored, fixed in zip(*results, strict=True))
