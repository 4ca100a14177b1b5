"""How a policy was made is read from its file, and said in one sentence wherever it is compared."""

import pytest

from meshwright.models.policy_files import how_file_was_made, how_made, shipped_folder, stage
from meshwright.models.tensor_file import load_tensors

NO_PPO = {
    "learned-shares.json", "llm-256-prices.fleet.pt", "llm-anywhere.fleet.pt", "uneven-64.fleet.pt",
}  # fmt: skip
SHIPPED = sorted(path.name for path in shipped_folder().iterdir() if path.suffix in (".pt", ".json"))


def test_stages_are_named_with_their_steps_and_a_policy_without_ppo_says_so():
    searched = stage("search", 60, "generations", 1.5, of="14 weights")
    assert how_made({"stages": [searched]}) == "searched weights (14 weights, 60 generations); no PPO"
    assert how_made({"stages": [searched, stage("ppo", 2048, "decisions")]}).endswith("60 generations), PPO (2,048 decisions)")
    assert how_made({"stages": []}) == "untrained; no PPO"


@pytest.mark.parametrize("trained", [{}, {"stages": None}, {"stages": [3]}, {"steps": 4096, "phase": "ppo"}])
def test_a_file_that_holds_no_stages_gives_unknown(trained):
    assert how_made(trained) == "unknown"


def test_at_most_eight_policies_ship():
    assert len(SHIPPED) <= 8


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_says_how_it_was_made(name):
    made = how_file_was_made(shipped_folder() / name)
    assert made != "unknown"
    assert ("no PPO" in made) == (name in NO_PPO)
    if name.endswith(".pt"):
        trained = load_tensors(shipped_folder() / name)["trained"]
        steps = [
            s["steps"] for s in trained["stages"] if s["stage"] == "ppo" or (".fleet." not in name and s["stage"] != "search")
        ]
        assert trained.get("steps", trained.get("update")) in [sum(steps[n:]) for n in range(len(steps) + 1)]
