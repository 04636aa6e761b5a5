"""Writes `images/report.png`, a report of a training step as Chromium shows it.

Chromium and its driver must be installed. The step is profiled on the machine that runs this, so
its times differ from run to run.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

import weft

IMAGE = Path(__file__).parents[1] / "images" / "report.png"
WIDTH, HEIGHT, SCALE = 1500, 900, 0.8
"""The size of the window, and how many pixels of the picture one of its pixels is."""

OPEN = """
const click = (element) => element.dispatchEvent(new MouseEvent("click", {bubbles: true}));
const named = (selector, text) => [...document.querySelectorAll(selector)]
  .find((each) => each.textContent.includes(text));
click(named(".stage", "Fusion"));
click(named(".node.kernel", "matmul_tanh").querySelector(".sign"));
click(named(".tools button", "Fit"));
click(named(".node.kernel", "subtract"));
"""
"""Shows the graph after fusion with a kernel that is open, and another that is selected."""


def write_report(path: Path) -> None:
    """Write the report of a training step."""
    random = np.random.default_rng(0)
    images = weft.placeholder((64, 784), name="images")
    labels = weft.placeholder((64, 10), name="labels")
    first, second = (0.05 * random.standard_normal(shape) for shape in ((784, 128), (128, 10)))
    w1 = weft.variable(first.shape, initial_value=first, name="w1")
    w2 = weft.variable(second.shape, initial_value=second, name="w2")

    hidden = weft.tanh(images @ w1)
    chances = weft.softmax(hidden @ w2, 1)
    loss = -weft.mean(weft.sum(weft.log(chances) * labels, 1))
    updates = [weft.assign(w, w - 0.1 * weft.deriv(loss, w)) for w in (w1, w2)]

    with weft.make_transformer("numpy") as transformer:
        step = transformer.computation([loss, *updates], images, labels, name="train_step")
        classes = np.eye(10, dtype="float32")[random.integers(0, 10, 64)]
        step.report(path, random.standard_normal((64, 784)).astype("float32"), classes)


def photograph(page: Path, image: Path) -> None:
    """Write a picture of a page."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        sys.exit("there is no Chromium, or no driver of it: apt-get install chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    with webdriver.Chrome(options=options, service=Service(driver)) as browser:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": SCALE, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(page.as_uri())
        browser.execute_script(OPEN)
        browser.save_screenshot(str(image))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(page)
        photograph(page, IMAGE)
    print(f"{IMAGE}: {IMAGE.stat().st_size} bytes")
