"""Strategies in closed form and by the event path: neutral settings are synchronous training, and both paths agree."""

import pytest

from meshwright.costs.settings import CostSettings
from meshwright.costs.training.replicas import Replicas
from meshwright.errors import PlanError
from meshwright.planning.estimate import estimate
from meshwright.planning.training import price_training
from meshwright.plans.compression import parse_compression
from meshwright.plans.training import Synchronous, parse_training
from meshwright.simulation.training.strategy_step import simulated_training_s

COSTS = CostSettings(contention="independent", overlap_slowdown=1.0, collectives="ring")

CASES = [
    ("zoo:resnet50", "dp=16,micro_batch=4,global_batch=256"),
    ("zoo:gpt2-small", "dp=16,micro_batch=1,global_batch=16,overlap_dp=false"),
]

NEUTRAL = "kind=local-sgd,every=1|kind=post-local-sgd,every=4,warmup_steps=10,num_steps=10|kind=diloco,every=1"

STRATEGIES = (
    "synchronous|kind=local-sgd,every=2|7|kind=post-local-sgd,every=4,warmup_steps=5,num_steps=10|kind=diloco,every=50,"
    "quantise_bits=8|kind=diloco,every=6,fragments=2,overlap=true|kind=diloco,every=6,fragments=3|asp|kind=ssp,staleness=0|3|"
    "kind=gossip,topology=ring|one-peer-exp|aer|complete"
)

CODES = "kind=top-k,fraction=0.01|kind=quantise,bits=8|4|kind=sign|kind=random-k,fraction=0.1|kind=low-rank,rank=4"

SAME = "kind=quantise,bits=32,group=null,summable=true,codec_passes=0|kind=random-k,fraction=1,codec_passes=0"


@pytest.fixture(scope="module", params=CASES, ids=[job for job, _ in CASES])
def found(request):
    job, layout = request.param
    return estimate(job, "preset:dgx-a100-8x8", layout, costs=COSTS)


def test_neutral_settings_are_synchronous_training_without_hiding(found):
    work = found.maker.work(found.layout.model_copy(update={"overlap_dp": False}))
    exact_s, exact_event_s = (f(found.maker, work, Synchronous()) for f in (price_training, simulated_training_s))
    for training in parse_training(NEUTRAL):
        assert price_training(found.maker, work, training).step_s == pytest.approx(exact_s.step_s, rel=1e-9)
        assert simulated_training_s(found.maker, work, training) == pytest.approx(exact_event_s, rel=1e-9)


def test_codes_that_change_nothing_cost_nothing(found):
    exact = price_training(found.maker, found.work, Synchronous())
    simulated_s = simulated_training_s(found.maker, found.work, Synchronous())
    for code in parse_compression(SAME):
        assert price_training(found.maker, found.work, Synchronous(), code).step_s == pytest.approx(exact.step_s, rel=1e-9)
        assert simulated_training_s(found.maker, found.work, Synchronous(), code) == pytest.approx(simulated_s, rel=1e-9)


@pytest.mark.every(3)
@pytest.mark.parametrize("text", [STRATEGIES, CODES], ids=["strategies", "codes"])
def test_both_paths_agree_without_contention(found, text):
    is_code = text is CODES
    for one in parse_compression(text) if is_code else parse_training(text):
        strategy = (Synchronous(), one) if is_code else (one, None)
        closed_s = price_training(found.maker, found.work, *strategy).step_s
        assert simulated_training_s(found.maker, found.work, *strategy) == pytest.approx(closed_s, rel=0.03), one.text


def test_a_single_replica_is_by_itself():
    alone = estimate("zoo:gpt2-small", "preset:host-8", "dp=1,micro_batch=1,global_batch=4", costs=COSTS)
    for training in parse_training(STRATEGIES.replace("|asp|", "|")):
        if training.kind != "ssp":
            assert price_training(alone.maker, alone.work, training).step_s == pytest.approx(alone.step.step_s, rel=1e-9)


