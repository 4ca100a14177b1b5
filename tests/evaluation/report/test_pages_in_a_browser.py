"""Reports as a headless Chromium shows them: narrow and wide, with scripts and without, with names that want to be scripts."""

import pytest
from meshwright.evaluation.plots.interactive.gantt_charts import episode_chart

from meshwright.evaluation.report.pages import Drawn
from meshwright.evaluation.report.report import report_html
from meshwright.evaluation.report.report_parts import Sections

from ...chromium import chromium
from ..plots.test_gantt import episode, scenario  # noqa: F401 - a fixture
from .samples import results, row

pytestmark = pytest.mark.scheduler("chromium")

RUNS = "<img src=x onerror='window.ran=1'><script>window.ran=1</script>"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" id="{0}"><text>{0}</text></svg>'


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
    rows = [
        row("cluster", name, [x, x + 0.1], kind, mean_completion_s=[60.0 / x] * 2)
        for name, kind, x in ((RUNS, "learned", 0.5), ("min", "baseline", 0.1))
    ]
    found = results("cluster", *rows, benchmark=RUNS, verdict=RUNS)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_html(found, Sections("", [Drawn([SVG.format("occupancy")], "", chart)]), command=RUNS))
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
