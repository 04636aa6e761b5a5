"""Reports in a browser: what is clicked, searched, sorted and opened does what it says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import weft
from weft.report import document as documents

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("browser"),
]

HOSTILE = (
    "</script><script>document.title='taken'</script>"
    "<img src=x onerror=\"document.title='taken'\">'\""
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1400,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(DRIVER)) as made:
        yield made


class Page:
    """A page that is open."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return found

    def one(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element of a selector that has a text."""
        shown = [each for each in self.all(selector) if text in each.get_attribute("textContent")]
        assert shown, f"no {selector} has the text {text!r}: {self.text(selector)}"
        self.browser.execute_script(
            "arguments[0].scrollIntoView({block: 'nearest'});"
            "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))",
            shown[0],
        )

    def text(self, selector: str) -> str:
        return "\n".join(each.get_attribute("textContent") for each in self.all(selector))

    def keys(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()

    def errors(self) -> list[str]:
        return [each["message"] for each in self.browser.get_log("browser")]

    def milliseconds(self, script: str) -> float:
        """Return how long a script takes, with the layout and the style that it asks for."""
        found: float = self.browser.execute_script(
            f"const begin = performance.now(); {script};"
            "document.body.getBoundingClientRect(); return performance.now() - begin"
        )
        return found


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of a training step with a profile and names that are code."""
    x = weft.placeholder((6, 8), name="x")
    w = weft.variable((8, 8), initial_value=np.eye(8), name=HOSTILE)
    loss = weft.mean(weft.softmax(weft.tanh(x @ w), 1) ** 2)
    update = weft.assign(w, w - 0.1 * weft.deriv(loss, w))
    path = tmp_path_factory.mktemp("reports") / "step.html"
    with weft.make_transformer("numpy") as transformer:
        made = transformer.computation([loss, update], x, name=HOSTILE)
        made.report(path, np.ones((6, 8), np.float32))
        made.profile(np.ones((6, 8), np.float32)).to_html(path.with_name("profile.html"))
    return path


@pytest.fixture
def page(browser: Any, step: Path) -> Iterator[Page]:
    found = Page(browser)
    found.browser.get("about:blank")
    found.browser.get(step.as_uri())
    yield found
    assert found.errors() == []
    assert "taken" not in browser.title.removeprefix(HOSTILE)


def test_names_that_are_code_are_shown_and_not_run(page: Page) -> None:
    assert page.one("h1").text == HOSTILE
    assert page.all("img") == []
    assert len(page.all("script")) == 3
    for tab in ("graph", "code", "memory", "profile"):
        page.click(f"#tab-{tab}")
        assert page.one(f"#panel-{tab}").is_displayed()
    assert page.all("img") == []
    assert HOSTILE in page.text("#panel-memory")


def test_each_stage_shows_its_graph_and_its_changes(page: Page) -> None:
    names = [each.text for each in page.all(".stage .name")]
    assert names[0] == "captured"
    assert names[-1] == "planned"
    page.click(".stage", "Decompose")
    assert page.text(".change").count("Softmax") >= 1
    assert page.all(".node.added")
    page.click(".change", "Softmax")
    assert page.text(".graphs .about .place").startswith("test_pages.py:")
    assert len(page.all(".node.picked")) == 1
    page.click(".stage", "Fusion")
    assert page.all(".node.kernel")


def test_a_kernel_opens_to_its_ops_and_closes(page: Page) -> None:
    page.click(".stage", "planned")
    closed = len(page.all(".node"))
    page.click(".node.kernel .sign")
    opened = len(page.all(".node"))
    assert opened > closed
    assert "Operand" not in page.text(".open.kernel .title")
    page.click(".open.kernel .sign")
    assert len(page.all(".node")) == closed
    page.click(".tools button", "Open all")
    assert len(page.all(".node")) > opened
    page.click(".tools button", "Close all")
    assert len(page.all(".node")) == closed


def test_an_op_leads_to_its_operands_memory_time_and_code(page: Page) -> None:
    page.click(".stage", "planned")
    page.click(".node", "matmul")
    about = page.text(".graphs .about")
    for title in ("Operands", "Used by", "Memory", "Time"):
        assert title in about
    page.click(".graphs .about .link", "x")
    assert "input" in page.one(".node.picked").get_attribute("class")
    page.click(".node", "matmul")
    page.click(".graphs .about .link", "steps")
    assert page.one("#panel-memory").is_displayed()
    assert "made by" in page.text(".memory .about")
    page.click("#tab-graph")
    page.click(".graphs .about .link", " in ")
    assert page.one("#panel-profile").is_displayed()
    assert len(page.all(".profile tbody tr.picked")) == 1
    page.click("#tab-graph")
    page.click(".graphs .about .userline")
    assert page.one("#panel-code").is_displayed()


def test_code_is_linked_both_ways(page: Page) -> None:
    page.click("#tab-code")
    left, right = ".pane:nth-child(1) .row", ".pane:nth-child(2) .row"
    page.click(f"{left}.linked", "loss = ")
    assert "matmul" in page.text(f"{right}.picked")
    page.click(f"{right}.linked", "matmul(")
    assert "loss = " in page.text(f"{left}.picked")
    page.click(f"{left}.linked", "update = ")
    assert "loss = " not in page.text(f"{left}.picked")
    page.click(".hint .link", "Show in the graph")
    assert page.one("#panel-graph").is_displayed()


@pytest.mark.parametrize(
    ("words", "kind"),
    [("tanh", "op"), ("TANH", "op"), ("test_pages.py:", "line"), ("x @ w", "line")],
)
def test_search_finds_ops_and_lines(page: Page, words: str, kind: str) -> None:
    page.keys("/")
    page.keys(words)
    assert page.all(f".result.{kind}")
    page.click(f".result.{kind}")
    assert page.one("#panel-graph" if kind == "op" else "#panel-code").is_displayed()
    assert page.all(".node.picked" if kind == "op" else ".row.picked")


def test_search_by_line_finds_its_ops(page: Page) -> None:
    page.click(".node", "Tanh")
    place = page.all(".graphs .about .place")[0].get_attribute("textContent")
    for words in (place, place.partition(".py")[2]):
        page.one("input[type=search]").clear()
        page.one("input[type=search]").send_keys(words)
        assert any("Tanh" in each.text for each in page.all(".result.op"))
    page.one("input[type=search]").clear()
    page.one("input[type=search]").send_keys("no such op")
    assert "Nothing" in page.text(".found")


def test_columns_sort_up_and_down(page: Page) -> None:
    page.click("#tab-profile")
    for column in range(len(page.all(".profile th"))):
        orders = {}
        for _ in range(2):
            page.browser.execute_script(
                f"document.querySelectorAll('.profile th button')[{column}].click()"
            )
            sorts = [each.get_attribute("aria-sort") for each in page.all(".profile th")]
            assert [n for n, each in enumerate(sorts) if each != "none"] == [column]
            rows = page.all(".profile tbody tr")
            orders[sorts[column]] = [each.get_attribute("data-row") for each in rows]
        assert orders.keys() == {"ascending", "descending"}
        assert sorted(orders["ascending"]) == sorted(orders["descending"])
    page.click(".profile th button", "time")
    times = page.browser.execute_script(
        "const rows = JSON.parse(document.getElementById('data').textContent).profile.rows;"
        "return [...document.querySelectorAll('.profile tbody tr')]"
        ".map((each) => rows[each.dataset.row].seconds)"
    )
    assert times == sorted(times) or times == sorted(times, reverse=True)


def test_a_block_of_memory_tells_why_it_lives(page: Page) -> None:
    page.click("#tab-memory")
    assert "At the peak" in page.text(".memory .about")
    for block in range(len(page.all("rect.block"))):
        page.click(f"rect.block[data-block='{block}']")
        about = page.text(".memory .about")
        assert "made by" in about
        assert any(why in about for why in ("last reader", "overwritten", "scratch"))
        assert len(page.all("rect.block.picked")) == 1


def test_the_keyboard_is_enough(page: Page) -> None:
    page.keys("3")
    assert page.one("#panel-memory").is_displayed()
    page.keys("1")
    page.browser.execute_script("document.querySelector('.stages').focus()")
    page.keys(Keys.ARROW_DOWN)
    assert page.all(".stage")[1].get_attribute("aria-selected") == "true"
    page.click(".stage", "planned")
    page.browser.execute_script("document.querySelector('.drawing').focus()")
    page.keys(Keys.ARROW_RIGHT)
    first = page.one(".node.picked").get_attribute("data-id")
    page.keys(Keys.ARROW_DOWN)
    assert page.one(".node.picked").get_attribute("data-id") != first
    before = len(page.all(".open"))
    for _ in range(20):
        if "kernel" in page.one(".picked").get_attribute("class"):
            break
        page.keys(Keys.ARROW_RIGHT)
    page.keys(Keys.ENTER)
    assert len(page.all(".open")) == before + 1


def test_light_dark_and_print(page: Page) -> None:
    def paper() -> str:
        found: str = page.browser.execute_script(
            "return getComputedStyle(document.body).backgroundColor"
        )
        return found

    colors = {}
    for scheme in ("light", "dark"):
        page.browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        colors[scheme] = paper()
    assert colors["light"] != colors["dark"]
    page.click(".theme")
    assert paper() == colors["light"]
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert all(page.one(f"#panel-{name}").is_displayed() for name in ("graph", "code", "profile"))
    assert page.all(".drawing[viewBox]")
    page.browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert not page.all(".drawing[viewBox]")
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_the_page_of_a_profile_stands_alone(browser: Any, step: Path) -> None:
    page = Page(browser)
    browser.get(step.with_name("profile.html").as_uri())
    assert page.one("h1").text == HOSTILE
    page.click(".event.kernel")
    assert page.all("tr.picked")
    assert "time" in page.text(".profile .about")
    assert page.errors() == []


def test_two_thousand_ops_answer_at_once(browser: Any, tmp_path: Path) -> None:
    x = y = weft.placeholder((4, 4), name="x")
    for number in range(250):
        y = weft.tanh(weft.exp(y @ y) - weft.max(y, 1, keepdims=True)) + y / (number + 2)
    with weft.make_transformer("numpy") as transformer:
        made = transformer.computation(y, x)
        assert 2000 <= len(made.graph.ops) <= 3000
        made.report(tmp_path / "large.html")
    page = Page(browser)
    browser.get((tmp_path / "large.html").as_uri())
    spent = {}
    for stage in ("captured", "Decompose", "Fusion", "planned"):
        page.click(".stage", stage)
        spent[f"open in {stage}"] = page.milliseconds(
            "document.querySelector('.node .sign').dispatchEvent(new MouseEvent('click'))"
        )
        spent[f"pick in {stage}"] = page.milliseconds(
            "document.querySelector('.node').dispatchEvent(new MouseEvent('click'))"
        )
    # The time of this browser for 20,000 buttons, which a busy machine lengthens as much.
    many = page.milliseconds(
        "for (let n = 0; n < 20000; n++) {"
        "  const made = document.body.appendChild(document.createElement('button'));"
        "  made.textContent = `op ${n}`;"
        "}"
    )
    assert max(spent.values()) < many, (spent, many)
    assert page.errors() == []


def test_a_graph_too_large_to_draw_is_summed_up(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MOST_OPS", 100)
    x = y = weft.placeholder((4,), name="x")
    for _ in range(200):
        y = weft.tanh(y)
    with weft.make_transformer("numpy") as transformer:
        transformer.computation(y, x).report(tmp_path / "huge.html")
    page = Page(browser)
    browser.get((tmp_path / "huge.html").as_uri())
    assert "y = weft.tanh(y)" in page.text(".summary td")
    assert "too many to draw" in page.text(".summary")
    for tab in ("memory", "code", "graph"):
        page.click(f"#tab-{tab}")
    page.click(".summary tbody tr", "tanh")
    assert page.one("#panel-code").is_displayed()
    assert page.errors() == []


def test_a_called_graph_and_repeated_layers_are_boxes_that_open(
    browser: Any, tmp_path: Path
) -> None:
    x, inner = weft.placeholder((4, 4), name="x"), weft.placeholder((4, 4), name="inner")
    body = inner
    for _ in range(10):
        body = weft.tanh(body @ body)
    layer = weft.capture([body], [inner], "layer")
    (y,) = weft.call(layer, x)
    (y,) = weft.call(layer, y)
    for _ in range(12):
        y = weft.exp(weft.tanh(y @ y) - weft.max(y, 1, keepdims=True)) * y
    with weft.make_transformer("numpy") as transformer:
        transformer.computation(y, x, name="net").report(tmp_path / "net.html")
    page = Page(browser)
    browser.get((tmp_path / "net.html").as_uri())
    for title in ("layer", "12 times"):
        before = len(page.all(".node"))
        shown = [each for each in page.all(".node") if title in each.get_attribute("textContent")]
        browser.execute_script(
            "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))",
            shown[0].find_element(By.CSS_SELECTOR, ".sign"),
        )
        assert len(page.all(".node")) > before
    assert "1 of 12" in page.text(".node .title")
    options = [each.text for each in page.all(".side option")]
    assert options == ["net", "layer"]
    page.all(".side option")[1].click()
    assert "inner" in page.text(".node .title")
    assert page.errors() == []


def test_nothing_to_compute_is_a_page_too(browser: Any, tmp_path: Path) -> None:
    with weft.make_transformer("numpy") as transformer:
        transformer.computation([], name="nothing").report(tmp_path / "nothing.html")
    page = Page(browser)
    browser.get((tmp_path / "nothing.html").as_uri())
    for tab in ("code", "memory", "graph"):
        page.click(f"#tab-{tab}")
    assert "no steps" in page.text("#panel-memory")
    assert page.errors() == []
