"""Spellings of 0.1: each still works, and prints the one that replaces it."""

import shlex

import pytest

from meshwright.cli.aliases import COMMANDS, OPTIONS, renamed

OLD = {
    "place --job zoo:gnmt --by linear --budget-ms 100 --forward-only": (
        "plan --ops --job zoo:gnmt --policy linear --budget-s 0.1 --set forward_only=true"
    ),
    "arrange m.json --stages 4 --solver chain --pp-bytes 3": (
        "plan --stages m.json --set num_stages=4 --policy chain --set activation_bytes=3"
    ),
    "sweep s.yaml --trials 3 --budget-s 90": "train --sweep s.yaml --set trials=3 --minutes 1.5",
    "summarise runs --out page": "evaluate --summarise runs --out page",
    "token --file tokens": "serve token --file tokens",
    "slurm-hooks --socket /run/s --out hooks": "serve hooks --server unix:/run/s --out hooks",
    "decisions d-1 --server http://a": "history decisions d-1 --state http://a",
    "observe d-1 steps.jsonl --state now.db": "history observe d-1 steps.jsonl --state now.db",
    "calibration --state now.db": "history calibration --state now.db",
    "replay --state now.db --queue 0 --as-served": "history replay --state now.db --set queue=0 --set as_served=true",
    "validate strategies --only even --reference data": "dev validate strategies --set 'only=[even]' --set reference=data",
    "calibrate measure --quick --out a.yaml": "dev calibrate measure --set quick=true --out a.yaml",
    "state from-slurm --by json --state now.db": "state read slurm:json --state now.db",
    "state from-kubernetes --context a --state now.db": "state read kubernetes --set context=a --state now.db",
    "state from-ray --state now.db": "state read ray --state now.db",
    "plan --job a --costs c.yaml --collectives=ring --live http://a": (
        "plan --job a --set c.yaml --set collectives=ring --state http://a"
    ),
    "evaluate max --references a,b --ray local:2": "evaluate max a b --jobs local:2",
    "serve --host ::1 --port 0 --name a --no-feedback": "serve --set 'names=[a]' --set feedback=false --listen ::1:0",
    "submit --job a --server http://a --time 3 -- place --by x": (
        "submit --job a --state http://a --set time_minutes=3 -- place --by x"
    ),
}


@pytest.mark.parametrize("old", OLD)
def test_an_old_spelling_is_read_as_the_one_that_replaces_it(old):
    made, remark = renamed(shlex.split(old))
    assert made == shlex.split(OLD[old])
    assert OLD[old] in remark
    assert renamed(made) == (made, None)


def test_every_old_command_is_covered():
    assert {name for name in COMMANDS if any(f"{old} ".startswith(f"{name} ") for old in OLD)} == set(COMMANDS)


def test_no_replaced_option_is_one_of_today():
    from typer.main import get_command

    from meshwright.cli.app import app

    from .test_commands import command_lines

    program = get_command(app)
    for words in command_lines():
        command = program
        for word in words:
            command = command.commands[word]
        for option in OPTIONS.get(" ".join(words), {}):
            assert option not in {name for param in command.params for name in param.opts}, (words, option)


def test_an_old_command_works_and_prints_the_new_one(meshwright, work):
    done = meshwright("place", "--job", "zoo:alexnet", "--cluster", "preset:toy", "--by", "heft", "--json", "old.json")
    assert done.status == 0
    assert done.err.startswith("meshwright: this is now: meshwright plan --ops --job zoo:alexnet")
    assert meshwright("plan", "--ops", *done.err.split("--ops ")[1].partition(";")[0].replace("old", "new").split()).err == ""
    assert (work / "old.json").read_text() == (work / "new.json").read_text()
