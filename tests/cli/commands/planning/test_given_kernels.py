"""``--set kernels=FILE`` of ``estimate`` and ``plan --search``: longer steps by slower kernels, and what is refused."""

import json
import math
from importlib.resources import files

import pytest

GPT = {"model_type": "gpt2", "n_embd": 1024, "n_layer": 4, "n_head": 16, "n_positions": 1024, "vocab_size": 50304}
PLACE = ("--job", "config.json", "--cluster", "preset:dgx-a100-8x8")
ORDER = ("--set", "order=tp-cp-dp-pp", "--keep", "cp=1,pp=1,zero=0|1")
SEARCH = ("plan", "--search", *PLACE, "--devices", "16", "--batch", "32", *ORDER)
ESTIMATE = ("estimate", *PLACE, "--layout", "tp=2,dp=8,micro_batch=2,global_batch=32")
A100 = (files("meshwright.configs") / "kernels" / "a100.yaml").read_text()


@pytest.fixture
def work(work):
    (work / "config.json").write_text(json.dumps(GPT))
    (work / "a100.yaml").write_text(A100)
    (work / "slow.yaml").write_text(A100.replace("\nproduct_efficiency: 0.8162\n", "\nproduct_efficiency: 0.4081\n"))
    (work / "costs.yaml").write_text("kernels: slow.yaml\n")
    return work


def data_of(told):
    assert (told.status, told.err.count("error")) == (0, 0)
    return json.loads(told.out)


def step_s(data):
    return next(figure["value"] for figure in data["figures"] if figure["name"] == "step_s")


def test_an_estimate_by_slower_products_takes_longer(meshwright):
    plain = data_of(meshwright(*ESTIMATE, "--json", "-"))
    slow = data_of(meshwright(*ESTIMATE, "--set", "kernels=slow.yaml", "--json", "-"))
    assert step_s(slow) > step_s(plain)
    assert data_of(meshwright(*ESTIMATE, "--set", "costs.yaml", "--json", "-")) == slow
    for same in ("a100.yaml", "a100"):
        reported = data_of(meshwright(*ESTIMATE, "--set", f"kernels={same}", "--json", "-"))
        assert reported == plain | {"kernels": same}
    assert data_of(meshwright(*ESTIMATE, "--set", "kernels=null", "--json", "-")) == plain
    assert data_of(meshwright(*ESTIMATE, "--set", "costs.yaml", "--set", "kernels=null", "--json", "-")) == plain


@pytest.mark.parametrize("software", [(), ("--set", "software=megatron-lm")])
def test_the_interval_of_a_step_is_the_same_in_text_table_and_json(meshwright, software):
    data = data_of(meshwright(*ESTIMATE, *software, "--json", "-"))
    text = meshwright(*ESTIMATE, *software).out
    step = next(figure for figure in data["figures"] if figure["name"] == "step_s")
    assert step["uncertainty"] == pytest.approx(math.hypot(*data["uncertainty"].values()))
    low_ms, high_ms = (1e3 * end for end in step["interval_95"])
    assert f"95 % interval of the step: {low_ms:.1f} to {high_ms:.1f} ms" in text
    row = next(line for line in text.splitlines() if line.lstrip().startswith("step "))
    assert row.split()[3] == f"{step['uncertainty']:.0%}"
    assert data["costs"].get("software") == (software[1].partition("=")[2] if software else None)
    assert ("software=megatron-lm" in text) is bool(software)


@pytest.mark.parametrize("command", [ESTIMATE, SEARCH])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("kernels=slwo.yaml", "slwo.yaml: no such file (got 'slwo.yaml'); did you mean 'slow.yaml'?"),
        ("kernels=h100", "kernels: does not fit a100, the device type that is priced; valid: a100, any (got 'h100')"),
        ("kernels=h100.yaml", "h100.yaml:1: device: does not fit a100, the device type that is priced; valid: a100, any"),
        ("kernels=3", "--set: kernels: must be one name, path or text (got 3)"),
    ],
)
def test_a_file_that_will_not_do_is_refused_with_one_line(refused, work, command, given, message):
    (work / "h100.yaml").write_text(A100[A100.index("device: a100") :].replace("device: a100", "device: h100"))
    assert refused(*command, "--set", given).startswith(message)
