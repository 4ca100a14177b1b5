import pytest

from meshwright.errors import InputFileError
from meshwright.jobs.readers.trace_rows import TraceColumns
from meshwright.jobs.trace import load_trace

# Rows in the published schema: without a header, times in seconds, GPUs in hundredths.
TASKS = """\
4f05,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC
b,ps,2.0,Terminated,1739262.0,1749900.0,600.0,29.296875,,
b,worker,16.0,Terminated,1739300.0,1739800.0,600.0,29.296875,25.0,V100
b,evaluator,1.0,Failed,1739400.0,1739900.0,600.0,29.296875,100.0,V100
c,worker,2.0,Running,1739400.0,,600.0,29.296875,100.0,P100
d,worker,1.0,Terminated,1739290.0,1739390.0,600.0,29.296875,800.0,V100M32
e,worker,,Failed,1739290.0,1739390.0,600.0,29.296875,100.0,V100M32
"""
JOBS = "b,i2,u,Terminated,1739250.0,1749900.0\nd,i4,v,Terminated,1739280.5,1739390.0\n"
TAGS = "i2,u,V100,g2,ctr\ni4,v,,g3,\n"


@pytest.fixture
def tasks(tmp_path):
    (tmp_path / "pai_task_table.csv").write_text(TASKS)
    return tmp_path / "pai_task_table.csv"


def test_tasks_worked_by_hand(tasks):
    trace = load_trace(tasks)
    # b: 16 quarters of a GPU and a whole one, from 1739300 to 1739900; d: 8 GPUs for 100 s. c still runs, e has no instances.
    assert trace.start_s == 1739290
    assert trace.time_s.tolist() == [0, 10]
    assert trace.duration_s.tolist() == [100, 600]
    assert trace.requested_gpus.tolist() == [8, 5]
    assert trace.work_s.tolist() == [800, 3000]
    assert load_trace(tasks, min_gpus=1).work_s.tolist() == [800, 3000]  # half a GPU is none


def test_a_header_that_somebody_put_there_changes_nothing(tasks, tmp_path):
    before = load_trace(tasks)
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    (tmp_path / "mine.csv").write_text(header + TASKS)
    after = load_trace(tmp_path / "mine.csv", form="pai")
    assert after.work_s.tolist() == before.work_s.tolist()
    assert after.hash_fraction.tolist() == before.hash_fraction.tolist()


def test_the_table_of_jobs_tells_when_they_were_submitted(tasks):
    (tasks.parent / "pai_job_table.csv").write_text(JOBS)
    trace = load_trace(tasks)
    assert trace.start_s == 1739250
    assert trace.time_s.tolist() == [0, 30.5]
    assert trace.work_s.tolist() == [3000, 800]


def test_the_table_of_tags_tells_what_ran(tasks):
    (tasks.parent / "pai_job_table.csv").write_text(JOBS)
    (tasks.parent / "pai_group_tag_table.csv").write_text(TAGS)
    assert load_trace(tasks, columns=TraceColumns(model="workload")).model == ("ctr", "")
    assert load_trace(tasks, columns=TraceColumns(model="group")).model == ("g2", "g3")
    with pytest.raises(InputFileError, match=r"columns.model: .* has no such column \(got 'wrkload'\); did you mean 'workload'"):
        load_trace(tasks, columns=TraceColumns(model="wrkload"))
    with pytest.raises(InputFileError, match=r"columns.steps: .* only model may be said"):
        load_trace(tasks, columns=TraceColumns(steps="steps"))
    (tasks.parent / "pai_job_table.csv").unlink()
    with pytest.raises(InputFileError, match=r"pai_job_table.csv: columns.model: .*next to the table of tasks"):
        load_trace(tasks, columns=TraceColumns(model="workload"))


@pytest.mark.parametrize(
    ("result", "instead", "message"),
    [
        (",MISC", "", "pai_task_table.csv:1: has 9 columns, not the 10 of pai_task_table.csv"),
        ("16.0", "many", r"pai_task_table.csv:3: inst_num: must be a number \(got 'many'\)"),
        ("1739800.0", "-1", "end_time: must be finite and not negative"),
        (",800.0", ",x", "plan_gpu: must be a number"),
        (",800.0", ",1e9", "num_gpus: no cluster has more than 100000"),
    ],
)
def test_a_malformed_table_is_refused(tasks, result, instead, message):
    assert result in TASKS
    tasks.write_text(TASKS.replace(result, instead, 1))
    with pytest.raises(InputFileError, match=message):
        load_trace(tasks)


def test_times_of_more_than_four_months_and_cells_of_none(tmp_path):
    rows = "a,worker,1.0,Terminated,12345600.0,12345678.0,600.0,29.3,200.0,MISC\nb,ps,1.0,Terminated,None,None,600.0,29.3,None,\n"
    (tmp_path / "pai_task_table.csv").write_text(rows)
    trace = load_trace(tmp_path / "pai_task_table.csv")
    assert (trace.start_s, trace.duration_s.tolist()) == (12345600.0, [78.0])


def test_a_submission_that_is_no_time_is_told_by_its_own_table(tasks, tmp_path):
    (tmp_path / "pai_job_table.csv").write_text(JOBS + "a,i1,u,Terminated,soon,1739390.0\n")
    with pytest.raises(InputFileError, match=r"pai_job_table\.csv:3: start_time: must read .* \(got 'soon'\)"):
        load_trace(tasks)
