"""Constants of kernels that a user gives, by name or file: which are taken, and which are refused."""

import os
import shutil
from importlib.resources import files

import pytest
import yaml

from meshwright import settings
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.kernels import CONSTANTS, KernelSettings, kernel_model, kernel_settings
from meshwright.devices import base_name, device_names, device_type
from meshwright.errors import ConfigError, InputFileError

SHIPPED = files("meshwright.configs") / "kernels"


@pytest.fixture
def mine(tmp_path):
    """A copy of the constants of an A100."""
    return shutil.copy(str(SHIPPED / "a100.yaml"), tmp_path / "mine.yaml")


def spoil(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return str(path)


def test_what_ships_is_known_by_name():
    shipped = ("a100", "any", "b200", "b300", "gb200", "gb300", "h100", "h100-tuned", "h200", "h200-tuned", "h800", "v100")
    assert CONSTANTS.names() == shipped
    assert all(kernel_settings(name, name).device == base_name(name) for name in CONSTANTS.names())


@pytest.mark.parametrize("name", device_names())
def test_a_device_by_its_own_constants_is_the_one_by_none(name):
    own = kernel_settings(name).device
    assert kernel_settings(name, own) == kernel_settings(name)


def test_a_copied_file_says_what_the_name_says(mine):
    assert kernel_settings("a100", str(mine)) == kernel_settings("a100", "a100") == kernel_settings("a100")


def test_constants_that_are_saved_as_yaml_or_json_and_read_are_the_same(tmp_path):
    fast = kernel_settings("a100").model_copy(update={"product_efficiency": 0.9, "uncertainty": 0.03})
    for name, text in (("fast.yaml", yaml.safe_dump(fast.model_dump())), ("fast.json", fast.model_dump_json())):
        (tmp_path / name).write_text(text)
        assert kernel_model(device_type("a100"), str(tmp_path / name)).constants == fast
        assert settings.load(KernelSettings, tmp_path / name) == fast


def test_a_path_is_taken_from_the_current_folder(mine, monkeypatch):
    spoil(mine, "uncertainty: 0.1", "uncertainty: 0.02")
    monkeypatch.chdir(mine.parent)
    assert kernel_settings("a100", "mine.yaml").uncertainty == 0.02
    (mine.parent / "other").mkdir()
    shutil.copy2(str(SHIPPED / "a100.yaml"), mine.parent / "other" / "mine.yaml")
    monkeypatch.chdir(mine.parent / "other")
    assert kernel_settings("a100", "mine.yaml").uncertainty == 0.1
    assert kernel_settings("a100", "../mine.yaml").uncertainty == 0.02


def test_a_file_without_a_suffix_is_a_file_and_a_name_that_ships_goes_before_it(mine, monkeypatch):
    monkeypatch.chdir(mine.parent)
    spoil(mine, "uncertainty: 0.1", "uncertainty: 0.02")
    for name in ("tuned", "a100"):
        shutil.copy(mine, name)
    assert kernel_settings("a100", "tuned").uncertainty == 0.02
    assert kernel_settings("a100", "a100").uncertainty == 0.1
    assert kernel_settings("a100", "./a100").uncertainty == 0.02


def test_a_file_that_changes_is_read_again_and_tells_another_digest(mine):
    def found():
        return kernel_settings("a100", str(mine)).uncertainty, CostSettings(kernels=str(mine)).digest

    before, stood = found(), mine.stat()
    spoil(mine, "uncertainty: 0.1", "uncertainty: 0.2")
    os.utime(mine, ns=(stood.st_atime_ns, stood.st_mtime_ns))  # as large and as old as before
    after = found()
    assert (before[0], after[0]) == (0.1, 0.2)
    assert before[1] != after[1]
    spoil(mine, "uncertainty: 0.2", "uncertainty: 0.1")
    assert found() == before


@pytest.mark.parametrize("device", ["a100", "a100-80gb"])
def test_constants_of_a_type_fit_its_variants(mine, device):
    assert kernel_settings(device, str(mine)).device == "a100"
    own = spoil(mine, "device: a100", f"device: {device}")
    assert kernel_settings(device, own).device == device
    assert kernel_settings(device, "any").device == "any"


def test_constants_of_a_variant_do_not_fit_the_type(mine):
    with pytest.raises(ConfigError, match=r"device: does not fit a100, .*; valid: a100, any \(got 'a100-80gb'\)"):
        kernel_settings("a100", spoil(mine, "device: a100", "device: a100-80gb"))


@pytest.mark.parametrize(
    ("priced", "given", "valid"), [("h100", "a100", "h100, any"), ("a100", "h100", "a100, any"), ("a800", "a100", "a800, any")]
)
def test_constants_of_another_device_are_refused_with_what_would_do(tmp_path, priced, given, valid):
    problem = f"does not fit {priced}, the device type that is priced; valid: {valid} \\(got '{given}'\\)$"
    with pytest.raises(ConfigError, match=f"^kernels: {problem}"):
        kernel_settings(priced, given)
    path = tmp_path / "mine.yaml"
    shutil.copy(str(SHIPPED / f"{given}.yaml"), path)
    with pytest.raises(ConfigError, match=rf"^{path}:\d+: device: {problem}"):
        kernel_settings(priced, str(path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("uncertainty: 0.1\n", "", r"mine\.yaml:\d+: uncertainty: the key is missing"),
        ("memory_efficiency: 0.8576", "memory_eficiency: 0.8576", r":\d+: memory_eficiency: unknown key .*'memory_efficiency'\?"),
        ("product_efficiency: 0.8162", "product_efficiency: 1.2", r":\d+: product_efficiency: .*at most 1 .*1\.2"),
        ("kernel_gap_us: 2.0", "kernel_gap_us: -2.0", r":\d+: kernel_gap_us: .*-2"),
        ("step_overhead_ms: 0.4263", "step_overhead_ms: .nan", r":\d+: step_overhead_ms: .*nan"),
        ("uncertainty: 0.1", "uncertainty: yes", r":\d+: uncertainty: .*'yes'"),
        ("uncertainty: 0.1", "uncertainty: [0.1", r"not valid YAML"),
        ("uncertainty: 0.1", "uncertainty: 0.1\nitems: []", r":\d+: items: unknown key"),
        ("uncertainty: 0.1", "device: h100", r":\d+: device: the key appears twice"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_place(mine, old, new, message):
    text = mine.read_text()
    old = f"\n{old}"
    assert text.count(old) == 1
    mine.write_text(text.replace(old, f"\n{new}"))
    with pytest.raises(ConfigError, match=message) as error:
        kernel_settings("a100", str(mine))
    assert str(mine) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("given", ["a10", "", "nothing", "\0", "x" * 5000])
def test_what_is_neither_name_nor_file_is_told_with_the_names(given):
    for read in (lambda: kernel_settings("a100", given), lambda: CostSettings(kernels=given).digest):
        with pytest.raises(InputFileError, match=r"^kernels: neither a file nor the name of kernels' constants") as error:
            read()
    assert "valid: a100, any, b200, b300, gb200, gb300, h100, h100-tuned, h200, h200-tuned, h800, v100" in str(error.value)


@pytest.mark.parametrize("given", ["missing.yaml", "missing.json", "./missing", "/", "\0.yaml", "x" * 5000 + ".yaml"])
def test_a_file_that_is_not_there_is_refused(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for read in (lambda: kernel_settings("a100", given), lambda: CostSettings(kernels=given).digest):
        with pytest.raises(InputFileError):
            read()


def test_bytes_are_refused(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputFileError, match="not a UTF-8 text file"):
        kernel_settings("a100", str(tmp_path / "mine.yaml"))
