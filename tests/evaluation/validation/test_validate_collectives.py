"""The collective layer held against sizes and groups that were left out, and tables written from measurements."""

import hashlib

import pytest

from meshwright.costs.collectives.libraries import tables
from meshwright.errors import ConfigError, InputFileError
from meshwright.evaluation.calibration.collective_files import read
from meshwright.evaluation.calibration.fit_collectives import calibrate, write
from meshwright.evaluation.validation.collectives import GROUPS, SIZES, baseline, by_table, every_second, mean_error, validate

HEAD = "version,device,op_name,nccl_dtype,num_gpus,message_size,latency\n"


def made(
    folder, ranks=(2, 4, 8), sizes=tuple(2**k for k in range(9, 20)), name="made.csv", extra="", device="NVIDIA A100-SXM4-80GB"
):
    """A system where an all-gather of n ranks takes 2 n us plus (n - 1) / n of its bytes at 200 GB/s."""
    rows = [
        f"2.27.3,{device},all_gather,int8,{n},{size},{(2e-6 * n + (n - 1) / n * size / 200e9) * 1e3!r}\n"
        for n in ranks
        for size in sizes
    ]
    path = folder / name
    path.write_text(HEAD + "".join(rows) + extra)
    return path


def test_lines_and_groups_that_follow_the_formula_are_told_exactly(tmp_path):
    result = validate(made(tmp_path)).families()
    assert len(result[SIZES]) == 3 * 5
    assert len(result[GROUPS]) == 11
    assert mean_error(result[SIZES]) == pytest.approx(0, abs=1e-9)
    assert mean_error(result[GROUPS]) == pytest.approx(0, abs=2e-3)  # the latency is taken from the smallest size


def test_rows_that_cannot_be_read_are_listed_and_change_nothing(tmp_path):
    plain = validate(made(tmp_path))
    bad = "2.27.3,NVIDIA A100-SXM4-80GB,all_gather,fp4,2,512,0.1\n2.27.3,NVIDIA A100-SXM4-80GB,gossip,int8,2,512,0.1\n"
    result = validate(made(tmp_path, name="bad.csv", extra=bad))
    assert [row.predicted_s for row in result.rows] == [row.predicted_s for row in plain.rows]
    assert plain.unsupported == ()
    assert ["unknown data type" in result.unsupported[0], "unknown collective" in result.unsupported[1]] == [True, True]
    assert result.to_data()["unsupported"] == list(result.unsupported)


def test_every_second_size_is_left_out_and_never_calibrated_on(tmp_path):
    result = validate(made(tmp_path, ranks=(2,)))
    assert [row.payload_bytes for row in result.rows] == [2**k for k in range(10, 20, 2)]
    changed = made(tmp_path, ranks=(2,), name="changed.csv").read_text().splitlines(keepends=True)
    changed[2] = changed[2].rsplit(",", 1)[0] + ",77.0\n"  # the 2nd size: of what is predicted nothing changes
    (tmp_path / "changed.csv").write_text("".join(changed))
    again = validate(tmp_path / "changed.csv")
    assert [row.predicted_s for row in again.rows] == [row.predicted_s for row in result.rows]


def test_a_group_left_out_is_never_calibrated_on(tmp_path):
    rows = validate(made(tmp_path)).rows
    lines = made(tmp_path).read_text().splitlines(keepends=True)
    doubled = [line.rsplit(",", 1) for line in lines]
    text = "".join(f"{a},{float(b) * 2}\n" if ",int8,4," in a else f"{a},{b}" for a, b in doubled)
    (tmp_path / "doubled.csv").write_text(text)
    again = validate(tmp_path / "doubled.csv").rows
    messages = [[row.predicted_s for row in rows if row.family == GROUPS] for rows in (rows, again)]
    assert messages[0] == messages[1]


def test_keys_that_stand_twice_are_told_both(tmp_path):
    twice = made(tmp_path, name="twice.csv", extra=made(tmp_path).read_text().removeprefix(HEAD))
    result = validate(twice).families()
    assert len(result[SIZES]) == 2 * 3 * 5
    assert mean_error(result[SIZES]) == pytest.approx(0, abs=1e-9)


