"""Laws of commands that succeed: status 0, tables for people on one stream, JSON for programs alone on the other."""

import json
import re
import shlex
import shutil
import tomllib
from contextlib import chdir
from pathlib import Path

import pytest
import yaml

from meshwright import __version__, load_plan
from meshwright.cli import key_models, run_command_line
from meshwright.cli.app import app
from meshwright.costs.settings import CostSettings

from .conftest import GOOD

pytestmark = pytest.mark.usefixtures("undrawn")

PLAN = ("plan", "--job", "graph.txt", "--cluster", "cluster.yaml")
EVALUATE = ("evaluate", "--benchmark", "benchmark.yaml")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A folder of the small evaluation, one seed."""
    folder = tmp_path_factory.mktemp("evaluated")
    for name in ("cluster.yaml", "workload.yaml", "benchmark.yaml"):
        (folder / name).write_text(GOOD[name])
    with chdir(folder):
        assert run_command_line([*EVALUATE, "--seeds", "1", "--out", "found"]) == 0
    return folder / "found"


def command_lines():
    """Every command of the program as typer knows it, the groups too."""
    from typer.main import get_command

    def below(command, words):
        yield words
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(inner, (*words, name))

    return list(below(get_command(app), ()))


def test_every_command_explains_itself_within_eighty_columns(meshwright, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in command_lines():
        result = meshwright(*words, "--help")
        assert (result.status, result.err) == (0, "")
        assert result.out.startswith(" ".join(("Usage: meshwright", *words)))
        assert max(map(len, result.out.splitlines())) <= 80
        assert "..." not in result.out.partition("Commands:")[2]  # no description is cut off
        assert meshwright(*words, "-h") == result
        assert len(result.out.splitlines()) <= 40
        assert "\n  Examples:\n    meshwright " in result.out


def test_examples_of_helps_that_need_no_files_run(meshwright):
    texts = [meshwright(*words, "--help").out.replace("\\\n", " ") for words in command_lines()]
    lines = {line.strip() for text in texts for line in text.splitlines() if line.startswith("    meshwright ")}
    quick = [
        shlex.split(line)[1:]
        for line in lines
        if re.match(r" *meshwright (estimate|compare|list|cluster show|plan --job) ", line)
    ]
    run = [words for words in quick if not any(re.search(r"\.(json|yaml|db|txt)$", word) for word in words)]
    assert {words[0] for words in run} == {"estimate", "compare", "list", "cluster"}
    for words in run:
        assert meshwright(*words).status == 0, words


def test_commands_and_options_stay_few():
    """The figures of ``tests/budget.toml`` only fall; an option counts once for each command that takes it."""
    from typer.main import get_command

    def num_options(command):
        inner = getattr(command, "commands", {}).values()
        return sum(param.param_type_name == "option" for param in command.params) + sum(map(num_options, inner))

    allowed = tomllib.loads((Path(__file__).parents[1] / "budget.toml").read_text())["command_line"]
    program = get_command(app)
    assert {"commands": len(program.commands), "options": num_options(program)} == allowed


def test_the_rest_of_the_options_and_all_keys_are_shown_on_request(meshwright):
    reported = meshwright("plan", "--help-all").out
    assert "--sequence-length N" in reported
    assert "--sequence-length" not in meshwright("plan", "--help").out
    models = [getattr(key_models, name) for name in ("JobKeys", "PolicyKeys", "SearchKeys", "OpKeys", "StageKeys")]
    for name in [key for model in (*models, CostSettings) for key in model.model_fields]:
        assert re.search(rf"\n  {name}\s+\w", reported)


def test_every_key_says_what_it_is():
    for name, model in vars(key_models).items():
        if name.endswith("Keys"):
            assert all(field.description for field in model.model_fields.values()), name


def test_no_words_at_all_mean_help(meshwright):
    assert meshwright() == meshwright("--help")


def test_the_version_is_the_packages(meshwright):
    result = meshwright("--version")
    assert (result.status, result.out, result.err) == (0, f"meshwright {__version__}\n", "")


def test_a_plan_is_shown_saved_and_loaded_again(meshwright, work):
    result = meshwright(*PLAN, "--json", "plan.json", "--trace", "trace.json")
    assert (result.status, result.err) == (0, "")
    assert "Candidates for" in result.out
    assert result.out.endswith("written: plan.json\nwritten: trace.json\n")
    plan = load_plan(work / "plan.json")
    assert plan.cluster is not None
    assert (plan.num_ranks, plan.cluster.name) == (2, "pair")
    assert plan.why is not None
    assert plan.why in " ".join(result.out.split())
    assert {event["ph"] for event in json.loads((work / "trace.json").read_text())["traceEvents"]} >= {"M", "X"}


def test_choices_of_the_cost_model_need_no_search(meshwright, refused, work):
    (work / "costs.yaml").write_text("overlap_slowdown: 3.0\n")

    def step_s(*options):
        data = json.loads(meshwright(*PLAN, "--policy", "fixed-2", "--json", "-", *options).out)
        return next(figure["value"] for figure in data["predicted"] if figure["name"] == "step_s")

    slower_s = step_s("--set", "overlap_slowdown=3.0")
    assert slower_s > step_s() == step_s("--set", "overlap_slowdown=1.0")
    assert step_s("--set", "overlap_slowdown=3") == step_s("--set", "costs.yaml") == slower_s
    assert step_s("--set", "collectives=tree") == step_s("--set", "collectives=tree")
    assert "priced with collectives=tree" in " ".join(meshwright(*PLAN, "--set", "collectives=tree").out.split())
    assert "kernels: is read where layouts of transformers are priced" in refused(*PLAN, "--set", "kernels=a100")
    assert refused(*PLAN, "--set", "overlap_slowdwn=3").startswith("--set: overlap_slowdwn: unknown key")


def test_the_plan_on_standard_output_is_the_one_in_a_file(meshwright, work):
    meshwright(*PLAN, "--json", "plan.json")
    result = meshwright(*PLAN, "--json", "-")
    assert result.status == 0
    assert result.out == (work / "plan.json").read_text()
    assert "Candidates for" in result.err


def test_an_evaluation_prints_tables_or_json_never_both_on_one_stream(meshwright, work):
    table = meshwright(*EVALUATE, "--json", "results.json")
    assert (table.status, table.err) == (0, "")
    assert "blocked, %" in table.out
    both = meshwright(*EVALUATE, "--json", "-")
    assert both.status == 0
    assert "blocked, %" in both.err
    printed, saved = json.loads(both.out), json.loads((work / "results.json").read_text())
    assert {**printed, "timing": None} == {**saved, "timing": None}
    assert {row["policy"] for row in printed["rows"]} == {"max", "min"}


def test_references_are_shown_beside_the_policies(meshwright):
    result = meshwright(*EVALUATE, "linear-programme", "clairvoyant-beam-8", "--json", "-")
    assert result.status == 0
    assert "reference" in result.err
    kinds = {row["policy"]: row["kind"] for row in json.loads(result.out)["rows"]}
    assert {name for name, kind in kinds.items() if kind == "reference"} == {"linear-programme", "clairvoyant-beam-8"}


def test_evaluations_below_a_folder_are_summarised_on_one_page(meshwright, refused, trained, evaluated, work):
    shutil.copytree(evaluated, work / "runs" / "plain")
    assert meshwright(*EVALUATE, f"network:{trained}", "--seeds", 1, "--out", "runs/mine").status == 0
    assert "did you mean 'network:run'" in refused("evaluate", "--summarise", "runs", "--against", "network:rum")
    result = meshwright("evaluate", "--summarise", "runs", "--against", "network:run", "--out", "page", "--json", "-")
    assert result.status == 0
    assert json.loads(result.out)["tables"]["Blocked jobs, % (cluster)"]["head"] == ["policy", "small"]
    assert sorted(path.name for path in (work / "page").iterdir()) == ["summary.html", "summary.md"]
    assert "| max, min |" in (work / "page" / "summary.md").read_text()
    (work / "none").mkdir()
    assert "nothing below it was evaluated" in refused("evaluate", "--summarise", "none")
    assert "no such folder" in refused("evaluate", "--summarise", "absent")


def test_an_unknown_reference_is_refused_before_anything_is_played(refused):
    assert "did you mean 'linear-programme'" in refused(*EVALUATE, "linear-program")


def test_an_evaluated_folder_is_exported_whole_and_evaluated_again(meshwright, evaluated, work):
    shutil.copytree(evaluated, work / "found")
    result = meshwright("export", "found", "--format", "slurm", "--out", "found/export/slurm", "--json", "-")
    assert result.status == 0
    plans = json.loads((work / "found" / "plans" / "index.json").read_text())["plans"]
    assert sorted(json.loads(result.out)["written"]) == plans
    assert "plans written for slurm to found/export/slurm" in result.err
    again = meshwright(*EVALUATE, "--set", "scenario.num_jobs=5", "--out", "found")
    assert again.out.endswith("written: found\nremoved, an export of the plans before: found/export/slurm\n")
    assert not (work / "found" / "export").exists()


def test_training_tells_where_its_run_lies(meshwright, trained, work):
    result = meshwright("train", "train.yaml", "--out", "run", "--json", "-")
    assert result.status == 0
    assert json.loads(result.out)["run"] == "run"
    assert "validation blocking rate" in result.err
    assert yaml.safe_load((work / "run" / "config.yaml").read_text())["total_steps"] == 32


def test_the_formats_are_listed_with_what_they_do_not_promise(meshwright):
    result = meshwright("export", "--list")
    assert (result.status, result.err) == (0, "")
    for name in ("slurm", "kubernetes", "torchrun"):
        assert f"{name}: " in result.out
    both = meshwright("export", "--list", "--json", "-")
    assert all(entry["not_guaranteed"] for entry in json.loads(both.out).values())
    assert both.err == result.out
    assert json.loads(both.out)["tensorflow"]["keys"] == ["name"]
    assert "\n  --set name, modules\n" in result.out


@pytest.mark.parametrize("command", [PLAN, EVALUATE], ids=lambda command: command[0])
def test_without_a_terminal_no_progress_appears(meshwright, command):
    result = meshwright(*command)
    assert result.err == ""
    assert "\x1b" not in result.out
    assert "━" not in result.out


def test_a_result_for_the_null_device_leaves_it_a_device(meshwright, work):
    import stat

    assert meshwright(*PLAN, "--json", "/dev/null").status == 0
    assert stat.S_ISCHR((work / "/dev/null").stat().st_mode)


FAMILY = """variants:
  rare: [scenario.workload_changes.arrivals.interarrival_s=40]
  often: [scenario.workload_changes.arrivals.interarrival_s=10]
