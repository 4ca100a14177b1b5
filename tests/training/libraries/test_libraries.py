"""Each library learns on the environments: its example, as the documentation prints it, blocks fewer jobs than without training.

The measure is the mean share of blocked jobs on quickstart's episodes 0 to 19. Offered candidates at random block 26 %, the
greedy choice of an untrained network 19 %.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from meshwright.envs.job_partitioning import JobPartitioningVectorEnv
from meshwright.errors import ConfigError
from meshwright.models.candidate_scorer import CandidateScorer, blocking_rates

ROOT = Path(__file__).resolve().parents[3]
# At least as much better than an untrained network's choice as that is better than chance: 19 % - 6 % = 13 %.
MARGIN = 0.06


def printed(command):
    """The last line of a command of the documentation as JSON; it runs in the repository, with this Python."""
    program, *words = command.split()
    assert program == "python"
    result = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280, env={**os.environ}
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])


def command(name):
    """The documentation's line that runs an example."""
    (line,) = re.findall(rf"^\$ (python examples/{name}\.py.*)$", (ROOT / "docs" / "environments.md").read_text(), re.M)
    return line


@pytest.mark.library
@pytest.mark.parametrize(("name", "module"), [("torchrl_ppo", "torchrl"), ("tianshou_ppo", "tianshou"), ("rllib_ppo", "dm-tree")])
def test_less_than_a_minute_of_training_blocks_fewer_jobs(name, module):
    imported = {"dm-tree": "tree"}.get(module, module)
    if importlib.util.find_spec(imported) is None:
        pytest.skip(f"{module} is not installed; `bash .ci/libraries` installs it")
    output = printed(command(name))
    assert output["random"] == pytest.approx(0.2616, abs=1e-3)
    assert output["decisions"] >= 12_288
    assert output["trained"] < min(output["random"], output["untrained"]) - MARGIN, output


# --- what needs no library ---


def test_an_untrained_network_is_no_pass_and_chance_is_what_the_margin_is_measured_from():
    torch.manual_seed(1)
    space = JobPartitioningVectorEnv(1, "preset:quickstart").single_observation_space
    untrained = blocking_rates(CandidateScorer(space), "preset:quickstart", range(4)).mean()
    chance = blocking_rates(None, "preset:quickstart", range(4)).mean()
    assert untrained > 0.13
    assert chance > 0.2


def test_what_is_not_offered_has_no_chance_and_all_candidates_share_their_weights(toy_vector):
    torch.manual_seed(0)
    scorer = CandidateScorer(toy_vector.single_observation_space)
    seen, _ = toy_vector.reset(seed=0)
    tensors = {key: torch.as_tensor(seen[key]) for key in scorer.keys}
    tensors["action_mask"][:, 2] = 0
    scores, values = scorer(tensors)
    assert values.shape == (4,)
    assert (torch.softmax(scores, 1)[:, 2] == 0).all()
    order = torch.tensor([1, 0, 3, 2])
    moved = {key: tensors[key][:, order] if tensors[key].shape[1] == 4 and key != "job" else tensors[key] for key in scorer.keys}
    there, _ = scorer(moved)
    np.testing.assert_allclose(there.detach(), scores[:, order].detach(), rtol=1e-5)


def test_an_observation_without_candidates_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="observation_space: describes no actions"):
        CandidateScorer(spaces.Dict({"job": spaces.Box(0, 1, (4,))}))


@pytest.fixture
def toy_vector():
    return JobPartitioningVectorEnv(4, "preset:toy")
