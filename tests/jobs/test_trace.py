import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputFileError
from meshwright.jobs.trace import PARTS, Trace, TraceArrivals, TraceColumns, load_trace, part_of

HEADER = "timestamp,duration,num_gpus,cluster\n"
ROWS = """\
2017-10-09 07:01:55,66.0,1,a
2017-10-09 00:01:40,10.0,4,b
2017-10-09 00:00:00,100.0,2,b
2017-10-09 00:01:40,5,2,a
"""


def trace_file(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_a_small_trace_worked_by_hand(tmp_path):
    trace = load_trace(trace_file(tmp_path, HEADER + ROWS))
    assert trace.time_s.tolist() == [0.0, 100.0, 100.0]  # sorted; the job on one GPU is dropped
    assert trace.work_s.tolist() == [200.0, 40.0, 10.0]  # duration x GPUs, rows of one second in the file's order
    assert ((trace.hash_fraction >= 0) & (trace.hash_fraction < 1)).all()
    assert load_trace(trace_file(tmp_path, HEADER + ROWS), min_gpus=4).work_s.tolist() == [40.0]


def test_the_hash_of_a_row_stays_when_the_file_is_shuffled(tmp_path):
    rows = ROWS.splitlines(keepends=True)
    forth = load_trace(trace_file(tmp_path, HEADER + "".join(rows)))
    back = load_trace(trace_file(tmp_path, HEADER + "".join(rows[::-1])))
    assert dict(zip(forth.work_s, forth.hash_fraction, strict=True)) == dict(zip(back.work_s, back.hash_fraction, strict=True))


def test_a_known_hash_never_changes(tmp_path):
    # printf '2017-10-09 00:00:00,100.0,2,b' | sha256sum, first 53 bits over 2^53
    trace = load_trace(trace_file(tmp_path, HEADER + ROWS))
    assert trace.hash_fraction[0] == (0x58ADE55FE6689C9C >> 11) / 2**53


def test_windows_line_endings_and_blank_lines_change_nothing(tmp_path):
    plain = load_trace(trace_file(tmp_path, HEADER + ROWS))
    other = load_trace(trace_file(tmp_path, (HEADER + ROWS).replace("\n", "\r\n") + "\r\n"))
    assert np.array_equal(plain.hash_fraction, other.hash_fraction)


def test_scaled_times_keep_their_proportions(tmp_path):
    trace = load_trace(trace_file(tmp_path, HEADER + ROWS.replace("00:01:40,5", "00:06:40,5")))
    assert trace.time_s.tolist() == [0.0, 100.0, 400.0]
    assert trace.scaled_times_s(slice(0, 3), 2.0).tolist() == [0.0, 1.0, 4.0]  # two gaps of 2 s on average
    assert trace.scaled_times_s(slice(1, 3), 2.0).tolist() == [0.0, 2.0]
    assert trace.scaled_times_s(slice(1, 2), 2.0).tolist() == [0.0]


def test_jobs_of_one_second_cannot_be_scaled(tmp_path):
    trace = load_trace(trace_file(tmp_path, HEADER + ROWS))
    with pytest.raises(InputFileError, match="2 jobs in a row arrive at one time"):
        trace.scaled_times_s(slice(1, 3), 2.0)


SEEDS = {"test": range(100), "validation": range(100, 200), "training": range(1000, 1100)}


def of_rows(rows):
    numbers = np.arange(rows, dtype=float)
    return Trace(0.0, numbers, numbers, numbers, numbers / rows, "trace.csv")


def windows(trace, part, num_jobs):
    result = [trace.window(np.random.default_rng(seed), num_jobs) for seed in SEEDS[part]]
    assert all(window.stop - window.start == num_jobs for window in result)
    return result


@given(rows=st.integers(20, 3000), share=st.floats(0.001, 1.0))
def test_test_validation_and_training_share_no_row(rows, share):
    trace = of_rows(rows)
    shortest = min(round(end * rows) - round(first * rows) for first, end in PARTS.values())
    num_jobs = max(1, int(share * shortest))
    rows_of = {part: {row for w in windows(trace, part, num_jobs) for row in range(w.start, w.stop)} for part in PARTS}
    assert not rows_of["test"] & rows_of["validation"]
    assert not rows_of["test"] & rows_of["training"]
    assert not rows_of["validation"] & rows_of["training"]
    assert max(rows_of["training"]) < min(rows_of["validation"])
    assert max(rows_of["validation"]) < min(rows_of["test"])


def test_a_trace_that_is_not_split_gives_all_its_rows_and_one_that_is_too_short_says_by_which_rule():
    trace = replace(of_rows(200), min_gpus=2)
    for seed, message in (
        (0, "the test split (last 35 % of rows, jobs of 2 GPUs and more) has 70 jobs"),
        (100, "the validation split (middle 25 % of rows, jobs of 2 GPUs and more) has 50 jobs"),
        (1000, "the training split (first 40 % of rows, jobs of 2 GPUs and more) has 80 jobs"),
    ):
        with pytest.raises(InputFileError) as error:
            trace.window(np.random.default_rng(seed), 101)
        needed = "the benchmark needs 101. Lower num_jobs or min_gpus."
        assert (
            str(error.value) == f"trace.csv: {message}; {needed} Where nothing is trained, arrivals.split: false takes all rows."
        )
    whole = replace(trace, is_split=False)
    assert whole.window(np.random.default_rng(0), 200) == slice(0, 200)
    with pytest.raises(InputFileError, match=r"the trace \(jobs of 2 GPUs and more\) has 200 jobs; the benchmark needs 201\. "):
        whole.window(np.random.default_rng(0), 201)


@given(num_seeds=st.integers(2, 100), num_starts=st.integers(1, 2000))
def test_windows_of_different_seeds_differ_where_there_is_room(num_seeds, num_starts):
    rows = -(-(num_starts + 9) * 100 // 35) + 2  # the test part is 35 % of them
    results = [of_rows(rows).window(np.random.default_rng(seed), 10).start for seed in range(num_seeds)]
    room = round(rows) - round(0.65 * rows) - 9
    # Of n multiples of the golden ratio, less their whole parts, no two lie nearer than 1 / (2.62 n) (three-distance theorem).
    if room >= 2.62 * num_seeds:
        assert len(set(results)) == num_seeds


def test_a_seed_tells_the_part():
    assert part_of(np.random.default_rng(0)) == ("test", 0)
    assert part_of(np.random.default_rng(np.int64(99))) == ("test", 99)
    assert part_of(np.random.default_rng(100)) == ("validation", 0)
    assert part_of(np.random.default_rng(1000)) == ("training", None)
    # Of training episodes, of what a policy draws for itself, of no seed at all, and of a generator that another made.
    for rng in (np.random.default_rng([1003, 2, 1]), np.random.default_rng([7, 1]), np.random.default_rng()):
        assert part_of(rng) == ("training", None)
    assert part_of(np.random.default_rng(0).spawn(1)[0]) == ("training", None)


def test_training_windows_go_on_changing():
    rng = np.random.default_rng(1000)
    assert len({of_rows(500).window(rng, 10).start for _ in range(20)}) > 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace.csv:1: timestamp: the column is missing"),
        (HEADER.replace("duration", "time") + ROWS, "trace.csv:1: duration: the column is missing"),
        (HEADER + "2017-10-09 07:01:55,66.0,1\n", "trace.csv:2: has 3 columns, not 4"),
        (HEADER + ROWS + "soon,66.0,2,a\n", r"trace.csv:6: timestamp: must read .* \(got 'soon'\)"),
        (HEADER + "2017-10-09 07:01:55,long,2,a\n", r"duration: must be a number \(got 'long'\)"),
        (HEADER + "2017-10-09 07:01:55,-1,2,a\n", r"duration: must be finite and not negative \(got '-1'\)"),
        (HEADER + "2017-10-09 07:01:55,nan,2,a\n", "duration: must be finite"),
        (HEADER + "2017-10-09 07:01:55,1,nan,a\n", "num_gpus: must be finite"),
        (HEADER + ROWS.splitlines()[0], "holds no job of 2 GPUs and more"),
    ],
)
def test_a_malformed_trace_is_refused(tmp_path, text, message):
    with pytest.raises(InputFileError, match=message):
        load_trace(trace_file(tmp_path, text))


