"""Independent subnetworks and local updates as execution graphs: worked by hand, and against the closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.settings import CostSettings
from meshwright.costs.training.local_update import LocalBlocks, local_blocks, one_batch_s, streaming_s
from meshwright.costs.training.replicas import Replicas
from meshwright.costs.work.memory import FRAGMENTATION
from meshwright.errors import PlanError
from meshwright.planning.estimate import estimate
from meshwright.planning.training import price_training
from meshwright.plans.training import parse_training
from meshwright.simulation.training.rounds import local_blocks_s, subnet_rounds_s
from meshwright.simulation.training.strategy_step import simulated_training_s

from ...draws import draws
from ...samples.sample_graphs import dense_layers

COSTS = CostSettings(contention="independent", overlap_slowdown=1.0)
SECONDS = st.floats(0.1, 10)


def dense(path, n=3):
    """Dense layers of 4096 x 4096 numbers of 4 bytes, in a file."""
    dense_layers(n, 128 * 4096 * 4.0, 4096 * 4096 * 4.0, samples_per_step=128).save(path)
    return str(path)


@pytest.fixture(scope="module")
def dense_job(tmp_path_factory):
    return dense(tmp_path_factory.mktemp("dense") / "dense.json")


def both_s(job, layout, training, cluster="preset:dgx-a100-8x8"):
    result = estimate(job, cluster, layout, costs=COSTS)
    (choice,) = parse_training(training)
    price = price_training(result.maker, result.work, choice)
    return price.step_s, simulated_training_s(result.maker, result.work, choice)


def test_rounds_of_subnets_worked_by_hand():
    # four workers of 10 s, ways of 1 s: with servers on all of them 10 + 2
    spans = np.full((8, 4), 10.0)
    assert subnet_rounds_s(spans, 1.0, is_central=False) == pytest.approx(12)
    # one card: subnets go out one after the other, and come back in the order in which workers got them, n + 1 ways in all
    assert subnet_rounds_s(spans, 1.0, is_central=True) == pytest.approx(10 + 4 + 1)
    # the slowest of the workers holds up a round
    late = spans.copy()
    late[:, 2] = 15
    assert subnet_rounds_s(late, 1.0, is_central=False) == pytest.approx(17)


@draws(40)
@given(span=SECONDS, way=SECONDS, n=st.integers(1, 6))
def test_nothing_shared_takes_the_closed_form_and_one_card_no_more_than_it(span, way, n):
    spans = np.full((8, n), span)
    assert subnet_rounds_s(spans, way, is_central=False) == pytest.approx(span + 2 * way, rel=1e-9)
    central_s = subnet_rounds_s(spans, way, is_central=True)
    assert span + 2 * way <= central_s * (1 + 1e-9)
    assert 2 * n * way <= central_s * (1 + 1e-9)  # the card is never idle for less
    assert central_s <= (span + 2 * n * way) * (1 + 1e-9)


@draws(60)
@given(blocks=st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=5), depth=st.integers(1, 5))
def test_one_batch_is_never_later_than_the_closed_form(blocks, depth):
    forward, target, update = zip(*blocks, strict=True)
    depth = min(depth, len(blocks))
    free = [0.0] * (len(blocks) - 1)
    (end,) = local_blocks_s(forward, target, update, free, free, -(-len(blocks) // depth), 1)
    assert end <= one_batch_s(forward, target, update, depth) * (1 + 1e-9)


@draws(60)
@given(f=SECONDS, t=SECONDS, u=SECONDS, p=st.integers(1, 6), data=st.data())
def test_equal_blocks_take_the_closed_form(f, t, u, p, data):
    depth = data.draw(st.sampled_from([d for d in range(1, p + 1) if -(-p // -(-p // d)) == d]))
    result = local_blocks_s([f] * p, [t] * p, [u] * p, [0.0] * (p - 1), [0.0] * (p - 1), -(-p // depth), 1)
    assert result[0] == pytest.approx(one_batch_s([f] * p, [t] * p, [u] * p, depth), rel=1e-9)


@draws(60)
@given(
    blocks=st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=5), depth=st.integers(1, 5), is_local=st.booleans()
)
def test_a_stream_goes_as_fast_as_its_busiest_block(blocks, depth, is_local):
    """Never faster, and beyond the way through an empty pipeline at most 5 % slower (20,000 draws: 2.7 %)."""
    forward, target, update = zip(*blocks, strict=True)
    depth = min(depth, len(blocks))
    free = [0.0] * (len(blocks) - 1)
    ends = local_blocks_s(forward, target, update, free, free, -(-len(blocks) // depth), 120, is_local=is_local)
    busiest_s = 120 * streaming_s(forward, target, update)
    assert busiest_s <= max(ends) * (1 + 1e-9)
    assert max(ends) <= 1.05 * busiest_s + one_batch_s(forward, target, update, depth)


def test_a_slow_link_is_the_busiest_of_all():
    ends = local_blocks_s([1.0] * 3, [0.1] * 3, [0.5] * 3, [4.0, 1.0], [0.0] * 2, 3, 40)
    assert ends[-1] - ends[-2] == pytest.approx(4.0)


def test_errors_take_their_time_worked_by_hand():
    # Three blocks, forward 1, target 0.1, update 0.5. All errors come from the last block, which sends them one after the other,
    # first the nearer one's: it has gone forward at 4, the errors come at 5 and 7, and block 0 is through at 7.6.
    spans = [1.0] * 3, [0.1] * 3, [0.5] * 3
    (end,) = local_blocks_s(*spans, [0.5] * 2, [2.0, 1.0], 3, 1)
    assert end == pytest.approx(7.6)
    # In a stream the last block sends 3 s of errors for each batch; from block to block 2 s of the first one and 0.5 s.
    for stride, each_s in ((3, 3.0), (1, 2.5)):
        ends = local_blocks_s(*spans, [0.5] * 2, [2.0, 1.0], stride, 400)
        assert ends[-1] / 400 == pytest.approx(each_s, rel=0.03)
        assert LocalBlocks(*map(tuple, spans), (0.5, 0.5), (2.0, 1.0), (1.0, 1.0)).streaming_s(stride) == pytest.approx(each_s)


def test_errors_of_the_presets():
    result = estimate("zoo:vgg16", "preset:dgx-a100-8x8", "pp=4,dp=1,micro_batch=2,global_batch=32")
    replicas = Replicas(result.work, result.maker.pricer)
    outputs = [result.work.sent(stage)[0].payload_bytes for stage in range(3)]
    last = result.work.share * float(result.work.graph.activation_bytes[result.work.graph.order[-1]])
    for preset, expected in {
        "dfa": [last] * 3,  # the error of the output goes to every block
        "rec-lra": [outputs[2], last, last],  # that of the block two behind
        "greedy": [0.0] * 3,
        "sil": [0.0] * 3,
    }.items():
        blocks = local_blocks(replicas, parse_training(f"kind=local-update,preset={preset},force=true")[0])
        assert blocks.error_bytes == pytest.approx(expected)
        assert [one > 0 for one in blocks.error_s] == [one > 0 for one in expected]


@pytest.mark.parametrize("preset", ["sil", "greedy", "dfa", "rec-lra"])
@pytest.mark.parametrize("job", ["zoo:gpt2-small", "zoo:vgg16"])
def test_the_event_path_of_local_updates_is_the_closed_form(job, preset):
    layout = "pp=4,dp=1,micro_batch=2,global_batch=32"
    analytic_s, simulated_s = both_s(job, layout, f"kind=local-update,preset={preset},force=true")
    assert simulated_s == pytest.approx(analytic_s, rel=0.03)


def test_blocks_keep_one_micro_batch_however_many_they_are(tmp_path):
    # A layer keeps 2 MiB of 128 samples. Stage 0 of the pipeline keeps p of them, of p micro-batches, and each block one.
    (training,) = parse_training("kind=local-update,preset=dfa,force=true")
    (with_feedback,) = parse_training("kind=local-update,preset=dfa,extra_parameters=1000,force=true")
    stored = {}
    for p in (2, 4, 8):
        layout = f"pp={p},dp=1,micro_batch=128,global_batch=2048"
        result = estimate(dense(tmp_path / f"{p}.json", p), "preset:dgx-a100-8x8", layout)
        pipeline = [result.work.memory(stage) for stage in range(p)]
        price = price_training(result.maker, result.work, training)
        each = pipeline[0].activations / p
        assert each == 128 * 4096 * 4
        stored[p] = max(one.total for one in pipeline) + price.extra_bytes
        assert price_training(result.maker, result.work, with_feedback).extra_bytes == pytest.approx(price.extra_bytes + 4000)
        if p > 2:  # of two stages none is in the middle, where buffers are fullest
            middle = max(one.total - one.activations * (1 + FRAGMENTATION) for one in pipeline) + each * (1 + FRAGMENTATION)
            assert stored[p] == pytest.approx(middle)
    assert stored[8] == pytest.approx(stored[4])


@pytest.mark.parametrize("server", ["sharded", "central"])
def test_the_event_path_of_subnets_is_the_closed_form_where_nothing_is_shared(server, dense_job):
    layout = "dp=4,micro_batch=32,global_batch=128"
    analytic_s, simulated_s = both_s(dense_job, layout, f"kind=ist,every=10,server={server}")
    if server == "sharded":
        assert simulated_s == pytest.approx(analytic_s, rel=1e-9)
    else:
        assert simulated_s < analytic_s


def test_the_bias_of_subnets_and_how_seldom_hidden_weights_are_trained_is_told(dense_job):
    result = estimate(dense_job, "preset:dgx-a100-8x8", "dp=4,micro_batch=32,global_batch=128", costs=COSTS)
    remarks = price_training(result.maker, result.work, *parse_training("kind=ist,every=10")).remarks
    assert remarks == (
        "biased: may not reach the data-parallel optimum",
        "a weight between hidden layers is trained in one of 4 rounds in the mean",
    )


def test_jobs_that_cannot_be_dealt_are_refused_on_both_paths():
    result = estimate("zoo:gpt2-small", "preset:dgx-a100-8x8", "dp=4,micro_batch=1,global_batch=16")
    with pytest.raises(PlanError, match="a transformer is none"):
        simulated_training_s(result.maker, result.work, *parse_training("kind=ist,every=4"))
