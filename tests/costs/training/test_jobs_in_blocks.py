"""Independent subnetworks and local updates of jobs: errors worked by hand, memory, and what is refused."""

import pytest

from meshwright.costs.settings import CostSettings
from meshwright.costs.training.local_update import LocalBlocks, local_blocks
from meshwright.costs.training.replicas import Replicas
from meshwright.costs.work.memory import FRAGMENTATION
from meshwright.errors import PlanError
from meshwright.planning.estimate import estimate
from meshwright.planning.training import price_training
from meshwright.plans.training import parse_training

from ...samples.sample_graphs import dense_layers

COSTS = CostSettings(contention="independent", overlap_slowdown=1.0)


def dense(path, n=3):
    """Dense layers of 4096 x 4096 numbers of 4 bytes, in a file."""
    dense_layers(n, 128 * 4096 * 4.0, 4096 * 4096 * 4.0, samples_per_step=128).save(path)
    return str(path)


@pytest.fixture(scope="module")
def dense_job(tmp_path_factory):
    return dense(tmp_path_factory.mktemp("dense") / "dense.json")


def test_errors_take_their_time_worked_by_hand():
    # Three blocks, forward 1, target 0.1, update 0.5. Where all errors come from the last block, it sends 3 s of errors for each
    # batch; from block to block 2 s of the first one and 0.5 s. A slow link is the busiest of all.
    spans = [1.0] * 3, [0.1] * 3, [0.5] * 3
    assert LocalBlocks(*map(tuple, spans), (4.0, 1.0), (0.0, 0.0), (0.0, 0.0)).streaming_s(3) == pytest.approx(4.0)
    for stride, each_s in ((3, 3.0), (1, 2.5)):
        assert LocalBlocks(*map(tuple, spans), (0.5, 0.5), (2.0, 1.0), (1.0, 1.0)).streaming_s(stride) == pytest.approx(each_s)


def test_errors_of_the_presets():
    found = estimate("zoo:vgg16", "preset:dgx-a100-8x8", "pp=4,dp=1,micro_batch=2,global_batch=32")
    replicas = Replicas(found.work, found.maker.pricer)
    outputs = [found.work.sent(stage)[0].payload_bytes for stage in range(3)]
    last = found.work.share * float(found.work.graph.activation_bytes[found.work.graph.order[-1]])
    for preset, wanted in {
        "dfa": [last] * 3,  # the error of the output goes to every block
        "rec-lra": [outputs[2], last, last],  # that of the block two behind
        "greedy": [0.0] * 3,
        "sil": [0.0] * 3,
    }.items():
        blocks = local_blocks(replicas, parse_training(f"kind=local-update,preset={preset},force=true")[0])
        assert blocks.error_bytes == pytest.approx(wanted)
        assert [one > 0 for one in blocks.error_s] == [one > 0 for one in wanted]


def test_blocks_keep_one_micro_batch_however_many_they_are(tmp_path):
    # A layer keeps 2 MiB of 128 samples. Stage 0 of the pipeline keeps p of them, of p micro-batches, and each block one.
    (training,) = parse_training("kind=local-update,preset=dfa,force=true")
    (with_feedback,) = parse_training("kind=local-update,preset=dfa,extra_parameters=1000,force=true")
    kept = {}
    for p in (2, 4, 8):
        layout = f"pp={p},dp=1,micro_batch=128,global_batch=2048"
        found = estimate(dense(tmp_path / f"{p}.json", p), "preset:dgx-a100-8x8", layout)
        pipeline = [found.work.memory(stage) for stage in range(p)]
        price = price_training(found.maker, found.work, training)
        each = pipeline[0].activations / p
        assert each == 128 * 4096 * 4
        kept[p] = max(one.total for one in pipeline) + price.extra_bytes
        assert price_training(found.maker, found.work, with_feedback).extra_bytes == pytest.approx(price.extra_bytes + 4000)
        if p > 2:  # of two stages none is in the middle, where buffers are fullest
            middle = max(one.total - one.activations * (1 + FRAGMENTATION) for one in pipeline) + each * (1 + FRAGMENTATION)
            assert kept[p] == pytest.approx(middle)
    assert kept[8] == pytest.approx(kept[4])


def test_the_bias_of_subnets_and_how_seldom_hidden_weights_are_trained_is_told(dense_job):
    found = estimate(dense_job, "preset:dgx-a100-8x8", "dp=4,micro_batch=32,global_batch=128", costs=COSTS)
    remarks = price_training(found.maker, found.work, *parse_training("kind=ist,every=10")).remarks
    assert remarks == (
        "biased: may not reach the data-parallel optimum",
        "a weight between hidden layers is trained in one of 4 rounds in the mean",
    )


def test_jobs_that_cannot_be_dealt_are_refused():
    found = estimate("zoo:gpt2-small", "preset:dgx-a100-8x8", "dp=4,micro_batch=1,global_batch=16")
    with pytest.raises(PlanError, match="a transformer is none"):
        price_training(found.maker, found.work, *parse_training("kind=ist,every=4"))