@pytest.fixture(scope="module")
def philly(reference):
    return load_trace(reference / "traces" / "philly.csv")


@pytest.mark.reference
def test_philly_keeps_its_distributed_jobs(philly):
    trace = philly
    assert len(trace.time_s) == 5620
    assert trace.work_s.sum() == 2_884_998_464
    assert trace.time_s[0] == 0
    assert (np.diff(trace.time_s) >= 0).all()
    # 2017-09-04 10:30:41 to 2017-12-22 06:14:04
    assert trace.time_s[-1] == ((30 - 4 + 31 + 30 + 22) * 24 - 10 + 6) * 3600 + (14 - 30) * 60 + 4 - 41


@pytest.mark.reference
def test_episodes_of_philly_differ_and_share_no_row_between_test_validation_and_training(philly):
    result = {part: windows(philly, part, 1001) for part in PARTS}
    assert len({window.start for window in result["test"][:20]}) == 20
    assert len({window.start for window in result["validation"][:20]}) == 20
    ends = {part: (min(w.start for w in of), max(w.stop for w in of)) for part, of in result.items()}
    assert ends["training"][1] <= ends["validation"][0] < ends["validation"][1] <= ends["test"][0]


def test_seconds_dates_and_other_names_of_columns_tell_the_same_jobs(tmp_path):
    dated = load_trace(trace_file(tmp_path, HEADER + ROWS))
    named = "job,gpu_num,submit_time,run\nx,2,1507507200,100.0\ny,4,1507507300,10.0\nz,2,1507507300.0,5\nw,1,7,1\n"
    columns = TraceColumns(timestamp="submit_time", duration="run", num_gpus="gpu_num")
    numbered = load_trace(trace_file(tmp_path, named), columns=columns)
    assert numbered.start_s == dated.start_s == 1507507200  # 2017-10-09 00:00:00 UTC
    assert numbered.time_s.tolist() == dated.time_s.tolist()
    assert numbered.work_s.tolist() == dated.work_s.tolist()
    with pytest.raises(InputFileError, match="submit_time: the column is missing"):
        load_trace(trace_file(tmp_path, HEADER + ROWS), columns=columns)
    with pytest.raises(InputFileError, match=r"timestamp: must read YYYY-MM-DD HH:MM:SS, or be seconds \(got 'soon'\)"):
        load_trace(trace_file(tmp_path, HEADER + "soon,1,2,a\n"))


