"""No text of a plan or an option becomes a command, whatever it holds, for every target.

Three laws. Scripts run in a sandbox folder with stand-ins for all launchers: the rank's program gets its words, and
nothing else happens. YAML, JSON and Python keep their form. All other files do not change at all.
"""

import ast
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ExportError, MeshwrightError
from meshwright.export import export, targets, write
from meshwright.plans.document import PlacementPlan, Rank

from ..draws import draws

ALL = sorted(targets)
HOSTILE = [
    "$(touch owned)",
    "`touch owned`",
    "; touch owned",
    "&& touch owned",
    "|touch owned",
    "' ; touch owned; '",
    '" ; touch owned "',
    "\ntouch owned\n",
    "\nEND_OF_HOSTS\ntouch owned\n",
    "\nEND_OF_MAP\ntouch owned\n",
    '"""\nimport os; os.system("touch owned")\n"""',
    "'); __import__('os').system('touch owned') #",
    "{{ touch }} ${IFS}touch${IFS}owned",
    "*/\ntouch owned",
    "a: b\n- c",
    "a b",
    "a\tb",
    "$$HOME $(HOME)",
    "#SBATCH --wrap=x",
    "-x",
    "--help",
    "a/../b",
    ".",
    "a:b",
    "%n %s",
    "\\",
    "~",
    "*",
    "ä",
    "\u202egpu",
    "\u2028touch owned",
    "\x00",
    "x" * 300,
]
texts = st.sampled_from(HOSTILE) | st.text(max_size=20)

# What stands in for programs: `show-words` and `python` write down the words that they got, each call into a file of its
# own; a launcher leaves out its options, up to the first word that names a program, and runs the rest as rank 0 would.
RECORDER = 'printf "%s\\0" "$@" >"$SANDBOX/said/$$-$RANDOM"\n'
LAUNCHER = """
while [ $# -gt 0 ]; do
  case "${1##*/}" in bash | env | python | show-words | train.py) exec "$@" ;; esac
  shift
done
"""
REMOTE = 'shift; exec bash -c "$*"\n'
LAUNCHERS = ("srun", "torchrun", "mpirun", "deepspeed", "kubectl")
REMOTES = ("ssh", "pdsh", "remote")

PLAIN: dict[str, dict[str, str | bytes]] = {}
"""Exports of each target's plan, made on first use."""

# Options with which a target writes all that it can.
WHOLE = {"kubernetes": {"kubernetes": "all"}}


@pytest.mark.parametrize("target", ALL)
@given(host=texts.filter(lambda text: not re.fullmatch("[A-Za-z0-9]+([.-][A-Za-z0-9]+)*", text)))
def test_a_hostile_host_name_is_refused_by_the_form_and_by_every_target(plan_for, target, host):
    with pytest.raises(ValueError, match="RFC 1123"):
        Rank(rank=0, host=host, local_rank=0, device=0)
    plan = plan_for(target)
    slipped = [rank.model_copy(update={"host": host}) if rank.host == plan.host_order[0] else rank for rank in plan.ranks]
    update = {"ranks": tuple(slipped), "host_order": (host, *plan.host_order[1:]), "cluster": None}
    with pytest.raises(ExportError, match=r"rank \d+: not a host name by RFC 1123"):
        export(plan.model_copy(update=update), target)


@draws(6)
@given(text=texts.filter(bool), target=st.sampled_from(ALL))
def test_texts_of_a_plan_change_no_more_than_texts(plan_for, text, target):
    plan = plan_for(target)
    options = {"name": "same", **WHOLE.get(target, {})}
    if target not in PLAIN:
        PLAIN[target] = export(plan, target, options)
    plain = PLAIN[target]
    for hostile in _with_texts(plan, text):
        try:
            result = export(hostile, target, options)
        except MeshwrightError:  # what a target reads, such as the names of layers, it may refuse
            assert hostile.job.graph != plan.job.graph
            continue
        assert result.keys() == plain.keys()
        for name, content in result.items():
            if isinstance(content, str):
                assert _form(name, content) == _form(name, plain[name]), name


