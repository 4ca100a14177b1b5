"""The pages as a headless Chromium shows them, wide and narrow, light and dark, with JavaScript and without."""

import io
import threading
from contextlib import contextmanager, suppress

import httpx2 as httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image

from meshwright.live.sources.listings import Listing
from meshwright.live.web.access import Token, new_token

from ...chromium import chromium
from ...schedulers import processes
from .page_samples import Fixed, app_of, busy, clos, controller_of, lived

pytestmark = pytest.mark.scheduler("chromium")

WIDE, NARROW = 1280, 375
RUNS = "<img src=x onerror='window.ran=1'><script>window.ran=1</script>"

ILLEGIBLE = """
const seen = (text) => { const [r, g, b, a] = text.match(/[\\d.]+/g).map(Number); return {rgb: [r, g, b], a: a ?? 1}; };
const luminance = (rgb) => rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (one) => { for (; one; one = one.parentElement) { const found = seen(getComputedStyle(one).backgroundColor);
  if (found.a > 0) return found.rgb; } return [255, 255, 255]; };
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const one = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || one.closest("svg, noscript") || !one.checkVisibility()) continue;
  const pair = [luminance(seen(getComputedStyle(one).color).rgb), luminance(ground(one))].sort((a, b) => b - a);
  const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  if (ratio < 4.5) found.push([walker.currentNode.data.trim(), ratio]);
}
return found;
"""
"""Texts whose contrast with their ground is below 4.5. Source: W3C, "Web Content Accessibility Guidelines 2.2", 1.4.3."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@contextmanager
def served(controller, sources=(), tokens=None, **options):
    """The address of a running service."""
    app, service = app_of(controller, sources, tokens, **options)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    end = server.shutdown

    async def shutdown(sockets=None):
        await service.begin_to_stop()
        await end(sockets)

    server.shutdown = shutdown
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        processes.wait_for(lambda: server.started, "the service")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def busy_service(tmp_path_factory):
    """A service of 64 busy hosts, and ids of its decisions."""
    controller = controller_of(clos(64), tmp_path_factory.mktemp("ledger"))
    controller.take(Listing(busy(controller.cluster)))
    stored = lived(controller)
    state = controller.store.last()[1]
    listed = state.model_copy(update={"jobs": tuple(job for job in state.jobs if job.source != "plan")})
    with served(controller, [Fixed(listed)]) as url:
        yield url, stored[0].decision.id


def show(browser, url, width=WIDE, *, dark=False, grey=False, script=True):
    """Open an address as it is seen by somebody."""
    sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    browser.execute_cdp_cmd("Emulation.setEmulatedVisionDeficiency", {"type": "achromatopsia" if grey else "none"})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
    browser.get(url)


def one(browser, selector):
    return browser.find_element("css selector", selector)


def texts(browser, selector):
    return [result.text for result in browser.find_elements("css selector", selector)]


def until(browser, condition, what):
    """Wait for something on the page; while one page is left for another there may be neither."""
    from selenium.common.exceptions import WebDriverException

    def holds():
        with suppress(WebDriverException):
            return condition(browser)

    processes.wait_for(holds, what, limit_s=15)


def decide(url, name, devices=1):
    request = {"job": "zoo:gpt2-small", "name": name, "devices": devices}
    return httpx.post(f"{url}/v1/decisions", json=request, headers={"origin": url}).raise_for_status().json()


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_has_to_be_scrolled_sideways_and_all_text_stands_out(browser, busy_service, width, dark):
    url, decision = busy_service
    browser.get_log("browser")
    for path in ("/", "/decisions", f"/decisions/{decision}"):
        show(browser, url + path, width, dark=dark)
        browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), path
        assert browser.execute_script(ILLEGIBLE) == [], path
    assert [line for line in browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")] == []  # of the policy, say


def test_a_stale_state_is_the_first_thing_that_is_read(browser, tmp_path):
    controller = controller_of(clos(4), tmp_path)
    with served(controller, [Fixed(busy(controller.cluster))], max_age_s=1e-9) as url:
        show(browser, url, NARROW)
        alarm = one(browser, "main > *:first-child .alarm")
        assert alarm.text.startswith("Stale: slurm listed")
        assert alarm.is_displayed()
        assert alarm.location["y"] < 200
        assert browser.execute_script(ILLEGIBLE) == []


def test_closed_hosts_are_recognised_without_colours(browser, tmp_path):
    controller = controller_of(clos(16), tmp_path)
    controller.take(Listing(busy(controller.cluster)))
    with served(controller) as url:
        show(browser, url, grey=True)
        sheet = np.asarray(Image.open(io.BytesIO(one(browser, "[data-part=hosts]").screenshot_as_png)).convert("RGB"), float)
        assert np.ptp(sheet, axis=-1).max() < 3  # nothing but grey is left
        top = one(browser, "[data-part=hosts]").rect

        def spread(selector):
            box = one(browser, selector).rect
            x, y = int(box["x"] - top["x"]) + 4, int(box["y"] - top["y"]) + 4
            return float(sheet[y : y + 8, x : x + 9].std())

        # A free device is one even surface, one of a closed host a pattern; word and edge tell which.
        drained, down, free = ".host.drained rect.edge", ".host.down rect.edge", ".host.up rect.free"
        assert spread(free) < 1 < 15 < min(spread(drained), spread(down))
        assert texts(browser, ".host.drained .word") == ["drained", "drained"]
        assert texts(browser, ".host.down .word") == ["down"]
        dashes = {kind: one(browser, f".host.{kind}").value_of_css_property("border-top-style") for kind in ("drained", "down")}
        assert dashes == {"drained": "dashed", "down": "solid"}


def test_a_page_follows_the_service_and_leaves_the_reader_where_he_is(browser, tmp_path):
    with served(controller_of(clos(4), tmp_path)) as url:
        show(browser, url)
        browser.execute_script("window.same = 1")
        summary = one(browser, "[data-key=host-l0-h1] > summary")
        summary.click()
        browser.execute_script("arguments[0].focus()", summary)
        decide(url, "the-new-one", devices=9)
        until(browser, lambda seen: "the-new-one" in one(seen, "[data-part=queue]").text, "the new decision")
        httpx.post(f"{url}/v1/decisions", json={"job": "zoo:never"}).raise_for_status()
        until(
            browser, lambda seen: "zoo:never" in one(seen, "[data-part=last]").text, "the decision that is no change of the state"
        )
        assert browser.execute_script("return window.same") == 1
        assert one(browser, "[data-key=host-l0-h1]").get_attribute("open")
        assert browser.execute_script("return document.activeElement.parentElement.dataset.key") == "host-l0-h1"
        assert "7 of 8 devices free" in one(browser, "#host-l0-h1").text
    until(browser, lambda seen: one(seen, "#lost").is_displayed(), "the word that the service is gone")
    assert one(browser, "#lost").text.startswith("The service does not answer.")


def test_everything_works_without_javascript(browser, busy_service):
    url, decision = busy_service
    show(browser, url, script=False)
    try:
        assert "load it anew" in one(browser, "main noscript").text
        one(browser, "[data-key=host-l0-h1] > summary").click()
        assert "a fan is broken" in one(browser, "#host-l0-h1").text
        one(browser, f"a[href='/decisions/{decision}']").click()
        assert "the first devices that were free" in one(browser, ".verdict").text
        assert one(browser, ".chart svg").rect["width"] > 600
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_everything_is_reached_by_keys_and_shows_that_it_is(browser, tmp_path):
    controller = controller_of(clos(4), tmp_path)
    controller.take(Listing(busy(controller.cluster)))
    lived(controller, 2)
    with served(controller) as url:
        show(browser, url)
        expected = (
            "return [...document.querySelectorAll('a[href], button, summary')].filter((one) => one.checkVisibility()).length"
        )
        reached = []
        for _ in range(browser.execute_script(expected)):
            browser.switch_to.active_element.send_keys("\ue004")  # the tab key
            focused = browser.switch_to.active_element
            reached.append(focused.id)
            style = [focused.value_of_css_property(f"outline-{part}") for part in ("style", "width")]
            assert style == ["solid", "3px"], focused.get_attribute("outerHTML")
            assert focused.rect["x"] >= 0
        assert len(set(reached)) == len(reached)


def test_a_reader_whose_session_is_over_is_led_to_the_sign_in(browser, tmp_path):
    token, line = new_token("read")
    controller = controller_of(clos(1), tmp_path)
    with served(controller, tokens=[Token(*line.split())]) as url:
        show(browser, url)
        one(browser, "#token").send_keys(token, "\ue007")
        until(browser, lambda seen: seen.current_url == f"{url}/", "the page")
        browser.delete_all_cookies()
        browser.execute_script("soon()")
        until(browser, lambda seen: "/sign-in" in seen.current_url, "the sign-in")
