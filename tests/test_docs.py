import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from meshwright.cli.app import app
from meshwright.cli.commands.evaluate import evaluate_policies
from meshwright.clusters import load_cluster
from meshwright.costs.collectives.choice import ALGORITHMS
from meshwright.costs.settings import Collectives, CostSettings
from meshwright.evaluation.metrics import LESS, METRICS
from meshwright.evaluation.validation.flows import validate
from meshwright.export import export
from meshwright.jobs import load_graph
from meshwright.jobs.readers.model_families import families
from meshwright.jobs.zoo.catalogue import zoo_names
from meshwright.planners.rules import DEGREES, NAMES, rule_of_thumb
from meshwright.plans import load_plan
from meshwright.plans.partition import Layout

from .tree import built

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.S | re.M)


def test_the_clusters_of_the_page_load(tmp_path):
    for number, text in enumerate(blocks("formats.md", "yaml")):
        (tmp_path / f"{number}.yaml").write_text(text)
    mixed, torus, optical = (load_cluster(str(tmp_path / f"{number}.yaml")) for number in range(3))
    assert [device.name for device in mixed.device_types] == ["h100", "a100-40gb"]
    assert (torus.num_devices, torus.num_hosts) == (32, 8)
    assert torus.device_name(7) == "gpu-02/3"
    assert (optical.num_devices, optical.topology.ports_per_host) == (32, 4)


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
    text = built("formats.md")
    for name, field in CostSettings.model_fields.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert row.split("|")[2].strip().strip("`").startswith(str(field.default)), name


def test_a_graph_of_other_sizes_is_saved_as_printed(tmp_path, monkeypatch):
    (code,) = blocks("formats.md", "python")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert load_graph(str(tmp_path / "gpt2-64x512.json")).samples_per_step == 64


def test_every_family_of_hugging_face_models_has_a_row_and_every_row_is_read():
    table = (DOCS / "formats.md").read_text().split("| `model_type` | models |")[1].split("\n\n")[0]
    first = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert sorted(re.findall(r"`(\w+)`", " ".join(first))) == list(families())


def test_every_metric_has_its_unit_sign_and_worlds():
    page = built("formats.md")
    for name, one in METRICS.items():
        row = re.search(rf"^\|[^|]*`{name}`[^|]*\|(.*)\|$", page, re.M)
        assert row, name
        assert row[1].strip() == f"{one.unit or '-'} | {'less' if one.sign == LESS else 'more'} | {', '.join(one.worlds)}", name


def test_every_collective_that_may_be_chosen_is_named():
    text = built("formats.md")
    (row,) = [line for line in text.splitlines() if line.startswith("| `collectives` |")]
    names = set(get_args(Collectives))
    assert names == {*ALGORITHMS, "auto"}
    assert names <= set(re.findall(r"`([^`]+)`", row)), names - set(re.findall(r"`([^`]+)`", row))


def registered(command, before=()):
    """Names of a command, or of those below it, as typed."""
    below = getattr(command, "commands", None)
    if below is None:
        return {" ".join(before)}
    return set().union(*(registered(one, (*before, name)) for name, one in below.items()))


def listed(spelling):
    """Names of the commands that a spelling of the page means: `state add\\|drain` two, arguments and options left out."""
    result = [""]
    for word in spelling.split():
        if not re.fullmatch(r"[a-z][a-z-]*(\\\|[a-z][a-z-]*)*", word):
            break
        result = [f"{name} {part}".strip() for name in result for part in word.split("\\|")]
    return result


def test_every_command_is_listed_and_every_listed_one_is_registered():
    from typer.main import get_command

    table = built("command-line.md").split("\n## ")[0]
    rows = re.findall(r"^\| `meshwright ([^`]+)` \|", table, re.M)
    assert listed("state show\\|add FILE") == ["state show", "state add"]
    assert {name for row in rows for name in listed(row)} == registered(get_command(app)) | {"serve"}


def test_every_key_of_a_layout_is_named():
    text = built("formats.md")
    for name in Layout.model_fields:
        assert f"\n| `{name}` | " in text, name


