"""Reports as a headless Chromium without a network shows them: narrow and wide, dark, without scripts, with hostile names."""

import pytest

from meshwright.evaluation.plots.gantt import MOST_BARS, Bar, Lanes, episode_figure, gantt_figure
from meshwright.evaluation.report import pages
from meshwright.evaluation.report.pages import Sections
from meshwright.evaluation.report.report import report_html

from ...chromium import chromium
from ..plots.test_gantt import episode, scenario  # noqa: F401 - a fixture
from .samples import results, row
from .test_report import CURVE

pytestmark = pytest.mark.scheduler("chromium")

RUNS = "<img src=x onerror='window.ran=1'><script>window.ran=1</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        driver.set_page_load_timeout(60)
        driver.set_script_timeout(60)
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield driver


@pytest.fixture(scope="module")
def page(scenario, tmp_path_factory):  # noqa: F811
    """A report whose policies and job graphs have names that would run where they were not escaped."""
    record = episode(scenario, [4, 0, 2, 1], [1, 0, 0.5, 2])
    rows = [
        row("cluster", name, [x, x + 0.1], kind, mean_completion_s=[60.0 / x] * 2)
        for name, kind, x in ((RUNS, "learned", 0.5), ("min", "baseline", 0.1))
    ]
    result = results("cluster", *rows, benchmark=RUNS, verdict=RUNS)
    sections = Sections(drawn=[pages.Drawn(episode_figure(scenario, [(RUNS, record), ("max", record)]), RUNS)])
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_html(result, sections, learning_curve=CURVE, command=RUNS))
    return path


def show(browser, path, width, *, script=True, dark=False):
    sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
    browser.get(path.as_uri())
    if script:
        browser.execute_async_script("""const done = arguments[0], boxes = [...document.querySelectorAll(".figure")];
          const wait = () => boxes.every((one) => one.dataset.drawn) ? done() : setTimeout(wait, 50); wait();""")


def check(browser, width):
    """Nothing is wider than the page, nothing ran, nothing was asked of the network, and every panel has its height."""
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.execute_script("return window.ran") is None
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.get_log("browser") == []
    plots = browser.execute_script("""return [...document.querySelectorAll(".plot")].map((one) => [one.clientWidth,
      one._fullLayout._size.h - one.layout.meta.inner, one.querySelectorAll("svg").length])""")
    assert plots
    for plot_width, missing, svgs in plots:
        assert 300 < plot_width <= width
        assert abs(missing) <= 10
        assert svgs > 0


@pytest.mark.parametrize(("width", "dark"), [(420, False), (1280, True)])
def test_the_page_draws_offline_without_errors_and_no_name_runs(browser, page, width, dark):
    browser.get_log("browser")
    show(browser, page, width, dark=dark)
    check(browser, width)
    assert RUNS in browser.find_element("css selector", "h1").text
    ticks = browser.execute_script("return [...document.querySelectorAll('.ytick text')].map((one) => one.textContent)")
    assert any(text.startswith("<img src=x") for text in ticks)
    colour = browser.execute_script("return getComputedStyle(document.querySelector('.xtick text')).fill")
    assert colour == ("rgb(232, 232, 232)" if dark else "rgb(34, 34, 34)")


def test_pages_of_other_kinds_fit_as_well(browser, tmp_path):
    browser.get_log("browser")
    rows = row("elastic", RUNS, [60.0], "learned"), row("elastic", "tiresias", [90.0])
    result = results("elastic", *rows, verdict=RUNS, remarks=[RUNS])
    (tmp_path / "elastic.html").write_text(report_html(result, command=f"meshwright evaluate '{RUNS}'"))
    show(browser, tmp_path / "elastic.html", 420)
    check(browser, 420)
    assert RUNS in browser.find_element("css selector", "body").text


def test_a_bar_says_what_it_is_and_zoom_is_shared_by_panels(browser, page):
    show(browser, page, 1280)
    hovered = """const plot = [...document.querySelectorAll(".plot")].find((one) => one.layout.yaxis3);
      const bar = plot.data.findIndex((trace) => trace.type === "bar");
      Plotly.Fx.hover(plot, [{curveNumber: bar, pointNumber: 0}], ["xy"]);
      return [...plot.querySelectorAll(".hovertext")].map((one) => one.textContent).join()"""
    reported = browser.execute_script(hovered)
    assert "job 0" in reported
    assert "ranks" in reported
    zoomed = """const [done] = arguments, plot = [...document.querySelectorAll(".plot")].find((one) => one.layout.yaxis3);
      Plotly.relayout(plot, {"xaxis.range": [1, 2]}).then(() => done(plot._fullLayout.xaxis2.range))"""
    assert browser.execute_async_script(zoomed) == [1, 2]
    titles = "return [...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)"
    assert not [title for title in browser.execute_script(titles) if "hare" in title]  # no button uploads


def test_thousands_of_bars_are_drawn(browser, tmp_path):
    bars = [Bar(60.0 * k, 60.0 * k + 50.0, k % 64, 1, "job", (f"job {k}",)) for k in range(MOST_BARS)]
    result = gantt_figure("", [Lanes("", bars, [("host", 0, 64)])], {"job": ("#0072b2", "")}, (0.0, 60.0 * MOST_BARS))
    drawn = [pages.Drawn(result, "")]
    (tmp_path / "many.html").write_text(pages.page("drawing.html", title="", heading="", facts=[], drawn=drawn))
    show(browser, tmp_path / "many.html", 1280)
    check(browser, 1280)
    assert browser.execute_script("return document.querySelectorAll('.bars .point').length") == MOST_BARS


def test_without_scripts_there_are_images(browser, page):
    show(browser, page, 800, script=False)
    try:
        images = browser.find_elements("css selector", "noscript img")
        assert len(images) == page.read_text().count("<figure>")
        assert all(image.is_displayed() and image.size["height"] > 100 for image in images)
        assert not any(one.is_displayed() for one in browser.find_elements("css selector", ".figure"))
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_browser_refuses_a_script_that_came_in(browser, page, tmp_path):
    worse = tmp_path / "worse.html"
    worse.write_text(page.read_text().replace("<h1>", "<script>window.ran = 1</script><h1>", 1))
    show(browser, worse, 800)
    assert browser.execute_script("return window.ran") is None
    assert "Content Security Policy" in str(browser.get_log("browser"))


def test_a_page_holds_plotly_once_and_a_page_without_figures_holds_no_script(page):
    assert page.read_text().count("* plotly.js v") == 1
    assert "</script" not in pages._plotly()[0]
    bare = pages.page("drawing.html", title="", heading="", facts=[], drawn=[])
    assert "script-src" not in bare
    assert "<script" not in bare
