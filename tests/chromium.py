"""A headless Chromium, driven by its own driver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .schedulers import processes

FLAGS = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "disable-quic",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
)


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with a profile of its own, ended behind the block; skips where Chromium is not installed."""
    processes.require("chromium", "chromium", "chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium", path=processes.search_path())
    for flag in (*FLAGS, f"user-data-dir={profile}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    program = shutil.which("chromedriver", path=processes.search_path())
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(program))
    driver.set_page_load_timeout(20)  # as where earlier pages held on to all connections
    try:
        yield driver
    finally:
        driver.quit()
