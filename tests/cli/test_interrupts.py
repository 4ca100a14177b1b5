import shlex
import signal

import pytest

from meshwright.cli import run_command_line
from meshwright.cli.interrupts import remembered


def test_an_interrupt_that_was_swallowed_is_raised_again_at_the_next_check():
    before = signal.getsignal(signal.SIGINT)
    with remembered() as check:
        check()
        with pytest.raises(KeyboardInterrupt):  # as a library's destructor would swallow it
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_process_that_ignores_interrupts_goes_on_ignoring_them():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with remembered() as check:
            signal.raise_signal(signal.SIGINT)
            check()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("more", [(), ("--seeds", "0,1")])
def test_a_training_that_is_interrupted_says_by_which_command_it_goes_on(work, monkeypatch, capsys, more):
    with monkeypatch.context() as once:
        if more:
            once.setattr("meshwright.training.seeds.train_seed", _interrupt)
        else:
            once.setattr("meshwright.training.hooks.lines.LineWriter.on_validation", _interrupt)
        assert run_command_line(["train", "train.yaml", "--out", "a run", *more]) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("meshwright: interrupted; to resume: meshwright train --resume 'a run'")
    assert more or (work / "a run" / "checkpoint.pt").is_file()
    assert run_command_line(shlex.split(last.split("to resume: meshwright ")[1])) == 0


def test_a_training_that_is_interrupted_before_it_begins_names_no_run(work, monkeypatch, capsys):
    assert run_command_line(["train", "train.yaml", "--out", "run"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("meshwright.envs.benchmark.load_benchmark", _interrupt)
    for words in (("--out", "new"), ("--out", "run", "--overwrite")):
        assert run_command_line(["train", "train.yaml", *words]) == 130
        assert capsys.readouterr().err == "meshwright: interrupted\n"


def _interrupt(*_, **__):
    raise KeyboardInterrupt
