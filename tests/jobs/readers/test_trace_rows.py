import pytest

from meshwright.errors import InputFileError
from meshwright.jobs.readers.trace_rows import TraceColumns
from meshwright.jobs.trace import load_trace

# Rows as the documentation of each trace prints them (S-Lab-System-Group/HeliosData, InternLM/AcmeTrace), and one without GPUs.
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,vcpDC,0,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
"""
SEREN = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0
5778469,u5907,1,8,128,Other,COMPLETED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,2023-03-01 01:09:04+08:00,2693,13,21544.0
"""  # noqa: E501
KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlc1t2ypl09b8qtp,uf794,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:28:42+00:00,2023-05-17 11:28:54+00:00,2023-05-17 11:30:04+00:00,,2023-05-17 11:30:04+00:00,82,12.0,5248.0
waits,uf794,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:28:42+00:00,,2023-05-17 11:30:04+00:00,,,,12.0,
"""  # noqa: E501


@pytest.mark.parametrize(
    ("text", "duration_s", "gap_s", "work_s"),
    [(HELIOS, [36848, 249], 26, [36848, 996]), (SEREN, [117, 2693], 336, [936, 21544]), (KALOS, [18, 82], 1664, [1152, 5248])],
    ids=["helios", "seren", "kalos"],
)
def test_helios_and_acme_are_read_as_they_are(tmp_path, text, duration_s, gap_s, work_s):
    (tmp_path / "trace.csv").write_text(text)
    trace = load_trace(tmp_path / "trace.csv", min_gpus=1)
    assert trace.duration_s.tolist() == duration_s
    assert trace.time_s.tolist() == [0, gap_s]
    assert trace.work_s.tolist() == work_s  # what Acme itself prints as gpu_time


def test_dates_with_a_zone_are_told_as_one_moment(tmp_path):
    (tmp_path / "trace.csv").write_text(SEREN)
    assert load_trace(tmp_path / "trace.csv").start_s == 1677601102  # 2023-02-28 16:18:22 UTC


TOLD = """\
submit_time,duration,gpu_num,what,made,due,asked
2020-06-09 00:00:00,100,4,bert,1000,7200,8
2020-06-09 00:01:00,100,2,,,2020-06-09 01:00:00,
2020-06-09 00:02:00,100,2,gpt,1.0,,1.5
"""
NAMED = TraceColumns(model="what", steps="made", deadline="due", requested_gpus="asked")


def test_optional_columns_worked_by_hand(tmp_path):
    (tmp_path / "trace.csv").write_text(TOLD)
    trace = load_trace(tmp_path / "trace.csv", columns=NAMED)
    assert trace.model == ("bert", "", "gpt")
    assert trace.num_steps.tolist() == [1000, 0, 1]
    assert trace.deadline_s.tolist() == [7200, 59 * 60, float("inf")]
    assert trace.requested_gpus.tolist() == [8, 2, 2]  # what ran where nothing is said; one and a half are two
    plain = load_trace(tmp_path / "trace.csv")
    assert (plain.model, plain.num_steps, plain.deadline_s) == (None, None, None)
    assert plain.requested_gpus.tolist() == [4, 2, 2]


@pytest.mark.parametrize(
    ("cell", "value", "message"),
    [
        (",1000,", ",0,", r"trace.csv:2: steps: must be a whole number from 1 to 9007199254740992 \(got '0'\)"),
        (",1000,", ",2.5,", r"steps: must be a whole number"),
        (",1000,", ",many,", r"steps: must be a number \(got 'many'\)"),
        (",7200,", ",-5,", r"trace.csv:2: deadline: must be a date after the submission, or seconds from it \(got '-5'\)"),
        (",7200,", ",nan,", "deadline: must be a date after"),
        (",7200,", ",2020-06-08 00:00:00,", "deadline: must be a date after the submission"),
        (",7200,", ",soon,", r"deadline: must read YYYY-MM-DD HH:MM:SS, or be seconds \(got 'soon'\)"),
        (",7200,8", ",7200,100001", "requested_gpus: no cluster has more than 100000"),
        (",asked", ",wanted", r"trace.csv:1: asked: the column is missing; arrivals.columns.requested_gpus says"),
        (
            "submit_time",
            "when",
            r"timestamp: the column is missing, and so are submit_time, creation_time; arrivals.columns.timestamp says what",
        ),
    ],
)
def test_what_an_optional_column_cannot_say_is_refused(tmp_path, cell, value, message):
    assert cell in TOLD
    (tmp_path / "trace.csv").write_text(TOLD.replace(cell, value, 1))
    with pytest.raises(InputFileError, match=message):
        load_trace(tmp_path / "trace.csv", columns=NAMED)


def test_a_log_of_philly_has_no_columns_to_name(tmp_path):
    (tmp_path / "cluster_job_log").write_text("[]")  # as it is called in the published archive
    with pytest.raises(InputFileError, match=r"columns\.steps: a trace of this format has its columns by name"):
        load_trace(tmp_path / "cluster_job_log", columns=TraceColumns(steps="made"))
    with pytest.raises(InputFileError, match="holds no job"):
        load_trace(tmp_path / "cluster_job_log")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            ["0,60,2", "60,60,2", "2020-01-01 00:01:00,60,2"],
            r":4: timestamp: dates and seconds from the trace's beginning are mixed",
        ),
        (["1577836800,60,2", "5,60,2"], r":3: timestamp: dates and seconds .* mixed \(got '5'\)"),
        (["20171345,60,2"], r":2: timestamp: .*; eight digits are a date \(got '20171345'\)"),
        (["1577836800000,60,2"], r":2: timestamp: .*; 13 digits are milliseconds"),
    ],
)
def test_times_of_two_kinds_are_refused_by_row(tmp_path, rows, problem):
    (tmp_path / "trace.csv").write_text("\n".join(["timestamp,duration,num_gpus", *rows]))
    with pytest.raises(InputFileError, match=problem):
        load_trace(tmp_path / "trace.csv")


def test_numbers_since_1970_and_dates_are_the_same_times(tmp_path):
    (tmp_path / "trace.csv").write_text("timestamp,duration,num_gpus\r\n1577836800,60,2\r\n2020-01-01 01:00:00+01:00,60,2\r\n")
    assert load_trace(tmp_path / "trace.csv").time_s.tolist() == [0.0, 0.0]


def test_jobs_that_never_ran_have_no_duration_however_that_is_written(tmp_path):
    (tmp_path / "trace.csv").write_text("timestamp,duration,num_gpus\n0,None,2\n1,,2\n2,null,2\n3,60,2\n")
    assert load_trace(tmp_path / "trace.csv").duration_s.tolist() == [60.0]


def test_a_column_twice_is_refused_where_it_is_read(tmp_path):
    (tmp_path / "trace.csv").write_text("timestamp,duration,duration,num_gpus,x,x\n0,60,70,2,1,2\n")
    with pytest.raises(InputFileError, match=r":1: duration: two columns have this name"):
        load_trace(tmp_path / "trace.csv")
    (tmp_path / "trace.csv").write_text("timestamp,duration,num_gpus,x,x\n0,60,2,1,2\n")
    assert load_trace(tmp_path / "trace.csv").duration_s.tolist() == [60.0]