"""


def test_all_variants_of_a_family_are_evaluated_and_shown_side_by_side(meshwright, work):
    (work / "benchmark.yaml").write_text((work / "benchmark.yaml").read_text() + FAMILY)
    result = meshwright(*EVALUATE, "--out", "found", "--json", "family.json")
    assert result.status == 0
    data = json.loads((work / "family.json").read_text())
    assert [one["about"]["mean_interarrival_s"] for one in data["variants"]] == [40, 10]
    for name, one in zip(("rare", "often"), data["variants"], strict=True):
        assert one == json.loads((work / "found" / name / "results.json").read_text())
        assert (work / "found" / name / "report.html").is_file()
    page = (work / "found" / "summary.html").read_text()
    assert "Blocking rate against load" in page
    assert "small/often" in page
    assert not (work / "found" / "results.json").exists()  # a summary of the folder counts each variant once
    assert meshwright(*EVALUATE, "--seeds", "1", "--out", "found").status == 0  # the folder is one of its own kind


def test_one_variant_is_evaluated_as_a_benchmark(meshwright, work):
    (work / "benchmark.yaml").write_text((work / "benchmark.yaml").read_text() + FAMILY)
    result = meshwright("evaluate", "--benchmark", "benchmark.yaml/often", "--json", "-")
    assert json.loads(result.out)["benchmark"] == "small/often"
    assert json.loads(result.out)["about"]["mean_interarrival_s"] == 10


def test_what_does_not_fit_the_last_variant_is_told_before_the_first_is_played(refused, work):
    variants = FAMILY + "  alone: [scenario.max_degree=1]\n"
    (work / "benchmark.yaml").write_text((work / "benchmark.yaml").read_text() + variants)
    assert "no block of 2 devices" in refused(*EVALUATE, "fixed-2", "--out", "found")


def test_a_trace_is_named_on_the_command_line(meshwright, refused, work):
    assert "--trace: jobs of this workload do not arrive as a trace" in refused(*EVALUATE, "--trace", "philly.csv")
    text = (work / "workload.yaml").read_text().replace("steps: {kind: fixed, num_steps: 1000}\n", "")
    arrivals = "{kind: trace, offered_load: 0.5, num_devices: 2}"
    (work / "workload.yaml").write_text(text.replace("{kind: fixed, interarrival_s: 20.0}", arrivals))
    assert "give its CSV file with --trace FILE" in refused(*EVALUATE)
    assert "philly.csv: no such file" in refused(*EVALUATE, "--trace", "philly.csv")
    rows = "".join(f"2017-10-09 {i // 60:02}:{i % 60:02}:00,{30 + i},2\n" for i in range(100))
    (work / "philly.csv").write_text("timestamp,duration,num_gpus\n" + rows)
    assert meshwright(*EVALUATE, "--trace", "philly.csv").status == 0
