"""Sources by name: what each is called, which program or address it asks, and whose token goes there."""

import pytest

from meshwright.errors import ConfigError, InputFileError
from meshwright.live.sources.source import source


@pytest.mark.parametrize(
    ("spec", "name", "program"),
    [
        ("slurm", "slurm", "scontrol"),
        ("slurm:text", "slurm", "scontrol"),
        ("kubernetes", "kubernetes", "kubectl"),
        ("ray", "ray", "ray"),
        ("slurm:http://a:6820", "slurm", "slurmrestd http://a:6820"),
        ("slurm:https://a:6820", "slurm", "slurmrestd https://a:6820"),
    ],
)
def test_a_source_is_called_by_its_scheduler_and_asks_its_program(spec, name, program):
    result = source(spec)
    assert (result.name, result.program) == (name, program)


def test_a_file_is_a_source_of_its_own_and_others_are_refused_by_their_option(tmp_path):
    path, token = tmp_path / "s.json", tmp_path / "token"
    path.write_text("{}")
    token.write_text("t")
    result = source(f"file:{path}")
    assert (result.name, result.program) == ("file", str(path))
    for spec in ("kubernetes", "ray", "slurm", "slurm:json"):
        with pytest.raises(ConfigError) as error:
            source(spec, slurm_token_file=token)
        assert error.value.field == "--set slurm_token_file"
    for spec in ("nomad", f"file:{tmp_path / 'absent'}"):
        with pytest.raises(InputFileError) as error:
            source(spec)
        assert (error.value.field, error.value.value) == ("source", spec.removeprefix("file:"))
    with pytest.raises(ConfigError) as error:
        source("slurm:ftp://a")
    assert (error.value.field, error.value.value) == ("source", "ftp://a")