def test_a_window_as_recorded_is_not_stretched(tmp_path):
    trace = load_trace(trace_file(tmp_path, HEADER + ROWS.replace("00:01:40,5", "00:06:40,5")))
    assert trace.times_s(slice(1, 3)).tolist() == [0.0, 300.0]
    assert TraceArrivals(kind="trace").offered_load is None
    with pytest.raises(ValueError, match="scale the time together"):
        TraceArrivals(kind="trace", offered_load=0.5)


def job_log(tmp_path, jobs):
    path = tmp_path / "cluster_job_log.json"
    path.write_text(json.dumps(jobs))
    return path


def attempt(start, end, *gpus):
    times = {"start_time": start and f"2017-10-09 {start}", "end_time": end and f"2017-10-09 {end}"}
    return {**times, "detail": [{"ip": f"m{n}", "gpus": [f"gpu{g}" for g in range(number)]} for n, number in enumerate(gpus)]}


def test_the_job_log_of_philly_worked_by_hand(tmp_path):
    jobs = [
        {"jobid": "b", "submitted_time": "2017-10-09 01:00:00", "attempts": [attempt("01:00:00", "01:00:10", 8, 8)]},
        {
            "jobid": "a",
            "submitted_time": "2017-10-09 00:00:00",
            "attempts": [attempt("00:10:00", "00:10:30", 2), attempt("00:20:00", "00:21:00", 4)],
        },
        {"jobid": "killed while queued", "submitted_time": "2017-10-09 02:00:00", "attempts": []},
        {"jobid": "no end", "submitted_time": "2017-10-09 02:00:00", "attempts": [attempt("02:00:00", None, 4)]},
    ]
    trace = load_trace(job_log(tmp_path, jobs))
    assert trace.time_s.tolist() == [0.0, 3600.0]
    assert trace.duration_s.tolist() == [90.0, 10.0]  # both attempts of the first
    assert trace.work_s.tolist() == [360.0, 160.0]  # of its last, four GPUs; two hosts of eight


