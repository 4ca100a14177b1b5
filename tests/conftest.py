"""Fixtures that several floors share, the setting of hypothesis, and the rules for reference data and real schedulers.

Where ``MESHWRIGHT_REFERENCE`` is set, no test marked ``reference`` may be skipped, and the whole suite must run at least
one of them. Where it is not set they use ``../shared/reference``, and are skipped without it.

Tests marked ``scheduler(NAME)`` start the real one. They are skipped where it is not installed; the last line of a run
says which schedulers were proved and, of the others, why not.
"""

import gc
import os
import re
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from .draws import UNNAMED, num_cases

# How long one example takes depends on what else the machine does, so no example has a deadline. Where CI is set, the
# examples are the same in every run: a failure there is one of the change at hand.
hypothesis.settings.register_profile(
    "project", deadline=None, max_examples=num_cases(UNNAMED), derandomize=bool(os.environ.get("CI"))
)
hypothesis.settings.load_profile("project")

# The tests run in as many processes as there are cores: threads of one would wait for cores that the others hold.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A program that is started in the background may have been told to ignore Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

VARIABLE = "MESHWRIGHT_REFERENCE"
_tmp_paths = count()
_ran_reference: set[str] = set()
_schedulers: dict[str, dict[str, list[str]]] = {}
"""For each scheduler, for each outcome, the tests or, where they were skipped, the reasons."""


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference data, or a skip that says where it was looked for."""
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "reference"
    if not (folder / "README.md").is_file():
        pytest.skip(f"no reference data at {folder} (set {VARIABLE})")
    return folder


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of small inputs from practice, next to the reference data, or a skip that says where it was looked for."""
    named = os.environ.get(VARIABLE)
    folder = (Path(named).parent if named else Path(__file__).resolve().parents[2] / "shared") / "cases"
    if not (folder / "README.md").is_file():
        pytest.skip(f"no cases at {folder}")
    return folder


@pytest.fixture(scope="session")
def published_steps(reference: Path) -> Any:
    """Every published step time as predicted, once for all tests that hold them against something."""
    from meshwright.evaluation.validation.step_times.validate import validate

    names = ("step_times.json", "step_times_h100.json", "vtrain_single_node.csv")
    return validate([reference / "published" / name for name in names])


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Pages hold the data of their figures alone, neither images of them nor plotly.js: for tests of the pages around them."""
    from meshwright.evaluation.report import pages

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "data_url", lambda figure: "data:,")
        patch.setattr(pages, "_plotly", lambda: pages._digested("0"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Step times go to a folder of the test run, one for all its workers, never to the user's cache; subprocesses inherit it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "step_times"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHWRIGHT_CACHE", str(folder))
        yield


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """As pytest's own, without a look at the names of all former folders, which are thousands, for one that is free."""
    name = re.sub(r"\W", "_", request.node.name)[:25]
    path = tmp_path_factory.getbasetemp() / f"{next(_tmp_paths)}-{name}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """No test cuts the power, so nothing waits until a file has reached the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _nohup_is_for_the_tests_alone() -> None:
    """Under nohup the tests go on when the terminal is closed; the programs that they start end of it as anywhere else."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a law that is marked ``every(n)``, all but one of each n and the last are marked slow.

    Each n cases keep the one after that which the n before kept, so that no value of a parameter is always left out.
    """
    laws: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("every"):
            laws.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in laws.values():
        step = int(cases[0].get_closest_marker("every").args[0])  # type: ignore[union-attr]
        for number, item in enumerate(cases[:-1]):
            if number % step != number // step % step:
                item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Exempt modules and collected tests, which live to the end, from the garbage collector."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    if os.environ.get(VARIABLE) and report.skipped and not expected_failure and item.get_closest_marker("reference"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{VARIABLE} is set, so this reference test must not be skipped. {reason}"
    marked = item.get_closest_marker("scheduler")
    if marked and (report.when == "call" or not report.passed):
        report.user_properties.append(("scheduler", str(marked.args[0]) if marked.args else item.path.stem))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "reference" in report.keywords:
        _ran_reference.add(report.nodeid)
    for scheduler in {value for name, value in report.user_properties if name == "scheduler"}:
        is_skip = report.skipped and isinstance(report.longrepr, tuple)
        message = report.longrepr[2].removeprefix("Skipped: ") if is_skip else report.nodeid
        _schedulers.setdefault(scheduler, {}).setdefault(report.outcome, []).append(message)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    messages = []
    for scheduler, outcomes in sorted(_schedulers.items()):
        passed, failed, skipped = (outcomes.get(outcome, []) for outcome in ("passed", "failed", "skipped"))
        if failed:
            messages.append(f"{scheduler} FAILED ({len(failed)} of {len(passed) + len(failed)})")
        elif passed:
            but = f", {len(skipped)} skipped: {skipped[0]}" if skipped else ""
            messages.append(f"{scheduler} proved ({len(passed)} test{'s' * (len(passed) > 1)}{but})")
        else:
            messages.append(f"{scheduler} NOT proved: {skipped[0]}")
    if messages:
        terminalreporter.write_line(f"schedulers: {'; '.join(messages)}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    whole_suite = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not (
        config.option.keyword
        or config.option.markexpr not in ("", "not scheduler", "not scheduler and not slow")
        or config.option.collectonly
        or getattr(config.option, "lf", False)
    )
    is_worker = hasattr(config, "workerinput")
    if os.environ.get(VARIABLE) and whole_suite and not is_worker and exitstatus == 0 and not _ran_reference:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(f"\n{VARIABLE} is set, yet no reference test ran.", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
