"""Reports as a headless Chromium shows them: narrow and wide, with scripts and without, with names that want to be scripts."""

import pytest
from meshwright.evaluation.plots.interactive.gantt_charts import episode_chart

from meshwright.evaluation.report.compared import elastic_report
from meshwright.evaluation.report.report import report_html

from ...chromium import chromium
from ..plots.test_gantt import episode, scenario  # noqa: F401 - a fixture
from .test_report import SVG, results, row
from .test_summary_of_all import ELASTIC, elastic_row

pytestmark = pytest.mark.scheduler("chromium")

RUNS = "<img src=x onerror='window.ran=1'><script>window.ran=1</script>"


def elastic_page(_):
    rows = [elastic_row(RUNS, "learned", 60.0), *ELASTIC["rows"]]
    results = ELASTIC | {"rows": rows, "benchmark": RUNS, "verdict": RUNS, "remarks": [RUNS]}
    return elastic_report(results, command=f"meshwright evaluate '{RUNS}'")


OTHERS = {"elastic": elastic_page}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture(scope="module")
def page(scenario, tmp_path_factory):  # noqa: F811
    """A report whose policies and job graphs have names that would run where they were not escaped."""
    record = episode(scenario, [4, 0, 2, 1], [1, 0, 0.5, 2])
    chart = episode_chart(scenario, [(RUNS, record), ("max", record)])
    chart["types"][0]["name"] = RUNS
    against = {"policy": "min", "mean": 0.4, "low": 0.3, "high": 0.5}
    found = results(row(RUNS, 0.5, against=against) | {"mean_completion_s": {"mean": 60.0, "low": 50.0, "high": 70.0}})
    found["benchmark"] = found["verdict"] = RUNS
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_html(found, gantt=(SVG.format("occupancy"), chart), command=RUNS))
    return path


def show(browser, path, width, *, script=True):
    sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
    browser.get(path.as_uri())


def visible(browser, selector):
    return [one.is_displayed() for one in browser.find_elements("css selector", selector)]


@pytest.mark.parametrize("width", [420, 800, 1280])
def test_the_page_is_never_scrolled_sideways_and_no_name_runs(browser, page, width):
    browser.get_log("browser")
    show(browser, page, width)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.execute_script("return window.ran") is None
    assert RUNS in browser.find_element("css selector", "h1").text
    for canvas in browser.find_elements("css selector", "canvas"):
        assert 300 < canvas.rect["width"] <= width
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("kind", ["elastic"])
def test_pages_of_other_kinds_fit_as_well(browser, tmp_path, kind, width):
    browser.get_log("browser")
    (tmp_path / f"{kind}.html").write_text(OTHERS[kind](tmp_path))
    show(browser, tmp_path / f"{kind}.html", width)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.execute_script("return window.ran") is None
    assert RUNS in browser.find_element("css selector", "body").text
    for panel in browser.find_elements("css selector", ".panels > svg"):
        assert 300 < panel.rect["width"] < min(width, 600)
    assert browser.get_log("browser") == []


def test_a_chart_tells_what_is_pointed_at_and_moves(browser, page):
    from selenium.webdriver import ActionChains

    show(browser, page, 1280)
    gantt = browser.find_elements("css selector", ".interactive")[1]
    canvas = gantt.find_element("css selector", "canvas")
    ask = """const [box, bar] = arguments, top = box.getBoundingClientRect();
      for (let y = 60; y < 400; y += 3) for (let x = 150; x < 800; x += 5) {
        const event = {clientX: top.left + x, clientY: top.top + y, bubbles: true};
        box.dispatchEvent(new PointerEvent("pointermove", event));
        const tip = box.parentElement.querySelector(".tip");
        if (!tip.hidden && tip.textContent.includes(bar)) return tip.textContent;
      } return null;"""
    told = browser.execute_script(ask, canvas, "ranks: ")
    assert told.startswith("job ")
    assert " to " in told
    before = canvas.screenshot_as_png
    ActionChains(browser).double_click(canvas).perform()
    assert canvas.screenshot_as_png != before
    drawing = gantt.find_element("xpath", "following-sibling::div")
    assert not drawing.is_displayed()
    gantt.find_element("css selector", ".swap").click()
    assert drawing.is_displayed()


def test_without_scripts_the_drawings_stand_there(browser, page):
    show(browser, page, 800, script=False)
    try:
        assert not any(visible(browser, ".interactive"))
        assert all(visible(browser, ".drawing"))
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_browser_refuses_a_script_that_came_in(browser, page, tmp_path):
    worse = tmp_path / "worse.html"
    worse.write_text(page.read_text().replace("<h1>", "<script>window.ran = 1</script><h1>", 1))
    show(browser, worse, 800)
    assert browser.execute_script("return window.ran") is None
    assert "Content Security Policy" in str(browser.get_log("browser"))
