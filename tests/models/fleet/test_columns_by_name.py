"""Columns of a fleet's features are written and read by name: listed in another order, all say the same as before."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # runs the kernels of fleets interpreted

ROOT = Path(__file__).resolve().parents[3]

# Prints figures by the names of their columns, with scores by weights of the same names, for columns as listed or backwards.
PROGRAM = '''
import importlib.util, json, re, sys
import numpy as np


def load_backwards(name):
    """Load a module as if each of its lists of columns were written from its last line to its first."""
    spec = importlib.util.find_spec(name)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    members = re.compile(r'(?:^    [A-Z_]+ = "[^"]*"\\n)+', re.M)
    text = members.sub(lambda run: "".join(run[0].splitlines(keepends=True)[::-1]), spec.loader.get_source(name))
    exec(compile(text, spec.origin, "exec"), vars(module))
    package, _, child = name.rpartition(".")
    setattr(sys.modules[package], child, module)


if sys.argv[1] == "backwards":
    for name in ("envs.fleet.features", "planners.fleet.linear_prices", "planners.fleet.linear_scores"):
        load_backwards("meshwright." + name)

import torch
from meshwright.envs.fleet import features as f
from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.fleet.features import link_bandwidths, with_links
from meshwright.models.fleet.hetero import hetero_data
from meshwright.models.fleet.linear_head import LinearHead
from meshwright.models.fleet.network import MenuTensors, room
from meshwright.models.fleet.prices import PriceHead
from meshwright.models.settings import FleetNetworkSettings
from meshwright.planners.fleet import linear_prices, linear_scores
from meshwright.planners.fleet.rules import fleet_rule

coded = {"name": "coded", "compression": {"kind": "quantise", "bits": 4, "multiplier": 1.25, "multiplier_source": "a test"}}
changes = ["fleet.menu.entries=" + json.dumps([coded | {"partition": "dp=2|4"}]), "fleet.candidate_features=simulated"]
changes += ["fleet.placements=[construct, packed]", "fleet.may_refuse=true", "fleet.load=2.0", "fleet.num_jobs=30"]
changes += ["fleet.visible_jobs=4", "fleet.deadline={low: 1.2, high: 4.0}", "fleet.objective=blocking_rate"]
fleet = load_fleet_benchmark(sys.argv[2], changes=changes).build()
columns = {
    "hosts": f.HOST,
    "trunks": f.TRUNK,
    "running": f.RUNNING,
    "offers": f.OFFER,
    "context": f.CONTEXT + tuple("picked " + name for name in f.STRATEGY) + f.LEFT,
    "candidates": f.CANDIDATE + tuple("strategy " + name for name in f.CANDIDATE_STRATEGY),
    "links": f.LINK,
}
weights = np.zeros(len(linear_scores.FIRST_WEIGHTS))
for part, first in ((linear_scores.StartFigure, 0), (linear_scores.RefusalFigure, linear_scores.FIRST_REFUSAL)):
    for column in part:
        weights[first + column] = linear_scores.FIRST_WEIGHTS[first + column] + 0.3 * np.sin(sum(column.label.encode()))
menu, linear, prices = MenuTensors(fleet, FleetNetworkSettings()), LinearHead(), PriceHead(8, relative=True)
linear.set_direct(weights)
names = (*linear_prices.RELATIVE,)
by_price = np.array([[0.2 * np.sin(row + sum(name.encode())) for name in names] for row in range(3)])
prices.set_direct(by_price)
rule = fleet_rule("fifo", fleet.problem)
scorer = linear_scores.linear_scorer(fleet.problem, rule, weights, fleet.mean_duration_s)
batch, found = FleetBatch(fleet, 1), []
batch.reset(0, np.random.default_rng(3))
while not batch.state.is_over[0] and len(found) < 16:
    observed = with_links(link_bandwidths(fleet.problem.network), batch.observations._asdict())
    seen = {name: torch.as_tensor(array) for name, array in observed.items()}
    figures = {}
    for name, labels in columns.items():
        array = observed[name][0]
        assert array.shape[-1] == len(labels) == len(set(labels)), name
        figures[name] = {label: array[..., number].astype(float).ravel().tolist() for number, label in enumerate(labels)}
    chosen = torch.nonzero(seen["offers"][0, :, f.OfferColumn.IS_THERE] > 0).squeeze(1)
    listed = torch.zeros_like(chosen), chosen, torch.zeros_like(chosen)
    ratio = torch.ones(len(chosen))
    with torch.no_grad():
        figures["linear"] = [part.double().flatten().tolist() for part in linear(seen, menu, listed, ratio)]
        nodes = torch.zeros(1, seen["offers"].shape[1], 8), torch.zeros(1, 8)
        figures["prices"] = [part.double().flatten().tolist() for part in prices(seen, *nodes, menu, listed, ratio, ratio)]
        figures["room"] = room(seen, menu.member).flatten().tolist()
    graph = hetero_data(fleet, {name: array[0] for name, array in observed.items()})
    figures["graph"] = [graph["running"].x.shape[0], graph["offer"].row.tolist()]
    figures["below"] = graph["host", "below", "trunk"].edge_attr.flatten().tolist()
    action = int(linear_scores.choose_by_scores(fleet.problem, batch.state, 0, scorer))
    if batch.state.building[0] < 0:
        units = menu.units
        figures["by price"] = int(linear_prices.choose_by_prices(fleet.problem, batch.state, 0, by_price, units))
    figures["action"] = action
    found.append(figures)
    batch.step(np.array([action]))
print(json.dumps(found))
'''


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    from ...fleet_samples import write_small_fleet

    file = write_small_fleet(tmp_path_factory.mktemp("fleet"))
    # Compiling all anew for the other order takes a minute; a few decisions without compilation take a second.
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, order, str(file)], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for order in ("as listed", "backwards")
    ]
    printed = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    return [json.loads(text) for text in printed]


def test_columns_listed_backwards_hold_the_same_figures_under_the_same_names(both):
    listed, backwards = both
    assert len(listed) == len(backwards) == 16
    for name in ("hosts", "trunks", "running", "offers", "context", "candidates", "links"):
        moved = [list(one[name]) != list(other[name]) for one, other in zip(listed, backwards, strict=True)]
        assert all(moved), name
        varied = {label for one in listed for label, values in one[name].items() if any(values)}
        assert len(varied) >= len(listed[0][name]) // 2, name
        assert [one[name] for one in listed] == [other[name] for other in backwards], name


def test_whoever_reads_them_says_the_same(both):
    listed, backwards = both
    for name in ("linear", "prices", "room"):
        values = [[one[name] for one in order] for order in both]
        flat = [[float(value) for value in flattened(order)] for order in values]
        assert flat[0] == pytest.approx(flat[1], rel=1e-5, abs=1e-6), name
        assert any(flat[0]), name
    for name in ("graph", "below", "action", "by price"):
        assert [one.get(name) for one in listed] == [other.get(name) for other in backwards], name


def flattened(values):
    return [item for value in values for item in flattened(value)] if isinstance(values, list) else [values]
