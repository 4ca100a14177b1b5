"""The Ray driver: what it says, and how it behaves where a stand-in places the bundles. `tests/schedulers` has a real cluster."""

import ast
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ExportError
from meshwright.export import export, read_places, verify, write
from meshwright.plans import Layout

from ..across_hosts import two_stages_of_two_groups
from ..grids import plan_of
from .ray_stand_in import install

NAMES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT")
SHOW = f"bash -c 'echo {' '.join(f'${name}' for name in NAMES)} >>$SAID'"


def test_the_plan_stands_in_the_driver_as_data(make_plan):
    plan = make_plan(["b", "a", "b"], [3, 0, 1])
    text = export(plan, "ray", {"name": "gpt7b", "master_port": 1234, "wait_s": 7.5, "host_label": "meshwright.host"})[
        "driver.py"
    ]
    assert _constants(export(plan, "ray", {"decision": "run-1.b"})["driver.py"])["GROUP"] == "mw:run-1.b"
    assert _constants(text) == {
        "JOB": "gpt7b",
        "GROUP": "",
        "HOST_LABEL": "meshwright.host",
        "WAIT_S": 7.5,
        "MASTER_PORT": 1234,
        "COMMAND": ["python", "-u", "train.py"],
        "RANKS": [("b", 3, {}), ("a", 0, {}), ("b", 1, {})],
    }


