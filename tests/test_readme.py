import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_the_python_example_runs_as_printed(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "cheapest-feasible chose 8 ranks" in done.stdout
    assert "--rdzv-backend=static" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_every_file_that_the_readme_names_is_there():
    named = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"`((?:configs|planners)/[^` ]*)`", README)
    assert len(named) >= 6
    for name in named:
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^    \.venv/bin/meshwright (\w+)", README, re.M))))
def test_every_command_that_the_readme_names_knows_the_options_beside_it(command):
    from typer.main import get_command

    from meshwright.cli.app import app

    named = get_command(app).commands[command]
    each = [named, *getattr(named, "commands", {}).values()]
    known = {option for one in each for parameter in one.params for option in parameter.opts}
    lines = re.findall(rf"^    \.venv/bin/meshwright {command} (.*)$", README, re.M)
    for option in re.findall(r"--[a-z-]+", " ".join(lines)):
        assert option in known, option


@pytest.mark.slow
def test_the_results_table_is_what_the_shipped_network_reaches():
    from meshwright.envs.benchmark import load_benchmark
    from meshwright.evaluation.evaluate import evaluate

    policies = ["shipped:quickstart", "scores:shipped:quickstart"]
    result = {row["policy"]: row for row in evaluate(load_benchmark("quickstart"), policies).results["rows"]}
    rows = re.findall(r"^\| ((?:\*\*|`).*?) \| ([0-9.]+) \[", README, re.M)
    printed = {name: rate for cell, rate in rows for name in re.findall(r"(?<!\()(?:\*\*|`)([^*`]+)(?:\*\*|`)", cell)}
    assert len(printed) == len(result)
    for name, value in printed.items():
        row = result["shipped:quickstart" if name == "trained network" else name]
        assert f"{100 * row['metrics']['blocking_rate']['mean']:.1f}" == value, name


def test_no_placeholder_is_left():
    assert not re.search(r"^[A-Z]{5,}$", README, re.M)