def test_another_json_is_no_job_log(tmp_path):
    with pytest.raises(InputFileError, match="a list of jobs is wanted"):
        load_trace(job_log(tmp_path, {}))
    with pytest.raises(InputFileError, match="job 0: wants submitted_time"):
        load_trace(job_log(tmp_path, [{"attempts": "x"}]))
    ran = {"submitted_time": "2017-10-09 01:00:00", "attempts": [attempt("00:00:00", "00:00:09", 2)]}
    with pytest.raises(InputFileError, match=r"job 1\.submitted_time: must read .* \(got 'soon'\)"):
        load_trace(job_log(tmp_path, [ran, ran | {"submitted_time": "soon"}]))
    ended = [attempt("00:00:00", "00:00:09", 2), attempt("00:00:09", "00:00:05", 2)]
    with pytest.raises(
        InputFileError, match=r"job 1\.end_time: an attempt ends before it begins \(got '.*00:00:09 to .*00:00:05'\)"
    ):
        load_trace(job_log(tmp_path, [ran, ran | {"attempts": ended}]))
    with pytest.raises(InputFileError, match=r"job 0\.start_time: must read"):
        load_trace(job_log(tmp_path, [ran | {"attempts": [ran["attempts"][0] | {"start_time": "noon"}]}]))


def test_a_job_log_may_tell_times_in_seconds(tmp_path):
    one = attempt("00:00:00", "00:00:09", 2) | {"start_time": 1507532540, "end_time": 1507532550.5}
    trace = load_trace(job_log(tmp_path, [{"submitted_time": 1507532500, "attempts": [one]}]))
    assert (trace.start_s, trace.duration_s.tolist()) == (1507532500.0, [10.5])


def test_a_duration_may_be_said_by_a_beginning_and_an_end(cases, tmp_path):
    columns = {"timestamp": "creation_time", "start": "scheduled_time", "end": "deletion_time", "num_gpus": "num_gpu"}
    assert load_trace(cases / "traces" / "openb.csv").duration_s.tolist() == [10_769_854 - 9_437_497, 9_769_854 - 9_437_600]
    trace = load_trace(cases / "traces" / "openb.csv", columns=TraceColumns(**columns))
    assert trace.time_s.tolist() == [0.0, 3.0]
    assert trace.duration_s.tolist() == [10_769_854 - 9_437_497, 9_769_854 - 9_437_600]
    whole = load_trace(cases / "traces" / "openb.csv", min_gpus=1, columns=TraceColumns(**columns))
    assert whole.duration_s.tolist()[:2] == [12_537_496, 12_902_960 - 427_061]
    path = trace_file(tmp_path, "timestamp,num_gpus,end\n5,2,4\n")
    with pytest.raises(InputFileError, match=r"trace.csv:2: end: a job ends before it begins \(got '4'\)"):
        load_trace(path, columns=TraceColumns(end="end"))
    assert load_trace(
        trace_file(tmp_path, "timestamp,num_gpus,end\n5,2,9\n6,2,\n"), columns=TraceColumns(end="end")
    ).duration_s == [4]