@draws(12)
@given(job=texts.filter(bool), word=texts, target=st.sampled_from(ALL))
def test_a_command_gets_its_words_as_they_are_and_nothing_else_happens(tmp_path_factory, plan_for, job, word, target):
    plan = _renamed(plan_for(target), job)
    options = {"command": shlex.join(["show-words", word]), "env": shlex.join([f"A={word}"]), **WHOLE.get(target, {})}
    if not word.isprintable():
        with pytest.raises(ExportError, match="control character"):
            export(plan, target, options)
        return
    folder = tmp_path_factory.mktemp("sandbox")
    has_ran, said = _run(plan, export(plan, target, options), folder)
    assert all(words == [word] for words in said)
    assert bool(said) == has_ran
    _check_nothing_else(folder)


@draws(6)
@given(word=texts.filter(str.isprintable), target=st.sampled_from(ALL))
def test_a_script_gets_its_words_as_they_are_and_nothing_else_happens(tmp_path_factory, plan_for, word, target):
    plan = plan_for(target)
    folder = tmp_path_factory.mktemp("sandbox")
    files = export(plan, target, {"script": shlex.join(["./train.py", word])})
    has_ran, said = _run(plan, files, folder)
    own = _own_words(files, folder)
    assert all(words[len(words) - len(own) :] == own for words in said)
    said = [words[: len(words) - len(own)] for words in said]
    assert all(words[-1] == word for words in said)
    assert all(words[:-1] in (["-u", "./train.py"], []) for words in said)
    assert bool(said) == has_ran
    _check_nothing_else(folder)


@pytest.mark.parametrize("target", ALL)
def test_the_sandbox_sees_an_injected_command(tmp_path, plan_for, target):
    """The negative control of the laws above: an injected command leaves its trace in the sandbox or in the form."""
    plan = plan_for(target)
    files = export(plan, target, {"command": "show-words x"})
    for name, content in files.items():
        if isinstance(content, str) and content.startswith("#!") and "bash" in content.splitlines()[0]:
            spoiled = {**files, name: content.replace("set -euo pipefail", "set -euo pipefail\ntouch owned")}
            _run(plan, spoiled, tmp_path)
            with pytest.raises(AssertionError, match="owned"):
                _check_nothing_else(tmp_path)
            return
        if name.endswith((".yaml", ".py")):
            injected = "injected: [touch, owned]\n" if name.endswith(".yaml") else "print('owned')\n"
            assert _form(name, content + injected) != _form(name, content)
            return
    assert all(isinstance(content, bytes) or name.endswith(".json") for name, content in files.items())


def _renamed(plan: PlacementPlan, job: str) -> PlacementPlan:
    return plan.model_copy(update={"job": plan.job.model_copy(update={"name": job})})


def _with_texts(plan: PlacementPlan, text: str) -> Iterator[PlacementPlan]:
    """The plan with a text in every place where a plan takes any; then in the job graph too, where it has one."""
    data = plan.model_dump(mode="json", exclude_none=True)
    data["job"]["name"] = data["why"] = text
    data["predicted"] = [{"name": text, "value": 1.0, "unit": text, "provenance": "measured"}]
    if "cluster" in data:
        data["cluster"]["name"] = text
    yield PlacementPlan.model_validate(data)
    if "graph" in data["job"]:
        graph = data["job"]["graph"] = dict(data["job"]["graph"])
        renamed = {name: f"{text}{number}" for number, name in enumerate(graph["op_names"])}
        graph["name"] = text
        graph["op_names"] = list(renamed.values())
        for stage in data["stages"]:
            stage["ops"] = [renamed[name] for name in stage.get("ops", ())]
        yield PlacementPlan.model_validate(data)


