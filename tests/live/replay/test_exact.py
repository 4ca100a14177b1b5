"""Laws of exact replay: stored decisions, decided anew, are equal byte for byte, and differences are reported."""

import pytest

from meshwright.live.decisions import Observation, ObservedFactor
from meshwright.live.feedback.calibration import ObservedLayer
from meshwright.live.ledger import Ledger
from meshwright.live.replay.exact import replay_decisions

from ...oracles.memory_store import MemoryStore
from .past import Past, planners, request


@pytest.fixture(scope="module")
def past(folder):
    """Some decisions, a refused one and some with factors among them."""
    factors = tuple(ObservedFactor(devices, one, 1.2) for devices in (4, 8, 16) for one in (True, False))
    made = Past(planners(folder), factors=lambda graph: factors)
    made.play([(150.0 * k, request(k, 10_000 * (k + 1))) for k in range(8)])
    made.controller.decide(request(98, 100, deadline_s=1e-6))
    made.controller.decide(request(99, 100_000, deadline_s=1e9, devices=4))
    return made


def test_every_decision_is_the_same_also_from_a_file(past, folder, tmp_path):
    result = replay_decisions(past.store, planners(folder))
    outcomes = {kept.decision.outcome for kept in past.store.decisions(None, 1000)}
    assert outcomes == {"placed", "refused"}
    assert result["first"] is None
    assert result["num_identical"] == result["num_decided"] == len(past.store.decisions(None, 1000))
    with Ledger(tmp_path / "now.db") as ledger:
        for kept in past.store.decisions(None, 1000)[::-1]:
            with ledger.turn() as turn:
                turn.keep(kept.decision)
        assert replay_decisions(ledger, planners(folder))["num_identical"] == result["num_identical"]


@pytest.mark.parametrize("field", ["why", "plan", "predicted", "candidates", "outcome"])
def test_a_decision_that_was_changed_is_named_with_what_is_other(past, folder, tmp_path, field):
    stored = next(kept for kept in past.store.decisions(None, 1000) if kept.decision.plan is not None)
    old = stored.decision
    other = {
        "why": "because",
        "plan": {**old.plan, "why": "because"},
        "predicted": {**old.predicted, "step_s": 1.0},
        "candidates": (*old.candidates, {}),
        "outcome": "refused",
    }
    with Ledger(tmp_path / "now.db") as ledger:
        with ledger.turn() as turn:
            turn.keep(old.model_copy(update={field: other[field]}))
        result = replay_decisions(ledger, planners(folder))
    assert (result["num_identical"], result["num_others"], result["num_decided"]) == (0, 0, 1)
    assert (result["first"]["decision"], result["first"]["field"]) == (old.id, field)


def test_another_policy_or_cost_model_is_told(past, folder, tmp_path):
    result = replay_decisions(past.store, planners(folder, "menu:fixed-4"))
    assert result["num_others"] == result["num_decided"]
    assert "it was decided by menu:fastest-feasible, here is menu:fixed-4" in result["first"]["reason"]
    old = past.store.decisions(None, 1)[0].decision
    with Ledger(tmp_path / "now.db") as ledger:
        with ledger.turn() as turn:
            inputs = old.inputs.model_copy(update={"digest": "0" * 64})
            turn.keep(old.model_copy(update={"inputs": inputs}))
        result = replay_decisions(ledger, planners(folder))
    assert "the policy or the cost model is another one now: by digest it was 000000000000" in result["first"]["reason"]


def test_a_controller_with_the_layer_tells_what_was_observed_and_its_decisions_stay_the_same(folder):
    layer = ObservedLayer()
    past = Past(planners(folder), truth=lambda case, devices: 1.3, observed=60, factors=layer)
    past.play([(1000.0 * k, request(k, 100)) for k in range(4)])
    assert layer.learn(past.store).is_accepted
    assert layer.learn(past.store) == layer.learn(past.store), "ended runs are read once and stay"
    past.play([(9000.0, request(4, 100))])
    figures = past.store.decisions(None, 1)[0].decision.predicted
    factor = (4 * 1.3 + 3) / 7
    assert figures["observed_step_s"] == pytest.approx(factor * figures["step_s"])
    assert figures["observed_completion_s"] == pytest.approx(factor * figures["completion_s"])
    result = replay_decisions(past.store, planners(folder))
    assert result["num_identical"] == result["num_decided"] == 5
    layer.is_on = False
    assert layer(past.store.decisions(None, 1)[0].decision.inputs.graph) == ()


def test_ledgers_find_what_was_observed_as_stores_in_memory_do(tmp_path):
    memory = MemoryStore()
    with Ledger(tmp_path / "now.db") as ledger:
        for store in (memory, ledger):
            assert store.observed() == []
            for name in ("b", "a", "c"):
                with store.turn() as turn:
                    turn.observe(name, [Observation(step=k, step_s=1.0) for k in range(3)])
            assert store.observed() == ["a", "b", "c"]
