"""Files that come with the package, by name, and the user's own."""

import pytest

from meshwright.costs.collectives.libraries.tables import SYSTEMS
from meshwright.costs.training_step.kernels import CONSTANTS
from meshwright.errors import InputFileError
from meshwright.evaluation.calibration.kernel_table import MEASURED
from meshwright.packaged import Shipped

FOLDERS = (SYSTEMS, CONSTANTS, MEASURED)


@pytest.mark.parametrize("shipped", FOLDERS, ids=lambda shipped: shipped.folder)
def test_every_name_is_a_file_that_can_be_read(shipped):
    assert shipped.names()
    for name in shipped.names():
        assert shipped.path(name).name == f"{name}.yaml"
        assert shipped.text(name)


@pytest.mark.parametrize("shipped", FOLDERS, ids=lambda shipped: shipped.folder)
def test_what_is_neither_is_told_with_the_nearest_name(shipped):
    name = shipped.names()[0]
    with pytest.raises(InputFileError, match=rf"neither a file nor .*did you mean '{name}'"):
        shipped.path(name.upper())
    # What lacks a digit is another product, not a slip.
    with pytest.raises(InputFileError, match=r"neither a file nor .*valid: "):
        shipped.path(name[:-1])


def test_a_file_of_the_users_own_may_be_called_as_a_name_with_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h100").write_text("mine")
    assert MEASURED.text("./h100") == "mine"
    assert MEASURED.text("h100") != "mine"


def test_what_looks_like_a_file_is_missed_where_it_is_read():
    shipped = Shipped("kernels", "anything")
    assert str(shipped.path("absent.yaml")) == "absent.yaml"
    with pytest.raises(InputFileError, match=r"absent\.yaml"):
        shipped.text("absent.yaml")
