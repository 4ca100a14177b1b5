"""Networks on disk: round trip, and files that are no policies."""

import dataclasses
import os
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.envs.static_features import static_features
from meshwright.errors import CheckpointError
from meshwright.models.saved import NetworkPolicy, SavedNetwork
from meshwright.models.settings import NetworkSettings
from meshwright.models.tensor_file import load_tensors, save_tensors

from ..draws import draws

TRAINED = {"config": "test", "benchmark": "preset:quickstart", "seed": 3, "steps": 100, "validation_blocking_rate": 0.25}


@pytest.fixture
def file(network, tmp_path):
    SavedNetwork.of(network, TRAINED).save(tmp_path / "policy.pt")
    return tmp_path / "policy.pt"


def test_a_saved_network_comes_back_as_it_was(file, network, observations, quickstart):
    saved = SavedNetwork.load(file)
    assert saved.trained == TRAINED
    assert saved.settings == network.settings
    seen = observations(quickstart)
    with torch.no_grad():
        torch.testing.assert_close(saved.network(static_features(quickstart))(seen), network(seen), rtol=0, atol=0)


def test_what_was_saved_does_not_follow_the_network(network):
    saved = SavedNetwork.of(network, {})
    with torch.no_grad():
        network.value[0].weight.zero_()
    assert saved.weights["value.0.weight"].any()


def test_a_policy_saved_on_one_scenario_acts_on_another(file, observations, toy, quickstart):
    saved = SavedNetwork.load(file)
    for scenario in (toy, quickstart):
        policy = NetworkPolicy("mine", saved, scenario)
        policy.reset(0)
        seen = observations(scenario)
        for e in range(6):
            observation = {key: value[e].numpy() for key, value in seen.items()}
            choice = policy.choose(None, observation)
            assert seen["action_mask"][e, choice] == 1
            assert choice == int(policy.scores(observation).argmax())


def test_the_same_policy_is_the_same_bytes(network, tmp_path):
    for name in ("a.pt", "b.pt"):
        SavedNetwork.of(network, TRAINED).save(tmp_path / name)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()


# --- files that are no policies ---


def refused(path, told):
    with pytest.raises(CheckpointError, match=told) as caught:
        SavedNetwork.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told(tmp_path):
    refused(tmp_path / "absent.pt", "no such file")
    refused(tmp_path, "no such file")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_told(file, share):
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    refused(file, "is truncated or not a file of tensors")


@draws(15)
@given(content=st.binary(max_size=200), protocol=st.sampled_from([b"", b"\x80\x02", b"\x80\x04", b"PK\x03\x04"]))
def test_random_bytes_are_told(tmp_path_factory, content, protocol):
    path = tmp_path_factory.mktemp("random") / "policy.pt"
    path.write_bytes(protocol + content)
    with pytest.raises(CheckpointError):
        SavedNetwork.load(path)


class Code:
    """Unpickled by a reader that trusts it, this makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_code_in_a_pickle_does_not_run(tmp_path):
    path, trace = tmp_path / "policy.pt", tmp_path / "trace"
    path.write_bytes(pickle.dumps({"format_version": 1, "weights": Code(str(trace))}))
    refused(path, "is truncated or not a file of tensors")
    assert not trace.exists()
    # It is a real trap: a trusting reader runs it.
    pickle.loads(path.read_bytes())
    assert trace.exists()


def test_code_among_tensors_does_not_run(tmp_path):
    path, trace = tmp_path / "policy.pt", tmp_path / "trace"
    torch.save({"format_version": 1, "weights": Code(str(trace))}, path)
    refused(path, "is truncated or not a file of tensors")
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format_version": 99}, "is no policy of version 1"),
        ({"features": "0" * 32}, "was trained on other features than this version observes"),
        ({"features": None}, "was trained on other features"),
        ({"network": {"hiden": 16}}, r"network\.hiden: unknown key|network\.hiden"),
        ({"network": {"hidden": 0}}, r"network\.hidden"),
        ({"network": None}, "must be a mapping"),
        ({"weights": []}, "is not what it should be"),
        ({"trained": []}, "is not what it should be"),
        ({"trained": {"rules": 3}}, "trained: a part of the policy is not what it should be"),
        ({"trained": {"rules": ["first-fit", 3]}}, "trained: a part of the policy"),
        ({"trained": {"rules": ["worst-fit"]}}, "trained: a part of the policy"),
        ({"trained": {"shape_slots": "many"}}, "trained: a part of the policy"),
        ({"weights": {"score.1.weight": 3}}, r"weights\.score\.1\.weight: holds something other than finite numbers"),
        ({"weights": {"score.1.weight": torch.tensor([1.0, float("nan")])}}, "finite numbers"),
    ],
)
def test_a_policy_that_is_not_whole_is_told(file, change, told):
    save_tensors(file, load_tensors(file) | change)
    refused(file, told)


@pytest.mark.parametrize("part", ["features", "network", "weights", "trained"])
def test_a_missing_part_is_named(file, part):
    data = load_tensors(file)
    del data[part]
    save_tensors(file, data)
    refused(file, f"{part}: the policy lacks a part")


@pytest.mark.parametrize("data", [None, [], 3, "text", torch.zeros(3)])
def test_tensors_that_are_no_policy_are_told(tmp_path, data):
    save_tensors(tmp_path / "policy.pt", data)
    refused(tmp_path / "policy.pt", "is no policy of version 1")


def test_weights_of_other_widths_are_told_with_their_file(file, quickstart):
    saved = dataclasses.replace(SavedNetwork.load(file), settings=NetworkSettings(hidden=8))
    with pytest.raises(CheckpointError, match=r"policy\.pt: the weights do not fit the widths"):
        saved.network(static_features(quickstart))


def test_a_failed_write_leaves_the_old_file(file, network, monkeypatch):
    before = file.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(Exception, match="cannot be written"):
        SavedNetwork.of(network, {}).save(file)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["policy.pt"]