def test_two_group_sizes_leave_no_group_out_and_one_size_nothing(tmp_path):
    assert set(validate(made(tmp_path, ranks=(2, 8))).families()) == {SIZES}
    with pytest.raises(InputFileError, match="no table has two sizes, so none can be left out"):
        validate(made(tmp_path, sizes=(512,)))


def test_the_last_of_an_even_number_of_sizes_is_an_estimate(tmp_path):
    rows = validate(made(tmp_path, ranks=(2,), sizes=(512, 1024, 2048, 4096))).rows
    assert [row.provenance for row in rows] == ["interpolated", "estimated"]


@pytest.mark.reference
@pytest.mark.parametrize("system", ["a100", "b200", "h100", "h200"])
def test_measured_collectives_are_told_as_well_as_the_issue_asks(reference, system):
    result = validate(reference / "collectives" / f"{system}_sxm_nccl_perf.csv").families()
    assert len(result[SIZES]) == 240
    assert len(result[GROUPS]) == 168
    assert mean_error(result[SIZES]) <= 0.05
    assert mean_error(result[GROUPS]) <= 0.10
    # both are better than the usual ways
    assert mean_error(result[SIZES]) < min(baseline(result[SIZES], number) for number in (0, 1))


@pytest.mark.reference
def test_no_table_of_the_package_holds_measured_rows(reference):
    for name in tables.SYSTEMS.names():
        assert all(hasattr(curve, "latency_s") for curve in tables.load(name).curves.values())


def test_a_calibrated_file_tells_what_was_measured_and_where_it_is_from(tmp_path):
    source = made(tmp_path)
    write(tmp_path / "out.yaml", calibrate([source]))
    system = tables.load(str(tmp_path / "out.yaml"))
    assert system.name == "nvidia-a100-sxm4-80gb"
    for one in read(source):
        result = system.way(one.key.operation, one.key.num_ranks).price(one.payload_bytes)
        assert (result.seconds, result.provenance) == (pytest.approx(one.seconds, rel=1e-3), "measured")
    text = (tmp_path / "out.yaml").read_text()
    assert hashlib.sha256(source.read_bytes()).hexdigest() in text
    assert "library_version: 2.27.3" in text
    write(tmp_path / "out.json", calibrate([source]))
    assert tables.load(str(tmp_path / "out.json")).curves.keys() == system.curves.keys()


def test_half_of_a_calibration_keeps_what_validation_calibrates_on(tmp_path):
    source = made(tmp_path)
    curves = calibrate([source], half=True).curves
    expected = {table.key: every_second(points)[0] for table, points in by_table(read(source)).items()}
    assert {one.key: list(one.payload_bytes) for one in curves} == {
        key: [size for size, _ in points] for key, points in expected.items()
    }


def test_several_devices_or_versions_are_not_mixed(tmp_path):
    other = made(tmp_path, name="other.csv", device="NVIDIA H100 80GB HBM3")
    with pytest.raises(ConfigError, match=r"--device: the files have several; choose one by --device; valid: NVIDIA A100.*H100"):
        calibrate([made(tmp_path), other])
    assert calibrate([made(tmp_path), other], device="NVIDIA H100 80GB HBM3").device == "NVIDIA H100 80GB HBM3"
    newer = tmp_path / "newer.csv"
    newer.write_text(made(tmp_path).read_text().replace("2.27.3", "2.29.2"))
    with pytest.raises(ConfigError, match=r"--set library_version: the files have several.*2.27.3, 2.29.2"):
        calibrate([made(tmp_path), newer])
    assert calibrate([made(tmp_path), newer], library_version="2.29.2").calibration["library_version"] == "2.29.2"


def test_devices_that_are_not_told_must_be_named(tmp_path):
    path = tmp_path / "bare.csv"
    path.write_text("op_name,nccl_dtype,num_gpus,message_size,latency\nall_reduce,half,2,256,0.01\n")
    with pytest.raises(ConfigError, match="--device: the files do not say which devices they are about; name them"):
        calibrate([path])
    assert calibrate([path], device="a100", name="mine").name == "mine"
    with pytest.raises(ConfigError, match=r"--set name: a name is lower-case letters.*'My System'"):
        calibrate([path], device="a100", name="My System")
