"""Inputs that once ended in a traceback or were wrongly accepted: each is refused with the reason.

An input is a valid one of a reader with one text in it replaced.
"""

import json
import os
import re
import subprocess
import sys

import pytest

from meshwright.errors import MeshwrightError

from . import inputs
from .mutations import DIGITS, LONG_FIELD, MORE_DIGITS
from .targets import TARGETS

OPEN = "a quotation mark is not closed"
LONG = "not valid CSV: field larger than field limit"
CORE = "the tag is not of the core schema of YAML 1.2 (got '!!timestamp')"
HALF = "half of a surrogate pair is no letter"

FOUND = [
    # tables: quotation marks that nobody closes, fields beyond all bounds, digits that are none
    ("job-traces", ",e\n2017-10-06", ',"e\n2017-10-06', f"jobs.csv:6: not valid CSV: {OPEN}"),
    ("job-traces", "60.5", LONG_FIELD, f"jobs.csv:3: {LONG}"),
    ("job-traces", "60.5", "1e30", "jobs.csv:3: duration: must be 0 to 1e+10: nothing is larger (got '1e30')"),
    ("matrices", "25\n100", "1e-30\n100", "row 0, column 2: must be 1e-06 to 1e+09: nothing is smaller, is 1e-30"),
    ("nccl-csv", "0.0053", '"0.0053', f"a.csv:2: not valid CSV: {OPEN}"),
    ("nccl-text", "1024", "²", None),
    ("nccl-text", "nGpus 2", f"nGpus {MORE_DIGITS}", None),
    ("nccl-json", '"NVIDIA B200"', '"-"', "--set name: a name is lower-case letters, digits, dots and hyphens, 63 at most"),
    # YAML: tags, digits, halves of letters, keys that are none
    ("clusters", "num_devices: 2", "num_devices: !!bool maybe", "the value after the tag !!bool is no bool (got 'maybe')"),
    ("clusters", "latency_us: 1.0", 'latency_us: !!float ""', "the value after the tag !!float is no float (got '')"),
    ("clusters", "latency_us: 1.0", "latency_us: !!timestamp xx", CORE),
    ("clusters", "num_devices: 2", f"num_devices: {MORE_DIGITS}", "cluster.yaml:3: not valid YAML: a number of 5000 digits"),
    ("clusters", "num_devices: 2", f"num_devices: 0x{'f' * 6000}", "cluster.yaml:3: not valid YAML: a number of 6002 digits"),
    ("clusters", "name: pair", 'name: "\\ud800"', f"cluster.yaml:1: not valid YAML: {HALF}"),
    ("clusters", "name: pair", "? {a: b}\n: c\nname: pair", "cluster.yaml:1: not valid YAML: a key must be a name"),
    ("clusters", "bandwidth_gbytes_per_s: 100.0", "bandwidth_gbytes_per_s: 1e-300", "must be 1e-06 to 1e+09: nothing is smaller"),
    ("benchmarks", "cluster: pair.yaml", "cluster: [pair.yaml]", "scenario.cluster: must be one name, path or text, as pair"),
    ("workloads", "graph.txt", f"{'g' * 300}.txt", "cannot be read (File name too long)"),
    ("workloads", "offered_load: 0.9", "offered_load: 5.0e-324", "must be 1e-09 to 1e+06: nothing is smaller"),
    # traces of PyTorch's profiler: numbers of operators that are none, properties of devices that are no list
    ("kineto", '"Sequence number": 0', '"Sequence number": "1e400"', "an event has no name, times or numbers"),
    ("kineto", '"deviceProperties": []', '"deviceProperties": 7', None),
    # JSON: the same
    ("job-graphs", "0.0105", MORE_DIGITS, "not valid JSON: a number of 5000 digits is more than a number holds"),
    ("job-graphs", "0.0105", "1e999", "not valid JSON: 1e999 is more than a number holds"),
    ("job-graphs", "0.0105", "9e14", "node2.forward_s: must be 0 to 1e+10: nothing is larger"),
    ("job-graphs", '"node2"', '"\\ud800"', f"graph.json:1: not valid JSON: {HALF}"),
    ("profiles", "10.5", "9e13", "graph.txt:2: node2.forward_compute_time: must be 0 to 1e+13: nothing is larger"),
    ("profiles", "parameter_size=400.0", "parameter_size=1e30", "node2.parameter_size: must be 0 to 1e+19: nothing is larger"),
    # plans
    ("plans", '"value": 0.034', '"value": -0.034', "predicted.0: step_s must not be negative, is -0.034"),
    ("plans", '"value": 0.034', '"value": 9e15', "predicted.0: step_s must be 0 to 1e+10: nothing is larger, is 9e+15"),
    # figures of costs
    ("kernels", "kernel_gap_us: 2.0", "kernel_gap_us: 9.0e+21", "kernel_gap_us: must be 0 to 1e+06: nothing is larger"),
    ("kernels", "memory_efficiency: 0.8576", "memory_efficiency: 1.0e-300", "must be 0.0001 to 100: nothing is smaller"),
    ("kernels", "step_overhead_ms: 0.4263", "step_overhead_ms: .nan", "step_overhead_ms: must be a finite number"),
    ("kernels", "uncertainty: 0.1", "uncertainty: .inf", "uncertainty: must be a finite number"),
    ("collectives", "latency_us: 21.0", "latency_us: 1.0e+30", "latency_us: must be 0 to 1e+09: nothing is larger"),
    ("collectives", "[6.5, 20.5, 145.0]", "[6.5, 20.5, 1.0e+30]", "time_us.2: must be 0.0001 to 1e+10: nothing is larger"),
    ("collectives", "[1024, 1048576, 33554432]", "[1, 2, 3]", None),
    (
        "collectives",
        "payload_bytes: [1024], time_us: [6.5]",
        "payload_bytes: [1], time_us: [1.0e+9]",
        "a byte takes more than a second",
    ),
    ("steps", '"num_devices": 16', '"num_devices": 16000000000', None),  # told as a row that cannot be priced; was a hang
    ("measured-kernels", "us: 12.581", "us: 1.0e+20", "us: must be 0 to 1e+11: nothing is larger"),
    ("flows", '"latency": 1e-06', '"latency": 9007199254740993', "links.a.latency: must be 0 to 10000: nothing is larger"),
    ("pacml", '"10": {"valid"', f'"{DIGITS}": {{"valid"', "single_job_empty_cluster.one|must be at most"),
    (
        "pacml",
        '"mean_demand_total_throughput": 2.3611111111111107',
        '"mean_demand_total_throughput": 5e-324',
        "must be 0, or 1e-100 at least",
    ),
    # spellings
    ("layouts", "tp=2", f"tp={MORE_DIGITS}", "layout: not valid YAML|the value is not valid YAML"),
    ("layouts", "tp=2", "tp=!!bool maybe", "the value is not valid YAML"),
    ("export-options", "master_port=29500", "'master_port=!!timestamp xx'", "the value is not valid YAML"),
]


