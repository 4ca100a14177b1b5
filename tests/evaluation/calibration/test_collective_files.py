"""Measured collectives as tools write them: nccl-tests text and JSON, CSV, and what is refused."""

import copy
import json

import pytest

from meshwright.costs.collectives.libraries.system import TableKey
from meshwright.errors import InputFileError
from meshwright.evaluation.calibration.collective_files import read

CSV = """framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency
TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,all_gather,NCCL,half,2,256,0.0053
TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,alltoall,NCCL,int8,8,1024,0.0066
"""

TEXT = """# nccl-tests version 2.17.1 nccl-headers=22803 nccl-library=22803
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 8 maxBytes 33554432 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   6899 on     node-a device  0 [0000:04:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   6899 on     node-a device  1 [0000:05:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     4.11    0.00    0.00       0     4.02    0.00    0.00       0
        1024           256     float     sum      -1     6.25    0.16    0.16       0     6.10    0.17    0.17       0
node-a:6899:6950 [0] NCCL INFO something in between
    33554432       8388608     float     sum      -1    145.2   231.1   231.1       0    144.9   231.6   231.6     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 115.6
"""

JSON = {
    "version": 2,
    "start_time": "2026-01-02 03:04:05",
    "args": ["./build/reduce_scatter_perf", "-b", "1K"],
    "env": [],
    "nccl_version": 22907,
    "config": {
        "nthreads": 1,
        "ngpus": 1,
        "devices": [
            {"rank": rank, "group": 0, "pid": rank, "hostname": f"node-{rank // 2}", "device_info": "NVIDIA B200"}
            for rank in range(4)
        ],
    },
    "results": [
        {
            "size": 1024,
            "count": 64,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": {"time": 12.5, "alg_bw": 0.08, "bus_bw": 0.06, "nwrong": 0.0},
            "in_place": {"time": 11.5, "alg_bw": 0.09, "bus_bw": 0.07, "nwrong": None},
        },
        {"size": 2048, "type": "float", "out_of_place": None, "in_place": {"time": 13.0}},
    ],
}


