"""Kinds of training and codes of gradients: what texts spell, what is refused, what is declared."""

import pytest

from meshwright.errors import PlanError
from meshwright.plans.compression import COMPRESSIONS, TopK, parse_compression
from meshwright.plans.partition import Layout
from meshwright.plans.training import TRAININGS, Gossip, LocalSgd, Synchronous, check_training, parse_training

LAYOUT = Layout(dp=6, micro_batch=1, global_batch=6)


def test_values_and_strategies_stand_between_the_same_bars():
    text = "synchronous|kind=local-sgd,every=4|16,multiplier=1.1,multiplier_source=a table|gossip,topology=aer|ring"
    first, four, sixteen, aer, ring = parse_training(text)
    assert first == Synchronous()
    assert (four.every, sixteen.every, four.multiplier) == (4, 16, 1.1)
    assert (aer.topology, ring.topology, ring.multiplier) == ("aer", "ring", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind=gosip,topology=aer", "training.kind: unknown kind (got 'gosip')"),
        ("kind=local-sgd", "training.every: the key is missing"),
        ("kind=local-sgd,every=0", "training.every"),
        ("kind=local-sgd,every=2,multiplier=1.1", "wants a multiplier_source"),
        ("kind=local-sgd,every=2,evry=3", "training.evry: unknown key"),
        ("every=2", "must name a kind"),
        ("kind=local-sgd,every=2,every=3", "appears twice"),
        ("kind=synchronous,multiplier=2,multiplier_source=x", "its multiplier is 1"),
        ("kind=diloco,every=2,fragments=3", "fragments=3 are more than every=2"),
        ("kind=post-local-sgd,every=2,warmup_steps=11,num_steps=10", "more than num_steps=10"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text, message):
    with pytest.raises(PlanError) as error:
        parse_training(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_codes_are_read_alike():
    assert [code.fraction for code in parse_compression("kind=top-k,fraction=0.01|0.1")] == [0.01, 0.1]
    with pytest.raises(PlanError, match=r"compression\.kind"):
        parse_compression("kind=topk,fraction=0.1")


def test_a_file_says_the_same(tmp_path):
    path = tmp_path / "strategy.yaml"
    path.write_text("training:\n  kind: local-sgd\n  every: 8\n")
    assert parse_training(str(path)) == (LocalSgd(every=8),)


def test_every_kind_is_found_under_its_own_name():
    for registry in (TRAININGS, COMPRESSIONS):
        for name, model in registry.items():
            assert model.model_fields["kind"].default == name


def test_no_kind_that_changes_the_mathematics_has_a_multiplier_unasked():
    assert Synchronous().steps_multiplier == 1.0
    assert [kind.exactness for kind in TRAININGS.values()].count("exact") == 1
    assert LocalSgd(every=4).steps_multiplier is None
    assert TopK(fraction=0.1).steps_multiplier is None


def test_replicas_must_be_whole_and_pairs_even():
    with pytest.raises(PlanError, match=r"layout\.zero"):
        check_training(LocalSgd(every=2), LAYOUT.model_copy(update={"zero": 1}))
    with pytest.raises(PlanError, match=r"layout\.sp"):
        check_training(LocalSgd(every=2), LAYOUT.model_copy(update={"sp_d": 2}))
    with pytest.raises(PlanError, match="power of two"):
        check_training(Gossip(topology="one-peer-exp"), LAYOUT)
    check_training(Synchronous(), LAYOUT.model_copy(update={"zero": 1}))
