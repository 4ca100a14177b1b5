"""Parts of a model trained for epochs of their own by synthetic labels: worked by hand, and simulated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.settings import CostSettings
from meshwright.costs.training.local_update import TrainedPart, cut_bytes, epochs_s, part_step_s, trained_parts
from meshwright.costs.training.replicas import Replicas
from meshwright.costs.training.strategy_step import strategy_step
from meshwright.errors import PlanError
from meshwright.planning.estimate import estimate
from meshwright.planning.search import search_layouts
from meshwright.planning.training import price_training
from meshwright.plans import load_plan
from meshwright.plans.strategies.local_update import LocalUpdate
from meshwright.plans.training import parse_training
from meshwright.simulation.training.strategy_step import part_ends_s, sending_ends_s, simulated_training_s

from ...draws import draws

COSTS = CostSettings(contention="independent", overlap_slowdown=1.0)
CLUSTER = "preset:dgx-a100-8x8"
SIZES = "left_epochs=4,right_epochs=6,num_samples=3200,num_classes=10,force=true"
SECONDS = st.floats(0.1, 10)


def labels(more="schedule=sequential", sizes=SIZES):
    (result,) = parse_training(f"kind=local-update,preset=sil,{more},{sizes}")
    return result


def described(job, layout):
    result = estimate(job, CLUSTER, layout, costs=COSTS)
    return result, Replicas(result.work, result.maker.pricer)


def test_halves_one_behind_the_other_worked_by_hand():
    # N = 3200 samples, f = 1 and 2 ms, b = 3 and 4 ms: 4 epochs of 12.8 s, 3.2 s forward, 6 epochs of 19.2 s
    epochs, sending = [3200 * 4e-3, 3200 * 6e-3], [3200 * 1e-3]
    assert epochs_s(labels(), epochs, sending) == pytest.approx(4 * 12.8 + 3.2 + 6 * 19.2)
    # at once: the longer of both, and nothing goes forward
    assert epochs_s(labels("schedule=parallel"), epochs, sending) == pytest.approx(6 * 19.2)
    # labels of 0.5 s once, and two epochs of the whole of 20 s each
    both = labels("schedule=parallel,recovery_epochs=2")
    assert epochs_s(both, epochs, sending, [0.5], 20.0) == pytest.approx(0.5 + 6 * 19.2 + 40)
    assert (labels().num_epochs, both.num_epochs) == (6, 8)


@draws(40)
@given(samples=st.integers(1, 10**6), classes=st.integers(1, 1000), width=st.floats(1, 1e6), recovery=st.integers(0, 5))
def test_bytes_over_a_cut_are_those_of_labels_and_of_each_sample_once(samples, classes, width, recovery):
    sizes = f"left_epochs=3,right_epochs=2,num_samples={samples},num_classes={classes},recovery_epochs={recovery}"
    again = 2 * recovery * samples * width
    assert cut_bytes(labels("schedule=sequential", sizes), width) == pytest.approx((classes + samples) * width + again)
    assert cut_bytes(labels("schedule=parallel", sizes), width) == pytest.approx(classes * width + again)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "eager-1f1b"])
@pytest.mark.parametrize("job", ["zoo:gpt2-small", "zoo:vgg16"])
def test_a_part_that_is_the_whole_model_takes_a_synchronous_step(job, schedule):
    _, replicas = described(job, f"pp=4,dp=1,micro_batch=2,global_batch=32,schedule={schedule}")
    parts = trained_parts(replicas, labels())
    whole = TrainedPart(
        *(tuple(one for part in parts for one in getattr(part, name)) for name in ("forward_s", "backward_s")),
        tuple(part.crossing_s for part in parts[:-1]),
        tuple(one for part in parts for one in part.update_s),
        0.0,
    )
    tied_s = replicas.pricer.price_work(replicas.work).breakdown_s["gradient sync"]  # of the tied table, which parts do not have
    assert part_step_s(replicas, whole) == pytest.approx(replicas.synchronous_s, rel=1e-9, abs=tied_s * 1.000001)


def test_halves_of_four_stages_are_pipelines_of_two():
    result, replicas = described("zoo:vgg16", "pp=4,dp=1,micro_batch=2,global_batch=32")
    left, right = trained_parts(replicas, labels("schedule=sequential,cuts=2"))
    forward, backward = replicas.pricer.passes_s(result.work)
    assert (left.forward_s, right.backward_s) == (tuple(forward[:2]), tuple(backward[2:]))
    sent = result.work.sent(1)
    assert left.width_bytes == sum(one.payload_bytes for one in sent) / 2
    assert (right.crossing_s, right.labels_s, right.width_bytes) == (0, 0, 0)
    busiest_s = 16 * max(f + b for f, b in zip(left.forward_s, left.backward_s, strict=True))
    assert busiest_s < left.step_s < busiest_s + sum(left.forward_s) + sum(left.backward_s) + 2 * 16 * sum(left.send_s)


@pytest.mark.every(3)
@pytest.mark.parametrize("more", ["", ",cuts=2", ",cuts=1/3", ",recovery_epochs=3"])
@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("job", ["zoo:gpt2-small", "zoo:vgg16"])
def test_the_event_path_is_the_closed_form(job, schedule, more):
    result, _ = described(job, "pp=4,dp=1,micro_batch=2,global_batch=32")
    training = labels(f"schedule={schedule}{more}")
    price = price_training(result.maker, result.work, training)
    assert simulated_training_s(result.maker, result.work, training) == pytest.approx(price.step_s, rel=0.03)


@draws(40)
@given(stages=st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=4), data=st.data())
def test_what_goes_forward_is_as_fast_as_the_slowest_stage_or_way(stages, data):
    forward, send, _ = zip(*stages, strict=True)
    part = TrainedPart(forward, forward, send[:-1], forward, 0.0, crossing_s=send[-1])
    number = data.draw(st.integers(1, 30))
    assert sending_ends_s(part, number)[-1] == pytest.approx(part.sending_s(number), rel=1e-9)


@draws(40)
@given(f=SECONDS, b=SECONDS, u=SECONDS)
def test_a_part_of_one_stage_is_never_idle(f, b, u):
    _, replicas = described("zoo:vgg16", "pp=2,dp=1,micro_batch=2,global_batch=32")
    part = TrainedPart((f,), (b,), (), (u,), 0.0)
    assert part_step_s(replicas, part) == pytest.approx(16 * (f + b) + u)
    assert part_ends_s(part, replicas.layout, 3) == pytest.approx([n * (16 * (f + b) + u) for n in (1, 2, 3)])


def test_a_step_is_counted_so_that_all_of_them_are_the_whole_training():
    _, replicas = described("zoo:vgg16", "pp=2,dp=1,micro_batch=2,global_batch=32")
    parts = trained_parts(replicas, labels())
    whole_s = epochs_s(
        labels(), [100 * part.step_s for part in parts], [parts[0].sending_s(1600)], [parts[0].labels_s]
    )  # 100 steps of 32 of 3200 samples, of 16 micro-batches each
    assert strategy_step(replicas, labels()).step_s * 100 * 6 == pytest.approx(whole_s)


def test_parts_keep_what_their_own_stages_do_and_a_whole_model_in_recovery():
    _, replicas = described("zoo:llama-7b", "pp=4,dp=1,micro_batch=1,global_batch=32")
    held = {more: strategy_step(replicas, labels(f"schedule=parallel{more}")).extra_bytes for more in ("", ",cuts=2")}
    assert held[""] < held[",cuts=2"] < 0
    (streaming,) = parse_training("kind=local-update,preset=sil,force=true")
    label_bytes = 10 * max(part.width_bytes for part in trained_parts(replicas, labels()))
    assert held[""] == pytest.approx(strategy_step(replicas, streaming).extra_bytes + label_bytes)
    again = strategy_step(replicas, labels("schedule=parallel,recovery_epochs=1"))
    assert again.extra_bytes == pytest.approx(label_bytes)


def test_what_is_sent_and_kept_is_told():
    _, replicas = described("zoo:vgg16", "pp=2,dp=1,micro_batch=2,global_batch=32")
    (left, _) = trained_parts(replicas, labels())
    remarks = strategy_step(replicas, labels()).remarks
    sent, whole, stored = (number * left.width_bytes / 1e9 for number in (3210, 2 * 3200 * 6, 3200))
    assert (
        remarks[0]
        == f"{sent:,.4g} GB go over the cuts in the whole training, against {whole:,.4g} GB in as many epochs of a pipeline"
    )
    assert remarks[1].startswith(f"{stored:,.4g} GB of activations are kept outside the devices")
    assert len(strategy_step(replicas, labels("schedule=parallel")).remarks) == 2


def test_auxiliary_networks_take_their_share_of_all_blocks_but_the_last():
    result, replicas = described("zoo:vgg16", "pp=2,dp=1,micro_batch=2,global_batch=32")
    forward, backward = replicas.pricer.passes_s(result.work)
    steps = {}
    for share in (0, 0.5, 4):
        (training,) = parse_training(f"kind=local-update,preset=greedy,aux_share={float(share)},target_share=0,force=true")
        steps[share] = strategy_step(replicas, training)
        expected = max((1 + share) * forward[0] + (0.5 + share) * backward[0], forward[1] + 0.5 * backward[1])
        assert steps[share].step_s == pytest.approx(16 * expected, rel=1e-9) or share == 0
    state = max(result.work.memory(stage).total for stage in range(2))
    assert 0 < steps[0.5].extra_bytes - steps[0].extra_bytes < 0.5 * state
    with pytest.raises(PlanError, match="preset=dfa has no auxiliary networks"):
        parse_training("kind=local-update,preset=dfa,aux_share=0.1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preset=sil,cuts=2", "cuts wants schedule=sequential or schedule=parallel"),
        ("preset=sil,recovery_epochs=2", "recovery_epochs wants schedule"),
        ("preset=dfa,schedule=parallel", "schedule=parallel is of preset=sil"),
        ("preset=sil,schedule=parallel,left_epochs=2", "wants right_epochs, num_samples, num_classes"),
        ("preset=sil,schedule=sequental", "did you mean 'sequential'"),
        (f"preset=sil,schedule=sequential,cuts=3/2,{SIZES}", "cuts=3/2 must rise"),
        (f"preset=sil,schedule=sequential,cuts=two,{SIZES}", "must read STAGES"),
        (f"preset=sil,schedule=sequential,cuts=0,{SIZES}", "cuts"),
        (f"preset=sil,schedule=sequential,cuts=true,{SIZES}", "must read STAGES"),
    ],
)
def test_what_does_not_go_together_is_refused(text, message):
    with pytest.raises(PlanError, match=message):
        parse_training(f"kind=local-update,{text}")


def test_layouts_that_have_no_such_parts_are_refused():
    for layout, more, message in (
        ("pp=2,dp=1,micro_batch=2,global_batch=32", ",cuts=2", "leaves no stage behind its last cut; pp=2 may be cut behind 1"),
        ("pp=1,dp=1,micro_batch=2,global_batch=32", ",cuts=1", "pp=1 has nothing to cut"),
        ("pp=2,dp=2,micro_batch=2,global_batch=32", "", "set dp=1"),
        ("pp=2,dp=1,micro_batch=2,global_batch=32,schedule=zb-h1", "", "trains its parts by 1f1b"),
    ):
        result, _ = described("zoo:vgg16" if "zb" not in layout else "zoo:gpt2-small", layout)
        with pytest.raises(PlanError, match=message):
            price_training(result.maker, result.work, labels(f"schedule=parallel{more}"))


def test_keys_of_parts_are_spelled_as_they_are_read():
    training = labels("schedule=sequential,cuts=1/3,recovery_epochs=2")
    assert "cuts=1/3" in training.text
    assert parse_training(training.text) == (training,)
    assert LocalUpdate.model_validate(training.model_dump(mode="json")) == training
    assert training.part_bounds(5) == ((0, 1), (1, 3), (3, 5))
    assert labels().part_bounds(3) == ((0, 1), (1, 2), (2, 3))


def test_less_memory_is_no_figure_of_a_plan():
    result, _ = described("zoo:llama-7b", "pp=4,dp=1,micro_batch=1,global_batch=32")
    price = price_training(result.maker, result.work, labels("schedule=parallel"))
    assert price.extra_bytes < 0
    assert price.figures() == ()


def test_a_plan_keeps_the_keys_of_parts(tmp_path):
    training = f"kind=local-update,preset=sil,schedule=parallel,cuts=1,{SIZES},multiplier=0.5,multiplier_source=a test"
    plan = search_layouts("zoo:vgg16", "preset:host-8", batch=256, devices="2", keep="pp=2,dp=1", training=training).plan
    assert plan.training == parse_training(training)[0]
    plan.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").training == plan.training