@pytest.mark.parametrize(("reader", "old", "new", "message"), FOUND)
def test_what_was_found_is_refused_in_words_that_say_why(reader, old, new, message, tmp_path, monkeypatch):
    target = TARGETS[reader]
    text = next(valid for valid in target.inputs if old in valid)
    monkeypatch.chdir(tmp_path)
    if message is None:  # harmless: read, or refused for something else
        target.read(text.replace(old, new, 1), tmp_path)
        return
    with pytest.raises(MeshwrightError) as caught:
        target.read(text.replace(old, new, 1), tmp_path)
    assert any(words in str(caught.value) for words in message.split("|")), str(caught.value)
    assert len(str(caught.value)) < 1000


def test_an_op_in_a_stage_that_the_job_does_not_have_is_named(tmp_path, monkeypatch):
    plan = json.loads(inputs.plans()[2])
    plan["stages"][1]["ops"][0] = "layer0.;"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MeshwrightError, match=r"stages\.1\.ops: the job graph has no such op \(got 'layer0\.;'\)"):
        TARGETS["chakra"].read(json.dumps(plan), tmp_path)


@pytest.mark.parametrize("keep", ["dp=1|2|", "tp=", "dp=|1", "schedule="])
def test_a_kept_value_that_is_not_there_is_asked_for(keep):
    from meshwright.planners.layouts.request import parse_keep

    with pytest.raises(MeshwrightError, match=r"keep\.\w+: wants a value, or several with \| between"):
        parse_keep(keep)


@pytest.mark.parametrize("devices", [MORE_DIGITS, "²", f"1-{DIGITS}", "1-2-3", "-1"])
def test_numbers_of_devices_are_whole_numbers(devices):
    from meshwright.planning.search import device_counts

    with pytest.raises(MeshwrightError, match=r"--devices: must be a number, several with commas between, or a range A-B"):
        device_counts(devices, inputs.pair(), 2)


def test_an_environment_that_numba_refuses_is_told_in_one_line():
    request = "from meshwright.cli import main; main()", "plan", "--job", "zoo:alexnet", "--cluster", "preset:toy"
    others = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    completed = subprocess.run(
        [sys.executable, "-c", *request], check=False, capture_output=True, text=True, env={**others, "NUMBA_NUM_THREADS": "0"}
    )
    assert completed.returncode == 2
    assert re.fullmatch(
        r"meshwright: error: \S*NUMBA_NUM_THREADS.*: numba does not start with this environment .*\n", completed.stderr
    )
