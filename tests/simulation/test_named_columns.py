import pickle

import numpy as np

from meshwright.compiled import njit
from meshwright.simulation.named_columns import Column


class JobColumn(Column):
    AGE = "age"
    WORK = "work left"
    DEVICES = "devices"


@njit
def _written(row):
    row[JobColumn.WORK] = 2.0
    row[10 + JobColumn.DEVICES] = 3.0
    return row


def test_columns_are_numbered_as_listed_and_know_their_names():
    assert list(JobColumn) == [0, 1, 2]
    assert JobColumn.names() == ("age", "work left", "devices")
    assert JobColumn.DEVICES.label == "devices"
    assert pickle.loads(pickle.dumps(JobColumn.WORK)) is JobColumn.WORK


def test_compiled_code_reads_them_as_numbers():
    assert np.flatnonzero(_written(np.zeros(13))).tolist() == [1, 12]