def test_parts_of_a_sequence_sum_coded_gradients_as_replicas_do():
    result = estimate("zoo:gpt2-small", "preset:host-8", "dp=1,cp=8,micro_batch=1,global_batch=4", costs=COSTS)
    exact = price_training(result.maker, result.work, Synchronous())
    for code in parse_compression("kind=quantise,bits=4,summable=true,codec_passes=0|kind=random-k,fraction=0.1,codec_passes=0"):
        price = price_training(result.maker, result.work, Synchronous(), code)
        assert price.step_s < exact.step_s
        assert 0 < price.sent_bytes < 0.2 * Replicas(result.work, result.maker.pricer).gradient_bytes
        simulated_s = simulated_training_s(result.maker, result.work, Synchronous(), code)
        assert simulated_s == pytest.approx(price.step_s, rel=0.03)


def test_of_several_strategies_a_refused_one_is_told_and_a_single_one_raised():
    where = "zoo:gpt2-small", "preset:host-8", "dp=8,micro_batch=1,global_batch=8"
    several = estimate(*where, training="kind=local-sgd,every=2|kind=local-update,preset=dfa")
    assert [one.training.kind for one in several.trained] == ["local-sgd"]
    assert any("kind=local-update" in remark and "left out" in remark for remark in several.remarks)
    with pytest.raises(PlanError, match="force"):
        estimate(*where, training="kind=local-update,preset=dfa")


def test_traffic_falls_by_the_number_of_local_steps_and_memory_is_as_told(found):
    whole = Replicas(found.work, found.maker.pricer).gradient_bytes
    expected = {"local-sgd": 0.0, "diloco": 2 * whole, "gossip": whole}
    for training in parse_training("kind=local-sgd,every=4|kind=diloco,every=500|kind=gossip,topology=aer"):
        price = price_training(found.maker, found.work, training)
        assert price.extra_bytes == expected[training.kind]
        if training.kind != "gossip":
            assert price.sent_bytes == pytest.approx(whole / training.every)


def test_stragglers_cost_less_the_fewer_waits_there_are(found):
    slow = estimate(found.maker.spec, found.cluster, found.layout, costs=COSTS.model_copy(update={"straggler_sigma": 0.2}))
    exact, local = (
        price_training(slow.maker, slow.work, one).step_s for one in parse_training("synchronous|kind=local-sgd,every=16")
    )
    base = price_training(found.maker, found.work, Synchronous()).step_s
    assert exact > 1.1 * base
    assert exact > local


def test_without_a_multiplier_only_the_break_even_is_told(found):
    named, other = parse_training("kind=local-sgd,every=4,multiplier=1.2,multiplier_source=a table|kind=gossip,topology=aer")
    price = price_training(found.maker, found.work, named)
    assert price.effective_s == pytest.approx(1.2 * price.step_s)
    assert "a table" in price.summary()
    silent = price_training(found.maker, found.work, other)
    assert silent.effective_s is None
    assert "not ranked" in silent.summary()
    assert silent.break_even() == pytest.approx(silent.synchronous_s / silent.step_s)


def test_what_a_job_cannot_be_trained_by_is_refused(found):
    with pytest.raises(PlanError, match="force=true"):
        price_training(found.maker, found.work, *parse_training("kind=local-update,preset=dfa"))
    with pytest.raises(PlanError, match="chains of dense layers"):
        price_training(found.maker, found.work, *parse_training("kind=ist,every=4"))


@pytest.mark.parametrize("found", [CASES[0], pytest.param(CASES[1], marks=pytest.mark.slow)], indirect=True)
def test_stragglers_are_counted_on_the_event_path_or_refused(found):
    slow = COSTS.model_copy(update={"straggler_sigma": 0.2})
    layout = found.layout.model_copy(update={"overlap_dp": False})
    made = estimate(found.maker.spec, found.cluster, layout, costs=slow)
    (late,) = parse_training("kind=post-local-sgd,every=4,warmup_steps=5,num_steps=10")
    parts = [simulated_training_s(made.maker, made.work, *parse_training(f"kind=local-sgd,every={every}")) for every in (1, 4)]
    assert simulated_training_s(made.maker, made.work, late) == pytest.approx(sum(parts) / 2, rel=1e-9)
    assert simulated_training_s(made.maker, made.work, late) == pytest.approx(
        price_training(made.maker, made.work, late).step_s, rel=0.05
    )
    (masked,) = parse_training("kind=masked,core=width:0.5,core_steps=2,full_steps=1")
    for strategy in ((Synchronous(), *parse_compression("kind=sign")), (masked,)):
        with pytest.raises(PlanError, match=r"costs\.straggler_sigma: has closed forms alone"):
            simulated_training_s(made.maker, made.work, *strategy)
