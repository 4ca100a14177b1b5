"""A plan embeds the shape of its transformer, gives it back, and refuses one that is another job's."""

import json

import jsonschema
import numpy as np
import pytest

from meshwright.errors import PlanError
from meshwright.jobs.job import Job
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.jobs.zoo.catalogue import zoo_names, zoo_shape
from meshwright.plans import Layout, layout_plan, load_plan, place
from meshwright.plans.schema import published_text
from meshwright.plans.transformer import PlannedTransformer

CONFIG = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 4, "n_positions": 128, "vocab_size": 1000}
SHAPE = shape_of(CONFIG, name="tiny")


@pytest.fixture
def plan(two_hosts):
    graph = SHAPE.graph(8, 64)
    layout = Layout(tp=4, dp=2, micro_batch=1, global_batch=8)
    return layout_plan(Job(graph, 10), two_hosts, layout, place(two_hosts, np.arange(8)), shape=SHAPE, sequence_length=64)


@pytest.mark.parametrize("name", ["gpt2-small", "llama-7b", "bert-base"])
def test_a_shape_comes_back_as_it_was(name):
    assert name in zoo_names()
    shape, batch = zoo_shape(name)
    planned = PlannedTransformer.from_shape(shape)
    assert planned.shape(name) == shape
    assert planned.sequence_length == shape.default_sequence_length
    planned.check(shape.graph(batch))


def test_a_plan_is_saved_and_loaded_with_its_shape(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    loaded = load_plan(tmp_path / "plan.json")
    assert loaded == plan
    assert loaded.job.transformer.shape("tiny") == SHAPE
    jsonschema.validate(json.loads((tmp_path / "plan.json").read_text()), json.loads(published_text()))


def test_a_plan_without_a_shape_is_read(plan, tmp_path):
    data = plan.model_dump(mode="json", exclude_none=True)
    del data["job"]["transformer"]
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert load_plan(tmp_path / "plan.json").job.transformer is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hidden", 128, r"job\.transformer: does not give the job graph"),
        ("num_layers", 5, "does not give the job graph"),
        ("num_layers", 10**12, "does not give the job graph"),
        ("sequence_length", 32, "does not give the job graph"),
        ("sequence_length", 4096, "tiny has only 128 positions"),
        ("num_heads", 0, r"job\.transformer\.num_heads"),
        ("heads", 4, r"job\.transformer\.heads: unknown key"),
    ],
)
def test_a_shape_of_another_job_is_refused(plan, tmp_path, key, value, message):
    data = plan.model_dump(mode="json", exclude_none=True)
    data["job"]["transformer"][key] = value
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(PlanError, match=message):
        load_plan(tmp_path / "plan.json")