def _form(name: str, content: str) -> Any:
    """A file without its texts: what is left of YAML, JSON and Python is their form; other files are kept as they are."""
    if name == "device_map.json":  # its keys are names of modules
        return set(json.loads(content).values())
    if name == "placement.tsv":  # a name, a tab and a device
        return [line.split("\t")[1:] for line in content.split("\n")]
    if name.endswith(".json"):
        return _shape(json.loads(content))
    if name.endswith((".yaml", ".yml")):
        return [_shape(document) for document in yaml.load_all(content, Loader=yaml.CSafeLoader)]
    if name.endswith(".py"):
        tree = ast.parse(content)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = ""
        return ast.dump(tree)
    return content


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_shape(part) for part in value]
    return str if isinstance(value, str) else value


def _run(plan: PlacementPlan, files: dict[str, str | bytes], folder: Path) -> tuple[bool, list[list[str]]]:
    """Run every script and every container's command of an export; whether there was one, and the words that were said."""
    programs = folder / "bin"
    programs.mkdir()
    (folder / "said").mkdir()
    stand_ins = {"show-words": RECORDER, "python": RECORDER, "train.py": RECORDER}
    stand_ins |= dict.fromkeys(LAUNCHERS, LAUNCHER) | dict.fromkeys(REMOTES, REMOTE)
    for path, body in [*((programs / name, body) for name, body in stand_ins.items()), (folder / "train.py", RECORDER)]:
        path.write_text(f"#!/bin/bash\n{body}")
        path.chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "SANDBOX": str(folder), "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    environment |= {"SLURM_JOB_ID": "1", "SLURM_NTASKS": str(plan.num_ranks), "REMOTE_SHELL": "remote"}
    environment |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURMD_NODENAME": plan.host_order[0]}
    environment |= {f"OMPI_COMM_WORLD_{name}": "0" for name in ("RANK", "LOCAL_RANK", "SIZE")}
    write(files, folder / "out")
    commands: list[list[str]] = []
    for name, content in files.items():
        if isinstance(content, bytes):
            continue
        if content.startswith("#!") and "bash" in content.splitlines()[0]:
            subprocess.run(["bash", "-n", folder / "out" / name], check=True)
            commands.append(["bash", str(folder / "out" / name)])
        if name.endswith((".yaml", ".yml")):
            for document in yaml.load_all(content, Loader=yaml.CSafeLoader):
                commands += [[_expanded(word, environment) for word in command] for command in _commands(document)]
    for command in commands:
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=60, capture_output=True)
    return bool(commands), [path.read_text().split("\0")[:-1] for path in (folder / "said").iterdir()]


def _own_words(files: dict[str, str | bytes], folder: Path) -> list[str]:
    """Words that a target appends to a script's arguments."""
    arguments = files.get("megatron.args")
    if isinstance(arguments, str):
        return [line for line in arguments.splitlines() if not line.startswith("#")]
    for option, name in (("--deepspeed_config", "ds_config.json"), ("--job.config_file", "torchtitan.toml")):
        if name in files:
            return [option, str(folder / "out" / name)]
    return []


def _commands(value: Any) -> Iterator[list[str]]:
    """The command of every container in a document."""
    if isinstance(value, dict):
        if isinstance(value.get("command"), list):
            yield [*value["command"], *value.get("args", ())]
        for part in value.values():
            yield from _commands(part)
    elif isinstance(value, list):
        for part in value:
            yield from _commands(part)


def _expanded(word: str, environment: dict[str, str]) -> str:
    """A word of a container's command as Kubernetes hands it over: ``$(NAME)`` replaced where known, ``$$`` made ``$``."""
    return re.sub(r"\$\$|\$\((\w+)\)", lambda m: "$" if m[0] == "$$" else environment.get(m[1], m[0]), word)


def _check_nothing_else(folder: Path) -> None:
    """Of new files there are the export's own, what was said, and the hostfile that Slurm's script writes."""
    written = set(json.loads((folder / "out" / "export.json").read_text())["files"])
    allowed = {"bin", "out", "said", "train.py", "hosts.1"}
    left = {path.name for path in folder.iterdir()} - allowed
    left |= {path.relative_to(folder / "out").as_posix() for path in (folder / "out").rglob("*") if path.is_file()} - written
    assert not left, f"{sorted(left)} were made in the sandbox ({os.listdir(folder / 'bin')})"