def write(folder, content, name="file"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_csv_counts_elements_and_milliseconds(tmp_path):
    # 256 halves are 512 B, 0.0053 ms are 5.3 us
    gather, exchange = read(write(tmp_path, CSV))
    assert (gather.key, gather.payload_bytes) == (TableKey("all_gather", 2, 1, "half"), 512)
    assert gather.device == "NVIDIA H100 80GB HBM3"
    assert (gather.seconds, gather.version, gather.where) == (pytest.approx(5.3e-6), "2.29.2", 2)
    assert (exchange.key, exchange.payload_bytes) == (TableKey("all_to_all", 8, 1, "int8"), 1024)


def test_text_of_nccl_tests(tmp_path):
    small, large = read(write(tmp_path, TEXT))
    assert (small.key, small.payload_bytes) == (TableKey("all_reduce", 2, 1, "float"), 1024)
    assert small.seconds == pytest.approx(6.25e-6)
    assert (large.payload_bytes, large.seconds) == (33554432, pytest.approx(145.2e-6))
    assert (small.device, small.version, small.where) == ("NVIDIA H100 80GB HBM3", "2.28.3", 13)


def test_text_of_several_hosts_and_runs(tmp_path):
    second = TEXT.replace("all_reduce", "sendrecv").replace("node-a device  1", "node-b device  0")
    result = read(write(tmp_path, TEXT + second))
    assert [one.key for one in result] == [TableKey("all_reduce", 2, 1, "float")] * 2 + [TableKey("send_recv", 2, 2, "float")] * 2


def test_text_that_does_not_say_what_it_measures(tmp_path):
    old = "\n".join(line for line in TEXT.splitlines() if "starting" not in line)
    with pytest.raises(InputFileError, match=r"does not say which collective it measures; name it by --set operation=NAME"):
        read(write(tmp_path, old))
    assert read(write(tmp_path, old), operation="broadcast")[0].key.operation == "broadcast"


def test_text_without_ranks_counts_threads_and_devices(tmp_path):
    bare = "\n".join(line for line in TEXT.splitlines() if "Rank" not in line).replace("nThread 1", "nThread 4")
    assert read(write(tmp_path, bare))[0].key.num_ranks == 8


def test_text_without_out_of_place_times(tmp_path):
    text = "\n".join(line for line in TEXT.splitlines() if not line.startswith(" "))
    row = "\n        1024           256     float     sum      -1" + 32 * " " + "     6.10    0.17    0.17       0\n"
    assert read(write(tmp_path, text + row))[0].seconds == pytest.approx(6.10e-6)


def test_json_of_nccl_tests(tmp_path):
    first, second = read(write(tmp_path, JSON))
    assert (first.key, first.payload_bytes) == (TableKey("reduce_scatter", 4, 2, "float"), 1024)
    assert (first.seconds, second.seconds) == (pytest.approx(12.5e-6), pytest.approx(13e-6))
    assert (first.device, first.version, first.where) == ("NVIDIA B200", "2.29.7", "results.0")


def test_json_of_one_process_counts_its_devices(tmp_path):
    # without MPI the report names the first device only
    data = copy.deepcopy(JSON)
    data["config"] |= {"ngpus": 8, "devices": data["config"]["devices"][:1]}
    assert read(write(tmp_path, data))[0].key == TableKey("reduce_scatter", 8, 1, "float")


def test_json_of_processes_with_several_devices_counts_them_all(tmp_path):
    # two processes with four devices each: the report names the first of each, ranks 0 and 4
    devices = [{"rank": 4 * p, "group": 0, "pid": 70 + p, "hostname": f"node-{p}", "device_info": "NVIDIA B200"} for p in (0, 1)]
    data = copy.deepcopy(JSON)
    data["config"] |= {"ngpus": 4, "devices": devices}
    assert read(write(tmp_path, data))[0].key == TableKey("reduce_scatter", 8, 2, "float")


@pytest.mark.parametrize("blank", ["none", "-1"])
def test_text_that_leaves_a_column_blank_is_read_from_its_end(tmp_path, blank):
    # older versions print nothing where a collective has no reduction or no root
    gather = TEXT.replace("all_reduce", "all_gather").replace("   sum ", "  none ")
    result = read(write(tmp_path, gather.replace(blank, " " * len(blank))))
    assert [one.seconds for one in result] == [pytest.approx(6.25e-6), pytest.approx(145.2e-6)]


def test_a_row_that_ends_before_its_times_is_refused_with_its_line(tmp_path):
    text = "# all_reduce_perf\n# nThread 1 nGpus 2\n# size count type redop root algbw busbw time\n 1024 256 float sum -1\n"
    with pytest.raises(InputFileError, match=r":4: the row is cut short"):
        read(write(tmp_path, text))


@pytest.mark.parametrize(
    "change", [{"args": -1}, {"config": {"devices": True}}, {"config": {"devices": [{"pid": [], "hostname": {}}]}}]
)
def test_a_report_with_parts_of_another_kind_is_refused_and_nothing_breaks(tmp_path, change):
    with pytest.raises(InputFileError, match=r"does not say which collective|at least two ranks"):
        read(write(tmp_path, JSON | change))


def test_a_collective_is_known_in_any_case(tmp_path):
    assert read(write(tmp_path, CSV.replace("all_gather", "AllGather")))[0].key.operation == "all_gather"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("all_gather", "all_gahter", r":2: op_name: unknown collective \(got 'all_gahter'\); did you mean 'all_gather'\?"),
        ("0.0053", "-0.0053", r":2: latency: must be a positive number \(got '-0.0053'\)"),
        ("0.0053", "nan", r":2: latency: must be a positive number \(got 'nan'\)"),
        ("8,1024", "8,0", r":3: message_size: must be a positive number \(got '0'\)"),
        ("8,1024", "1,1024", r":3: num_gpus: a collective has at least two ranks \(got '1'\)"),
        ("int8", "unit8", r":3: nccl_dtype: unknown data type \(got 'unit8'\); did you mean 'uint8'\?"),
        (",0.0066", "", r":3: the row is cut short"),
        ("latency", "time", r":1: latency: the column is missing; valid: .*time"),
    ],
)
def test_a_bad_csv_is_refused_with_its_line(tmp_path, old, new, message):
    with pytest.raises(InputFileError, match=message):
        read(write(tmp_path, CSV.replace(old, new)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("hello\n", "holds no measurement of a collective: neither nccl-tests output"),
        ("a,b\n1,2\n", "holds no measurement of a collective"),
        ('{"rows": []}', "results: the key is missing: not the report of nccl-tests"),
        ('{"results": [', r":1: not valid JSON"),
        (TEXT.split("    33554432")[0].replace("        1024 ", "#       1024 "), "holds no measurement"),
        (TEXT.replace("    6.25", "   -6.25"), r":13: time: must be a positive number \(got '-6.25'\)"),
        (TEXT.replace("all_reduce_perf", "hypercube_perf"), r"unknown collective \(got 'hypercube'\)"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    with pytest.raises(InputFileError, match=message):
        read(write(tmp_path, content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"results": [{"size": 8, "out_of_place": {"time": "nan"}}]},
            r"results\.0\.time: must be a positive number \(got 'nan'\)",
        ),
        ({"results": [{"size": -8, "out_of_place": {"time": 1}}]}, r"results\.0\.size: must be a positive number \(got -8\)"),
        ({"results": [{"size": 8, "out_of_place": {"cpu_time": 1}}]}, r"results\.0: holds no time of the devices"),
        ({"results": [7]}, r"results\.0: must be a mapping"),
        ({"config": {}}, r"config\.devices: a collective has at least two ranks \(got 0\)"),
    ],
)
def test_a_bad_report_is_refused_with_its_field(tmp_path, change, message):
    with pytest.raises(InputFileError, match=message):
        read(write(tmp_path, JSON | change))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,broadcast_all,NCCL,half,2,256,0.0053", "unknown collective"),
        ("TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,all_gather", "cut short"),
    ],
)
def test_a_row_of_a_table_that_cannot_be_read_spoils_no_other_one_if_that_is_asked_for(tmp_path, line, message):
    path = tmp_path / "table.csv"
    path.write_text(CSV + line + "\n" + CSV.splitlines()[1] + "\n")
    with pytest.raises(InputFileError, match=message):
        read(path)
    refused = []
    assert len(read(path, refused=refused)) == 3
    (error,) = refused
    assert message in str(error)
    assert ":4" in str(error)


def test_a_result_of_nccl_tests_that_cannot_be_read_spoils_no_other_one(tmp_path):
    path, refused = tmp_path / "out.json", []
    data = copy.deepcopy(JSON)
    data["results"] += [{"size": 512, "type": "float"}, data["results"][0] | {"size": 4096}]
    path.write_text(json.dumps(data))
    assert [one.payload_bytes for one in read(path, refused=refused)] == [1024, 2048, 4096]
    assert "holds no time" in str(refused[0])
    text, refused = tmp_path / "out.txt", []
    text.write_text(TEXT.replace("145.2", "nan"))
    assert [one.payload_bytes for one in read(text, refused=refused)] == [1024]
    assert "must be a positive number" in str(refused[0])


def test_a_file_of_which_no_row_can_be_read_is_refused_whole(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(CSV.splitlines()[0] + "\nTRTLLM,2.29.2,H100,all_gather,NCCL,fp4,2,256,0.0053\n")
    with pytest.raises(InputFileError, match="unknown data type"):
        read(path, refused=[])
