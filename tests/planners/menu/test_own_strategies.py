"""Types of jobs that are trained otherwise than synchronously, whatever layout is chosen for them."""

import numpy as np
import pytest

from meshwright.envs.fleet.fleet import build_fleet, synchronous_only
from meshwright.envs.fleet.settings import FleetSettings
from meshwright.errors import ConfigError
from meshwright.planners.menu.build import build_menu
from meshwright.planners.menu.named_entry import OWN
from meshwright.planners.menu.settings import MenuSettings
from meshwright.plans.training import TRAININGS
from meshwright.settings import build_settings

from .job_types import types_of

ALEXNET = {"name": "alexnet", "job": "zoo:alexnet", "global_batch": 1024}
LOCAL = {"kind": "local-sgd", "every": 8}
KEYS = {
    "synchronous": {},
    "local-sgd": {"every": 4},
    "post-local-sgd": {"every": 4, "warmup_steps": 10},
    "diloco": {"every": 100},
    "gossip": {"topology": "ring"},
    "ist": {"every": 4},
    "local-update": {"preset": "dfa", "force": True},
    "ssp": {"staleness": 2},
    "asp": {},
    "masked": {"core": {"width": 0.5}, "core_steps": 9, "full_steps": 1},
}
MENU = {"degrees": [4]}


def menu_of(clos, folder, *given, **more):
    return build_menu(types_of(*given), clos, build_settings(MenuSettings, MENU | more), cache=folder)


@pytest.fixture(scope="module")
def own(clos, folder):
    return menu_of(clos, folder, ALEXNET | {"training": LOCAL}, ALEXNET | {"name": "plain"})


def test_all_entries_of_such_a_type_are_trained_so_and_those_of_others_are_not(own):
    assert {entry.named.name for entry in own.entries if entry.job_type == 0} == {OWN}
    assert {entry.named for entry in own.entries if entry.job_type == 1} == {None}
    assert own.is_exact.all()  # there is nothing else to choose


def test_steps_are_those_of_a_named_entry_that_declares_one_step_for_each(own, clos, folder):
    entry = {"name": "local", "layouts": 4, "training": LOCAL | {"multiplier": 1.0, "multiplier_source": "a test"}}
    named = menu_of(clos, folder, ALEXNET, entries=[entry])
    theirs = {(e.layout, e.order): named.table.step_s[i] for i, e in enumerate(named.entries) if e.named is not None}
    ours = {(e.layout, e.order): own.table.step_s[i] for i, e in enumerate(own.entries) if e.job_type == 0}
    both = set(ours) & set(theirs)
    assert both
    for key in both:
        np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-12)


def test_a_declared_multiplier_counts(own, clos, folder):
    twice = menu_of(clos, folder, ALEXNET | {"training": LOCAL | {"multiplier": 2.0, "multiplier_source": "a test"}})
    ours = [own.table.step_s[i] for i, entry in enumerate(own.entries) if entry.job_type == 0]
    np.testing.assert_allclose(twice.table.step_s, 2 * np.stack(ours), rtol=1e-12)


def test_such_a_menu_is_kept_on_disk(own, clos, folder):
    again = menu_of(clos, folder, ALEXNET | {"training": LOCAL}, ALEXNET | {"name": "plain"})
    assert again.entries == own.entries
    assert (again.table.step_s == own.table.step_s).all()


def test_named_entries_are_for_the_other_jobs(clos, folder):
    entry = {"name": "coded", "compression": {"kind": "quantise", "bits": 8, "multiplier": 1.0, "multiplier_source": "a test"}}
    menu = menu_of(clos, folder, ALEXNET | {"training": LOCAL}, ALEXNET | {"name": "plain"}, entries=[entry])
    assert {entry.named.name for entry in menu.entries if entry.job_type == 0} == {OWN}
    assert "coded" in {entry.named.name for entry in menu.entries if entry.job_type == 1 and entry.named}


def test_jobs_that_have_no_other_training_are_played_with_exact_entries_alone_too(clos, folder):
    keys = {"num_jobs": 5, "load": 0.5, "duration": {"median_s": 100, "sigma": 1, "most_s": 1000}, "requested": {4: 1}}
    settings = build_settings(
        FleetSettings, {"cluster": "preset:clos-64-4to1", "menu": MENU, **keys, "job_types": [ALEXNET | {"training": LOCAL}]}
    )
    fleet = build_fleet(settings, cache=folder)
    assert synchronous_only(fleet) is fleet
    assert np.isfinite(fleet.requested_step_s).any()


@pytest.mark.parametrize("kind", list(TRAININGS))
def test_every_kind_of_training_may_be_a_types_own(kind):
    (result,) = types_of(ALEXNET | {"training": {"kind": kind, **KEYS[kind]}})
    assert (result.own is None) == (kind == "synchronous")


def test_what_a_type_cannot_be_trained_by_is_told():
    with pytest.raises(ConfigError, match="diloca"):
        types_of(ALEXNET | {"training": {"kind": "diloca"}})
    with pytest.raises(ConfigError, match="is the name of how a job type says"):
        build_settings(MenuSettings, {"entries": [{"name": OWN, "partition": "zero=1"}]})