def test_the_driver_asks_for_nothing_but_ray(make_plan):
    tree = ast.parse(export(make_plan(["a"]), "ray")["driver.py"])
    imported = {name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - set(sys.stdlib_module_names) == {"ray"}


def test_ranks_with_coordinates_get_the_mesh_and_their_place():
    plan = two_stages_of_two_groups()
    files = export(plan, "ray")
    assert sorted(files) == ["driver.py", "export.json", "mesh.py"]
    assert _constants(files["driver.py"])["RANKS"][17] == ("l0-h0", 1, {"pp": 0, "dp": 1, "cp": 0, "ep": 0, "tp": 1})


def test_a_host_name_too_long_for_a_label_is_refused(make_plan):
    long = ".".join(["x" * 31] * 2)
    assert len(long) == 63
    assert "driver.py" in export(make_plan([long]), "ray")
    with pytest.raises(ExportError, match="rank 1: a label of a Ray node holds at most 63 characters"):
        export(make_plan(["a", f"{long}x"]), "ray")


@pytest.mark.parametrize("options", [{"host_label": ""}, {"host_label": "a b"}, {"wait_s": 0}, {"wait_s": float("inf")}])
def test_impossible_options_are_refused(make_plan, options):
    with pytest.raises(ExportError, match=next(iter(options))):
        export(make_plan(["a"]), "ray", options)


@pytest.mark.parametrize("job", ["gpt", "x" * 300])
def test_the_driver_passes_the_linter(make_plan, tmp_path, job):
    plan = make_plan([f"host-{number:03d}" for number in range(40)], job=job)
    words = shlex.join(["train.py", "long " * 60, "'", '"', "\\"])
    write(export(plan, "ray", {"script": words}), tmp_path / "out")
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check"], ["format", "--check"]):
        subprocess.run(
            [ruff, *command, "--isolated", "--no-cache", "--line-length=130", "driver.py"], cwd=tmp_path / "out", check=True
        )


def test_ranks_get_the_plans_numbers_also_where_hosts_have_unequal_shares(make_plan, tmp_path):
    plan = make_plan(["b", "a", "b", "c", "b"], [2, 0, 0, 1, 1])
    ran, said = _drive(plan, {"command": SHOW}, tmp_path, [["a", 1, 1], ["b", 3, 3], ["c", 2, 2]])
    assert ran.returncode == 0, ran.stderr
    assert said == [
        "0 0 3 5 2,0,1 192.0.2.1 29500",
        "1 0 1 5 0 192.0.2.1 29500",
        "2 1 3 5 2,0,1 192.0.2.1 29500",
        "3 0 1 5 0 192.0.2.1 29500",
        "4 2 3 5 2,0,1 192.0.2.1 29500",
    ]
    # Ray gave GPU 0 of c, where 1 is planned: said by the driver, and seen when its words are held against the plan.
    assert ran.stderr == "driver.py: Ray gave the job GPU 0 of c where rank 3 is planned on 1\n"
    assert verify(plan, "ray", read_places(ran.stdout)).elsewhere.keys() == {3}


def test_ranks_are_told_their_host_and_their_place_in_the_grid(tmp_path):
    plan = plan_of(Layout(tp=2, dp=2, micro_batch=1, global_batch=2))
    names = ("MESHWRIGHT_HOST", "CUDA_DEVICE_ORDER", *(f"MESHWRIGHT_{axis}" for axis in ("PP", "DP", "CP", "EP", "TP")))
    show = f"bash -c 'echo {' '.join(f'${name}' for name in names)} >>$SAID'"
    ran, said = _drive(plan, {"command": show}, tmp_path, [["gpu-08", 2, 2], ["gpu-09", 2, 2]])
    assert (ran.returncode, ran.stderr) == (0, "")
    places = [("gpu-09", 0, 0), ("gpu-09", 0, 1), ("gpu-08", 1, 0), ("gpu-08", 1, 1)]
    assert said == [f"{host} PCI_BUS_ID 0 {dp} 0 0 {tp}" for host, dp, tp in places]
    result = verify(plan, "ray", read_places(ran.stdout))
    assert (result.agrees, result.compared) == (True, ("device", "coordinates", "world"))


def test_bundles_that_cannot_be_placed_are_named(make_plan, tmp_path):
    plan = make_plan(["b", "a", "b", "c", "b", "d"])
    ran, said = _drive(plan, {"command": SHOW, "wait_s": 0.1}, tmp_path, [["a", 1, 1], ["b", 2, 2]])
    reasons = [
        "bundles 0, 2, 4: 3 GPUs are wanted and b has 2",
        "bundles 3: no node carries host=c",
        "bundles 5: no node carries host=d",
    ]
    assert ran.returncode == 1
    assert said == []
    assert ran.stderr == f"driver.py: not placed within 0.1 s: {'; '.join(reasons)}\n"


def test_a_host_whose_devices_others_use_is_named(make_plan, tmp_path):
    plan = make_plan(["a", "b", "b", "b"])
    ran, _ = _drive(plan, {"command": SHOW, "wait_s": 0.1}, tmp_path, [["a", 1, 1], ["b", 2, 4]])
    assert ran.stderr == "driver.py: not placed within 0.1 s: bundles 1-3: GPUs of b are in use\n"


def test_ranks_that_ray_puts_elsewhere_start_nothing(make_plan, tmp_path):
    plan = make_plan(["b", "a"])
    ran, said = _drive(plan, {"command": SHOW}, tmp_path, [["a", 1, 1], ["b", 1, 1]], STAND_IN_SHUFFLED="1")
    assert ran.returncode == 1
    assert said == []
    assert ran.stderr == "driver.py: rank 0 is on a node with host=a, the plan puts it on b\n"


def test_a_ray_without_label_selectors_is_named(make_plan, tmp_path):
    ran, said = _drive(make_plan(["a"]), {"command": SHOW}, tmp_path, [["a", 1, 1]], STAND_IN_OLD="1")
    assert (ran.returncode, said) == (1, [])
    assert ran.stderr == "driver.py: Ray 2.0 knows no label selectors of bundles; a release after January 2026 does\n"


def test_two_nodes_with_one_hosts_label_start_nothing(make_plan, tmp_path):
    ran, said = _drive(make_plan(["a", "a"]), {"command": SHOW}, tmp_path, [["a", 1, 1], ["a", 1, 1]])
    assert (ran.returncode, said) == (1, [])
    assert ran.stderr == "driver.py: rank 1: two nodes carry host=a\n"


def test_a_rank_that_fails_and_a_cluster_that_is_absent_end_the_driver_with_1(make_plan, tmp_path):
    ran, _ = _drive(make_plan(["a"]), {"command": "bash -c 'exit 5'"}, tmp_path, [["a", 1, 1]])
    assert (ran.returncode, ran.stderr) == (1, "driver.py: rank 0 on a ended with status 5\n")
    ran, _ = _drive(make_plan(["a"]), {"command": "true"}, tmp_path, [["a", 1, 1]], RAY_ADDRESS="nowhere")
    assert (ran.returncode, ran.stderr) == (1, "driver.py: no Ray cluster to connect to: nobody answers\n")


HOSTILE = ["'''", '"""', "\\", "{0}", "%s", "'; import os; os.abort() #", "$(touch owned)", "# THE PLAN", "\U0001f600", "-c"]


@given(word=st.sampled_from(HOSTILE) | st.text().filter(str.isprintable))
def test_hostile_words_are_data(make_plan, word):
    text = export(make_plan(["a"], job=word or "x"), "ray", {"command": shlex.join(["show", word])})["driver.py"]
    assert _constants(text)["COMMAND"] == ["show", word]


def _constants(text: str) -> dict[str, object]:
    """The values at the driver's top level."""
    result = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            result[node.targets[0].id] = ast.literal_eval(node.value)
    return result


def _drive(plan, options, folder: Path, nodes, **variables) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the driver on nodes that the stand-in plays; what the ranks wrote down, line by line."""
    write(export(plan, "ray", options), folder / "out")
    if not (folder / "stand-in").exists():
        install(folder / "stand-in")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "stand-in"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"STAND_IN_NODES": json.dumps(nodes), "SAID": str(folder / "said")} | variables
    driver = [sys.executable, "out/driver.py"]
    ran = subprocess.run(driver, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    said = folder / "said"
    return ran, said.read_text().splitlines() if said.exists() else []