def test_every_rule_of_thumb_is_in_the_table_and_in_both_helps_and_each_spelling_there_is_one():
    table = (DOCS / "command-line.md").read_text().split("## Policies\n\n")[1].split("\n\n")[0]
    spelled = [name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    others = {"best-fixed", "NAME@best-fit"} | {name for name in spelled if re.search(r"[:.(]", name)}
    rules = [name for name in spelled if name not in others]
    for name in rules:
        assert rule_of_thumb(name, degrees=(2, 4, 8), placements=("first-fit",)).name == name
    kinds = {name for name in re.split(r"\W+", DEGREES) if name in ("fixed", "ladder")}
    assert {name for name in rules if not name[-1].isdigit()} == set(NAMES)
    assert {name.partition("-")[0] for name in rules if name[-1].isdigit()} == kinds
    for text in (rule_of_thumb.__doc__, evaluate_policies.__doc__):
        for name in (*NAMES, *(f"{kind}-K" for kind in kinds)):
            assert re.search(rf"(?<![\w-]){name}(?!\w)", text), name


def defined_in(path):
    """Names that a file defines: functions, classes, `Class.method` and constants."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            names |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return names


def test_every_folder_that_the_architecture_names_is_there_and_none_is_left_out():
    rows = re.findall(r"^\| (`.*)$", (DOCS / "architecture.md").read_text(), re.M)
    front = ROOT / "src" / "meshwright"
    named = set()
    for row in rows:
        first, *others = re.findall(r"`([\w/]+)/`", row)
        named |= {front / first} | {front / first / other for other in others}
    for folder in named:
        assert folder.is_dir(), folder
    floors = [path for path in front.iterdir() if path.is_dir() and path.name not in ("configs", "__pycache__")]
    packages = {init.parent for floor in floors for init in floor.rglob("__init__.py")}
    assert packages <= named, packages - named


COLUMNS = ("where", "registered", "looked through", "test")


def changes():
    """Kinds of change that the architecture names: of each the column, the path and the names in brackets behind it."""
    text = (DOCS / "architecture.md").read_text().split("## Where a change goes\n")[1].split("\n## ")[0]
    result = {}
    for row in re.findall(r"^\| an? .*$", text, re.M)[1:]:
        change, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        assert change not in result
        result[change] = [
            (word, path, re.findall(r"`([^`]+)`", names))
            for word, cell in zip(COLUMNS, cells, strict=True)
            for path, names in re.findall(r"`([\w./-]+)`(?: \(([^)]*)\))?", cell)
        ]
    return result


def place(named):
    """A path of the page in the tree: most start in the package."""
    within = ROOT / "src" / "meshwright" / named
    return (within if within.exists() else ROOT / named).resolve()


def test_each_change_has_a_place_and_a_test_and_all_paths_and_names_are_there():
    assert len(changes()) >= 30
    for change, rows in changes().items():
        assert {"where", "test"} <= {word for word, _, _ in rows}, change
        for word, named, names in rows:
            path = place(named)
            assert path.is_dir() if named.endswith("/") else path.is_file(), (change, named)
            check_names(change, word, path, names)


def check_names(change, word, path, names):
    """Other paths are there, beside the row's or from the top; names are in the row's file, defined where they register."""
    folder = path if path.is_dir() else path.parent
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    for name in names:
        where = (change, path.relative_to(ROOT).as_posix(), name)
        if name.endswith(("/", ".py", ".md", ".json", ".yaml")):
            assert list(folder.glob(name)) or place(name).exists() or (folder.parent / name).is_dir(), where
        elif path.suffix == ".py" and word != "test" and re.fullmatch(r"\w+", name):
            assert name in defined_in(path) | fields_in(path), where
        else:
            assert any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", file.read_text()) for file in files), where


def fields_in(path):
    """Fields of the classes of a file."""
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    return {part.target.id for node in classes for part in node.body if isinstance(part, ast.AnnAssign)}


def test_no_line_of_a_page_begins_as_a_comment_of_myst():
    assert not [page for page in (ROOT / "docs").glob("*.md") if "\n%" in page.read_text()]


def test_the_architecture_is_a_page():
    assert len((DOCS / "architecture.md").read_text().splitlines()) <= 250


def test_the_folders_that_the_architecture_calls_full_are_the_full_ones():
    text = (DOCS / "architecture.md").read_text().split("These are full:\n")[1].split("A new file there")[0]
    roots = ("src/meshwright", "envs", "models", "training", "evaluation")
    packages = {init.parent.resolve() for root in roots for init in (ROOT / root).rglob("__init__.py")}
    full = {package for package in packages if sum(path.name != "__init__.py" for path in package.glob("*.py")) >= 15}
    assert sorted(text.split()) == sorted(path.relative_to(ROOT).as_posix().removeprefix("src/meshwright/") for path in full)


def test_each_walk_names_files_and_functions_that_are_there():
    text = (DOCS / "architecture.md").read_text().split("## The way of a decision\n")[1].split("\n## ")[0]
    walks = text.split("\n### ")[1:]
    assert len(walks) == 3
    for walk in walks:
        steps = re.findall(r"^\d+\. ", walk, re.M)
        assert 8 <= len(steps) <= 14
        named = re.findall(r"`([\w/]+\.py)`(?:\s+\(((?:`[\w.]+`(?:,\s+)?)+)\))?", walk)
        assert len(named) >= len(steps)
        for path, functions in named:
            expected = set(re.findall(r"`([\w.]+)`", functions))
            assert expected <= defined_in(ROOT / "src" / "meshwright" / path), path


def test_the_glossary_has_at_most_thirty_words_of_one_sentence_each():
    text = (DOCS / "glossary.md").read_text()
    entries = re.findall(r"^(\S.*)\n: ((?:.+\n)+)", text, re.M)
    assert 20 <= len(entries) <= 30
    assert len({word.lower() for word, _ in entries}) == len(entries) == len(re.findall(r"^: ", text, re.M))
    for word, meaning in entries:
        assert meaning.rstrip().endswith("."), word
        assert not re.search(r"[.!?]\s+[A-Z]", meaning), word


def test_each_file_to_copy_from_is_there_and_has_a_place_in_the_architecture():
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Where a change goes\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, re.M)[1:]
    named = {place(path) for rows_of in changes().values() for _, path, _ in rows_of}
    assert len(rows) >= 20
    for what, copied in rows:
        (source,) = re.findall(r"`([\w./]+/[\w./]+)`", copied)
        assert (ROOT / source).is_file(), source
        assert any(ROOT / source == path or path in (ROOT / source).parents for path in named), what


FAULTY = {
    "page.md": ("A page that is fine, `told` in code too.\n", []),
    "word.md": ("The text tells it.\n", ["'tells'"]),
    "opens.md": ("Fine. What follows is not.\n", ["What"]),
    "long.md": ("- " + "word " * 26 + "\n", ["26 words"]),
    "table.md": ("| " + "word " * 26 + "|\n", []),
    "doc.py": ('"""Stands beside."""\n', ["'Stands'", "'beside'"]),
    "entries.py": ('"""One.\n\n    Args:\n        a: ' + "word " * 14 + "\n        b: " + "word " * 14 + '"""\n', []),
    "field.py": ('A = 1\n"""' + "word " * 26 + '"""\n', ["26 words"]),
    "text.py": ('print(f"{1} is told")\n', ["'told'"]),
    "key.py": ('found = {"told": 1}\n', []),
}


@pytest.mark.parametrize("name", FAULTY)
def test_the_lint_finds_words_and_long_sentences_where_people_read_them(tmp_path, name):
    text, faults = FAULTY[name]
    (tmp_path / name).write_text(text)
    ran = subprocess.run([sys.executable, ROOT / ".ci" / "plain_words.py", tmp_path / name], capture_output=True, text=True)
    assert ran.returncode == bool(faults)
    assert [fault for fault, line in zip(faults, ran.stderr.splitlines(), strict=True) if fault not in line] == []
