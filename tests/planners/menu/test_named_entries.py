"""Entries of a menu with names: what is priced, what is declared, and what is refused."""

import numpy as np
import pytest

from meshwright.errors import ConfigError, PlanError
from meshwright.planners.menu.build import build_menu
from meshwright.planners.menu.settings import MenuSettings
from meshwright.settings import build_settings

from .job_types import types_of

TYPES = types_of({"name": "alexnet", "job": "zoo:alexnet", "global_batch": 1024})
SOURCE = {"multiplier_source": "a test"}
LOCAL = {"name": "local", "training": {"kind": "local-sgd", "every": 8, "multiplier": 1.1, **SOURCE}}
CODED = {"name": "coded", "compression": {"kind": "quantise", "bits": 8, "multiplier": 1.05, **SOURCE}}


def menu_of(clos, tmp, **more):
    return build_menu(TYPES, clos, build_settings(MenuSettings, {"degrees": [4], **more}), cache=tmp)


@pytest.fixture(scope="module")
def named(clos, folder):
    return menu_of(clos, folder, entries=[LOCAL, CODED], unranked=[{"name": "sign", "compression": {"kind": "sign"}}])


def figures(menu, name):
    rows = [i for i, e in enumerate(menu.entries) if e.named is not None and e.named.name == name]
    return menu.table.step_s[rows]


def test_entries_without_names_are_those_of_a_menu_without_them(named, clos, folder):
    plain = menu_of(clos, folder)
    rows = [i for i, e in enumerate(named.entries) if e.named is None]
    assert [named.entries[i] for i in rows] == list(plain.entries)
    assert (named.table.step_s[rows] == plain.table.step_s).all()
    assert (named.table.hidden_s[rows] == plain.table.hidden_s).all()
    assert plain.exposed is None
    assert plain.break_evens == ()


def test_seconds_are_proportional_to_the_multiplier(named, clos, tmp_path):
    training = LOCAL["training"] | {"multiplier": 2.2}
    slow = menu_of(clos, tmp_path, entries=[LOCAL | {"training": training}])
    ours, theirs = figures(slow, "local"), figures(named, "local")
    assert len(ours) > 0
    finite = np.isfinite(ours[-1])
    assert ours[-1][finite] == pytest.approx(2 * theirs[-1][finite], rel=1e-12)


def test_the_break_even_is_told_and_nothing_without_a_multiplier_is_chosen(named):
    assert {"local", "coded", "sign"} == {one.name for one in named.break_evens}
    assert "sign" not in {e.named.name for e in named.entries if e.named is not None}
    assert all(one.break_even == one.exact_s / one.step_s > 0 for one in named.break_evens)
    assert all((one.multiplier is None) == (one.name == "sign") for one in named.break_evens)
    assert (named.exposed >= 0).all()
    assert (named.exposed <= 1).all()


def test_what_is_kept_on_disk_is_what_was_built(clos, tmp_path):
    built, stored = (menu_of(clos, tmp_path, entries=[CODED]) for _ in range(2))
    assert built.entries == stored.entries
    assert built.break_evens == stored.break_evens
    assert (built.exposed == stored.exposed).all()
    assert (built.table.step_s == stored.table.step_s).all()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"name": "one", "training": {"kind": "local-sgd", "every": 4}}, "is not exact: give multiplier"),
        ({"name": "searched"}, "is the name of what the search finds"),
        (CODED | {"training": LOCAL["training"]}, "goes with training of kind synchronous"),
        ({"name": "one", "partition": "tp=2"}, "no job type can use it"),
    ],
)
def test_wrong_entries_are_refused_by_name(clos, tmp_path, entry, problem):
    with pytest.raises(ConfigError, match=problem):
        menu_of(clos, tmp_path, entries=[entry])


def test_an_unranked_entry_is_neither_exact_nor_has_a_multiplier():
    with pytest.raises(ConfigError, match="list it in entries"):
        build_settings(MenuSettings, {"unranked": [CODED]})


def test_a_masked_job_is_an_entry_by_one_plan_for_both_phases(clos, tmp_path):
    training = {"kind": "masked", "core": {"width": 0.5}, "core_steps": 9, "full_steps": 1, "multiplier": 1.2, **SOURCE}
    menu = menu_of(clos, tmp_path, entries=[{"name": "masked", "training": training}])
    assert all(one.break_even > 1 for one in menu.break_evens)
    assert len(figures(menu, "masked")) > 0


def test_an_entry_may_put_the_stages_of_a_job_next_to_each_other(clos, tmp_path):
    types = types_of({"name": "gpt", "job": "zoo:gpt2-small", "global_batch": 64})
    entry = {"name": "stages-inside", "partition": "pp=8,dp=2,tp=1", "orders": ["tp-cp-pp-dp"]}
    few = {"degrees": [16], "keep": "micro_batch=1"}
    made = build_settings(MenuSettings, few | {"entries": [entry | {"layouts": 4}]})
    menu = build_menu(types, clos, made, cache=tmp_path)
    assert {one.name for one in menu.break_evens} == {"stages-inside"}
    assert {one.order for one in menu.entries if one.named is not None} <= {"tp-cp-pp-dp"}
    assert {one.order for one in menu.entries if one.named is None} == {"tp-cp-dp-pp"}
    other = build_settings(MenuSettings, few | {"entries": [{"name": "apart", "partition": "pp=8,dp=2,tp=1"}]})
    (apart,) = build_menu(types, clos, other, cache=tmp_path).break_evens
    assert menu.break_evens[0].step_s != apart.step_s
    with pytest.raises(PlanError, match="tp-cp-pp-pd"):
        build_settings(MenuSettings, {"entries": [entry | {"orders": ["tp-cp-pp-pd"]}]}).check()
