import json

import pytest

from meshwright.devices import device_type
from meshwright.errors import GraphError, InputFileError
from meshwright.jobs import load_graph, zoo_graph
from meshwright.jobs.load import JobSource, job_content
from meshwright.jobs.readers.pipedream import load_profile

PROFILE = "n1 -- ReLU -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=0\n"
LOADED = "n{} -- {}() -- forward_compute_time={}, backward_compute_time={}, activation_size=1, parameter_size=0\n"
CONFIG = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 16, "vocab_size": 10}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "graphs" / "mine").mkdir(parents=True)
    (tmp_path / "graphs" / "mine" / "graph.txt").write_text(PROFILE)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    zoo_graph("alexnet").save(tmp_path / "saved.json")
    return tmp_path


def test_a_zoo_name_is_timed_on_the_device():
    assert load_graph("zoo:gnmt").reference_device == "a100"
    assert load_graph("zoo:gnmt", device=device_type("h100")).reference_device == "h100"
    assert load_graph("zoo:gnmt", batch_size=2, sequence_length=3).samples_per_step == 2


def test_a_profile_is_found_by_name_folder_and_file(folder):
    results = [
        load_graph("mine", graphs_dir=folder / "graphs"),
        load_graph(str(folder / "graphs" / "mine")),
        load_graph(str(folder / "graphs" / "mine" / "graph.txt"), device=device_type("h100")),
    ]
    assert [(graph.name, graph.source, graph.step_s) for graph in results] == [("mine", "measured", 0.002)] * 3


def test_a_saved_graph_keeps_its_times(folder):
    assert load_graph(str(folder / "saved.json"), device=device_type("h100")).to_data() == zoo_graph("alexnet").to_data()


def test_a_model_configuration_is_timed(folder):
    graph = load_graph(str(folder / "config.json"), device=device_type("v100"), batch_size=2, sequence_length=4)
    assert (graph.reference_device, graph.samples_per_step) == ("v100", 2)
    assert graph.step_s > 0


def test_the_content_of_a_job_is_the_same_job_elsewhere(folder, tmp_path):
    assert job_content("zoo:alexnet") == ("zoo:alexnet", None)
    for spec in ("graphs/mine", "graphs/mine/graph.txt", "saved.json"):
        content, named = job_content(str(folder / spec))
        (tmp_path / "sent.json").write_text(json.dumps(content))
        assert load_graph(str(tmp_path / "sent.json")).to_data() == load_graph(str(folder / spec)).to_data()
        assert named is None
    assert job_content(str(folder / "config.json")) == (CONFIG, folder.name)
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(GraphError, match="neither a saved job graph"):
        job_content(str(tmp_path / "list.json"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vgg16", r"no such job \(got 'vgg16'\); did you mean 'zoo:vgg16'"),
        ("mime", r"did you mean 'mine'"),
        ("zoo:vgg17", r"\(got 'vgg17'\); any other model is named by its Hugging Face config\.json; valid: alexnet, "),
    ],
)
def test_an_unknown_name_gets_the_nearest_spelling(folder, spec, message):
    with pytest.raises(GraphError, match=message):
        load_graph(spec, graphs_dir=folder / "graphs")


def test_a_folder_that_lies_here_is_nearer_than_a_longer_name_of_the_zoo(folder, tmp_path, monkeypatch):
    (tmp_path / "llama").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GraphError, match=r"did you mean 'zoo:llama-7b'"):
        load_graph("lama")
    (tmp_path / "llama" / "config.json").write_text("{}")
    with pytest.raises(GraphError, match=r"no such job \(got 'lama'\); did you mean 'llama'\?"):
        load_graph("lama")


def test_paths_that_hold_no_graph_are_refused(folder):
    with pytest.raises(InputFileError, match=r"saved2.json: no such file .* did you mean .*saved.json"):
        load_graph(str(folder / "saved2.json"))
    with pytest.raises(GraphError, match=r"the folder holds no graph\.txt"):
        load_graph(str(folder / "graphs"))
    with pytest.raises(GraphError, match="no such folder of graphs"):
        load_graph("mine", graphs_dir=folder / "grphs")
    (folder / "other.json").write_text("{}")
    with pytest.raises(GraphError, match="neither a saved job graph"):
        load_graph(str(folder / "other.json"))


@pytest.mark.parametrize("name", ["saved.json", "graphs/mine"])
def test_a_batch_is_refused_where_the_figures_are_given(folder, name):
    with pytest.raises(GraphError, match="batch_size: the graph's figures hold for its own batch only"):
        load_graph(str(folder / name), batch_size=4)


@pytest.fixture
def fed(tmp_path):
    """A profile of a data loader of 5 + 1 ms and a layer of 2 + 2 ms."""
    path = tmp_path / "fed" / "graph.txt"
    path.parent.mkdir()
    path.write_text(LOADED.format(1, "Input0", 5, 1) + LOADED.format(2, "ReLU", 2, 2) + "\tn1 -- n2\n")
    return path


def test_what_times_the_data_loader_is_left_out_and_told(fed, tmp_path):
    load_profile(fed).save(tmp_path / "saved.json")
    for spec in (str(fed), str(tmp_path / "saved.json")):
        graph, (remark,) = JobSource(spec).load()
        assert (graph.op_kinds, graph.step_s) == (("ReLU",), pytest.approx(0.004))
        assert remark.startswith("left out: 1 Input op of the profile, 6 of 10 ms, which time the data loader")
        assert "--set keep_input_ops=true" in remark
        assert load_graph(spec).to_data() == graph.to_data()
        whole = JobSource(spec, keep_input_ops=True).load()
        assert (whole.graph.to_data(), whole.remarks) == (load_profile(fed).to_data(), ())


def test_only_input_ops_of_measured_graphs_are_left_out(fed, tmp_path):
    near = tmp_path / "near.txt"
    near.write_text(fed.read_text().replace("Input0", "InputNorm"))
    assert JobSource(str(near)).load().graph.num_ops == 2
    data = load_profile(fed).to_data() | {"source": "estimated"}
    (tmp_path / "estimated.json").write_text(json.dumps(data))
    assert JobSource(str(tmp_path / "estimated.json")).load().remarks == ()
    fed.write_text(LOADED.format(1, "Input", 5, 1))
    with pytest.raises(GraphError, match="no op but its inputs"):
        load_graph(str(fed))


def test_the_batch_of_a_profile_is_said_where_it_is_not_told(fed):
    assert load_graph(str(fed)).samples_per_step is None
    assert load_graph(str(fed), profile_batch=64).samples_per_step == 64
    with pytest.raises(GraphError, match=r"--set profile_batch: must be at least 1 \(got 0\)"):
        load_graph(str(fed), profile_batch=0)
    for read in (JobSource("zoo:vgg16", profile_batch=64).load, JobSource("zoo:gpt2-small", profile_batch=64).shape):
        with pytest.raises(GraphError, match=r"--set profile_batch: is for a profile, which does not have it; .* does"):
            read()
