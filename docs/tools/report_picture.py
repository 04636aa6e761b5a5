"""Writes `images/report.png`, a report of a training step as Chromium shows it.

The step is one of a transformer of twelve layers. Chromium and its driver must be installed, and a
C compiler. The step is profiled on the machine that runs this, so its times differ from run to run.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import weft
from weft.functional import trees

IMAGE = Path(__file__).parents[1] / "images" / "report.png"
WIDTH, HEIGHT, SCALE = 1500, 900, 0.8
"""The size of the window, and how many pixels of the picture one of its pixels is."""

OPEN = """
const click = (element) => element.dispatchEvent(new MouseEvent("click", {bubbles: true}));
const field = document.querySelector("input[type=search]");
field.value = "softmax 6/";
field.dispatchEvent(new Event("input"));
click(document.querySelector(".result.op"));
field.value = "";
"""
"""Searches the softmax of the seventh layer, and selects it."""

LAYERS, SHAPE = 12, (4, 32, 64)
BLOCK = weft.nn.TransformerBlock(4, 256, is_causal=True)
NET = weft.nn.Sequential(*[BLOCK] * LAYERS, weft.nn.Dense(64))
OPTIMIZER = weft.optim.adam(1e-3)


def loss(params: Any, x: Any, y: Any) -> Any:
    """Return the mean square of errors."""
    return weft.mean((NET(params, x) - y) ** 2)


def train_step(params: Any, state: Any, x: Any, y: Any) -> Any:
    """Return the loss, new parameters and a new state."""
    value, gradients = weft.value_and_grad(loss)(params, x, y)
    return value, *OPTIMIZER.update(gradients, state, params)


def write_report(path: Path) -> None:
    """Write the report of a training step."""
    random = np.random.default_rng(0)
    params = NET.init(random, SHAPE)
    x, y = (random.standard_normal(SHAPE).astype("float32") for _ in range(2))
    args = params, OPTIMIZER.init(params), x, y
    with weft.make_transformer("native") as transformer:
        computation = weft.jit(train_step, backend=transformer).lower(*args)
        computation.report(path, *trees.flatten((args, {}))[0])


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
        WebDriverWait(browser, 30).until(lambda each: each.find_elements(By.CLASS_NAME, "node"))
        browser.execute_script(OPEN)
        browser.save_screenshot(str(image))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(page)
        photograph(page, IMAGE)
    print(f"{IMAGE}: {IMAGE.stat().st_size} bytes")
