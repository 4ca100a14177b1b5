import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.clusters import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.evaluation.validation.flows import validate
from meshwright.export import export
from meshwright.jobs import load_graph
from meshwright.jobs.zoo.catalogue import zoo_names
from meshwright.plans import load_plan

DOCS = Path(__file__).resolve().parents[1] / "docs"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.S | re.M)


def test_the_torus_loads_with_its_host_names(tmp_path):
    (text,) = blocks("formats.md", "yaml")
    (tmp_path / "torus.yaml").write_text(text)
    cluster = load_cluster(str(tmp_path / "torus.yaml"))
    assert (cluster.num_devices, cluster.num_hosts) == (32, 8)
    assert cluster.device_name(7) == "gpu-02/3"


def test_the_plan_by_hand_is_exported_and_no_key_of_it_can_be_left_out(tmp_path):
    text = next(text for text in blocks("formats.md", "json") if "ranks" in text)
    (tmp_path / "plan.json").write_text(text)
    for target in ("slurm", "kubernetes", "torchrun"):
        assert export(load_plan(tmp_path / "plan.json"), target)
    data = json.loads(text)
    for part in (data, data["job"], data["ranks"][0]):
        for key in list(part):
            value = part.pop(key)
            (tmp_path / "plan.json").write_text(json.dumps(data))
            with pytest.raises(Exception, match="the key is missing"):
                load_plan(tmp_path / "plan.json")
            part[key] = value


def test_the_flows_finish_as_the_page_says(tmp_path):
    text = next(text for text in blocks("formats.md", "json") if "flows" in text)
    (tmp_path / "flows.json").write_text(text)
    assert validate([tmp_path / "flows.json"]).agrees


def test_every_job_of_the_zoo_is_named_with_its_batch():
    text = (DOCS / "formats.md").read_text()
    for name in zoo_names():
        (row,) = [line for line in text.splitlines() if line.startswith("| ") and re.search(rf"`(zoo:)?{name}`", line)]
        assert re.match(rf"{load_graph(f'zoo:{name}').samples_per_step}\b", row.split("|")[2].strip()), name


def test_every_switch_of_the_cost_model_is_named_with_its_default_first():
    text = (DOCS / "formats.md").read_text()
    for name, field in CostSettings.model_fields.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert row.split("|")[2].strip().strip("`").startswith(str(field.default)), name


def test_a_graph_of_other_sizes_is_saved_as_printed(tmp_path):
    (code,) = blocks("formats.md", "python")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert load_graph(str(tmp_path / "gpt2-64x512.json")).samples_per_step == 64
