"""Reports in a browser: what is clicked, searched, sorted and opened does what it says."""

from __future__ import annotations

import re
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
from selenium.webdriver.support.ui import WebDriverWait

import weft
from weft.functional import trees
from weft.report import document as documents
from weft.report.page import unpacked

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

    def open(self, path: Path) -> None:
        """Open a page and wait for what its script makes."""
        self.browser.get(path.as_uri())
        self.data = unpacked(path.read_text("utf-8"))
        WebDriverWait(self.browser, 30).until(lambda _: self.all("#report > main"))

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
    found.open(step)
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
    for title in ("Operands", "Used by", "Memory", "Runs in"):
        assert title in about
    page.click(".graphs .about .link", "input x")
    assert "input" in page.one(".node.picked").get_attribute("class")
    page.click(".node", "matmul")
    page.click(".graphs .about .link", "steps")
    assert page.one("#panel-memory").is_displayed()
    assert "made by" in page.text(".memory .about")
    page.click("#tab-graph")
    page.click(".graphs .about .time")
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
    rows = page.data["profile"]["rows"]
    order = [each.get_attribute("data-row") for each in page.all(".profile tbody tr")]
    times = [rows[int(each)]["seconds"] for each in order]
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
    page.open(step.with_name("profile.html"))
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
    page.open(tmp_path / "large.html")
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
    page.open(tmp_path / "huge.html")
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
    page.open(tmp_path / "net.html")
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
    page.open(tmp_path / "nothing.html")
    for tab in ("code", "memory", "graph"):
        page.click(f"#tab-{tab}")
    assert "no steps" in page.text("#panel-memory")
    assert page.errors() == []


# A transformer of twelve layers

LAYERS, SHAPE = 12, (2, 8, 16)
BLOCK = weft.nn.TransformerBlock(2, 32, is_causal=True)
NET = weft.nn.Sequential(*[BLOCK] * LAYERS, weft.nn.Dense(16))
OPTIMIZER = weft.optim.adam(1e-3)


def loss(params: Any, x: Any) -> Any:
    y = NET(params, x)
    return weft.mean((y - x) ** 2)


def train(params: Any, state: Any, x: Any) -> Any:
    value, gradients = weft.value_and_grad(loss)(params, x)
    return value, *OPTIMIZER.update(gradients, state, params)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of a training step of a transformer, with a profile."""
    path = tmp_path_factory.mktemp("reports") / "network.html"
    params, x = NET.init(np.random.default_rng(0), SHAPE), np.ones(SHAPE, np.float32)
    args = params, OPTIMIZER.init(params), x
    with weft.make_transformer("numpy") as transformer:
        computation = weft.jit(train, backend=transformer).lower(*args)
        computation.report(path, *trees.flatten((args, {}))[0])
    return path


@pytest.fixture
def graph(browser: Any, network: Path) -> Iterator[Page]:
    found = Page(browser)
    found.browser.get("about:blank")
    found.open(network)
    yield found
    assert found.errors() == []


READABLE = 0.75


def view(page: Page) -> tuple[float, float, float]:
    found: dict[str, float] = page.browser.execute_script(
        "const {k, x, y} = d3.zoomTransform(document.querySelector('.drawing')); return {k, x, y}"
    )
    return found["k"], found["x"], found["y"]


def is_in_view(page: Page, element: Any) -> bool:
    found: bool = page.browser.execute_script(
        "const a = arguments[0].getBoundingClientRect();"
        "const b = document.querySelector('.canvas').getBoundingClientRect();"
        "return a.left >= b.left && a.top >= b.top && a.right <= b.right && a.bottom <= b.bottom",
        element,
    )
    return found


def node_titled(page: Page, title: str) -> Any:
    for each in page.all(".node, .open"):
        shown = each.find_element(By.CSS_SELECTOR, ":scope > .title").get_attribute("textContent")
        if shown == title:
            return each
    raise AssertionError(f"no node is called {title}: {page.text('.node .title')}")


def open_box(page: Page, title: str) -> None:
    page.browser.execute_script(
        "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))",
        node_titled(page, title).find_element(By.CSS_SELECTOR, ".sign"),
    )


def test_five_questions_take_a_click_each(graph: Page) -> None:
    """Where is layer 7's softmax, its shape, its kernel, its share of time, and its line."""
    graph.keys("/")
    graph.keys("softmax 6/")
    found = [each for each in graph.all(".result.op") if "∇" not in each.text]
    assert found[0].text.startswith("Softmax in Attention\nSequential/6/self_attn")
    found[0].click()  # where
    (picked,) = graph.all(".node.picked")
    assert is_in_view(graph, picked)
    about = graph.one(".graphs .about").text
    assert "Sequential/6/self_attn" in about
    assert "Softmax\nfloat32(2, 2, 8, 8)" in about  # its shape
    kernels = [each.text for each in graph.all(".about .steps li > :first-child")]
    assert any("exp" in each and "sum" in each for each in kernels)
    (kernel,) = [each.text for each in graph.all(".steps > li") if "\nSoftmax\n" in each.text]
    assert "exp" in kernel.split("\n")[0]  # which kernel runs it
    assert re.search(r"\n[\d.]+ .?s, [\d.]+ %\n", kernel)  # its share
    assert re.search(r"time\n[\d.]+ .?s, [\d.]+ % of the call", about)
    assert "y = NET(params, x)" in about  # its line
    graph.click(".about .steps .link", "exp")
    assert graph.one(".stage[aria-selected=true] .name").text == "planned"
    assert "exp" in graph.text(".node.picked .title")
    graph.click(".about .steps .time")
    assert "exp" in graph.one(".profile tbody tr.picked").text
    assert "Sequential/6/self_attn" in graph.one(".profile tbody tr.picked").text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("self_attn matmul", "Sequential/0/self_attn"),
        ("loss mean", "Mean"),
        ("gradient matmul", "∇ Matmul"),
        ("adam/3", "adam/3"),
    ],
)
def test_search_finds_scopes_functions_and_gradients(graph: Page, words: str, text: str) -> None:
    graph.keys("/")
    graph.keys(words)
    assert text in graph.all(".result.op")[0].text
    graph.keys(Keys.ENTER)
    assert len(graph.all(".node.picked")) == 1


@pytest.mark.parametrize(
    ("words", "scopes"),
    [
        ("sequential/6", ["Sequential/6"]),
        ("/6/", ["Sequential/6", "adam/6"]),
        ("self_attn", [f"Sequential/{layer}/self_attn" for layer in range(LAYERS)]),
        ("gelu 6/", []),
    ],
)
def test_search_finds_the_outermost_scopes(graph: Page, words: str, scopes: list[str]) -> None:
    graph.keys("/")
    graph.keys(words)
    found = [each.text.split("\n")[0] for each in graph.all(".result.scope")]
    assert found[: len(scopes)] == scopes
    count = int(re.match(r"[\d,]+", graph.one(".found .hint").text)[0].replace(",", ""))  # type: ignore[index]
    shown = len(graph.all(".result"))
    assert count == shown or (count > shown and f"{shown} are shown" in graph.text(".found .hint"))
    if scopes:
        graph.click(".result.scope")
        about = graph.one(".graphs .about").text
        assert f"scope\n{scopes[0]}\n" in about
        assert re.search(r"time\n[\d.]+ .?s, [\d.]+ % of the call", about)
        assert len(graph.all(".node.picked")) == 1


def test_edges_of_what_is_in_open_boxes_are_drawn_once_it_is_selected(graph: Page) -> None:
    graph.keys("/")
    graph.keys("gelu 6/")
    graph.click(".result.op")
    edges = graph.browser.execute_script(
        "return [...document.querySelectorAll('.edge')]"
        ".map((each) => [...each.classList, getComputedStyle(each).display])"
    )
    shown = {("inner" in each, "near" in each, each[-1] != "none") for each in edges}
    assert shown == {
        (False, False, True), (False, True, True), (True, False, False), (True, True, True),
    }  # fmt: skip


def test_what_a_stage_lacks_is_found_in_another(graph: Page) -> None:
    graph.keys("/")
    graph.keys("fused exp_sum")
    graph.click(".result.op")
    assert graph.one(".stage[aria-selected=true] .name").text == "planned"
    assert graph.all(".node.kernel.picked")


def test_boxes_are_called_by_scopes_and_functions(graph: Page) -> None:
    titles = [each.text for each in graph.all(".node .title")]
    assert {"inputs", "Sequential", "∇ Sequential", "adam"} <= set(titles)
    assert not any("NET(params" in each or "value_and_grad" in each for each in titles)
    open_box(graph, "Sequential")
    open_box(graph, "6")
    assert {"self_attn", "norm1", "linear2"} <= {each.text for each in graph.all(".node .title")}


def test_gradients_are_marked_and_paired(graph: Page) -> None:
    gradients = graph.all(".node.gradient")
    assert gradients
    assert all(each.text.startswith("∇") for each in gradients)
    for one, other in (("Sequential", "∇ Sequential"), ("6", "∇ 6"), ("self_attn", "∇ self_attn")):
        for title, pair, heading in ((one, other, "Gradient"), (other, one, "Gradient of")):
            open_box(graph, title)
            about = graph.one(".graphs .about")
            if title not in graph.one(".graphs .about h3").text:
                graph.browser.execute_script(
                    "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))",
                    node_titled(graph, title).find_element(By.CSS_SELECTOR, ".head"),
                )
                open_box(graph, title)
            assert f"{heading}\n{pair}" in about.text
            assert graph.all(".node.pair, .open.pair")
    graph.click(".graphs .about .pairs .link")
    assert graph.one(".graphs .about h3").text == "self_attn"


def test_a_graph_opens_at_a_scale_that_can_be_read(graph: Page) -> None:
    for stage in graph.all(".stage"):
        graph.browser.execute_script("arguments[0].click()", stage)
        scale, _, y = view(graph)
        assert READABLE <= scale <= 1
        assert y > 0  # it begins in view


def test_the_view_is_fitted_when_the_graph_changes(graph: Page) -> None:
    before = view(graph)
    for _ in range(4):
        graph.click(".tools button[aria-label='Zoom out']")
    assert view(graph)[0] < before[0]
    graph.click(".stage", "Fusion")
    assert view(graph)[0] >= READABLE
    open_box(graph, "Sequential")
    assert view(graph)[0] >= READABLE
    assert is_in_view(graph, node_titled(graph, "0"))
    open_box(graph, "adam")
    assert is_in_view(graph, node_titled(graph, "adam").find_element(By.CSS_SELECTOR, ".title"))
    # What is selected stays in view, in whatever graph.
    graph.keys("/")
    graph.keys("gelu")
    graph.click(".result.op")
    for stage in ("Fusion", "planned", "captured"):
        graph.click(".stage", stage)
        (picked,) = graph.all(".node.picked")
        assert is_in_view(graph, picked)
    assert picked.text.startswith("Gelu")


def test_the_map_shows_and_moves_the_view(graph: Page) -> None:
    open_box(graph, "Sequential")
    chart = graph.one(".map")
    assert chart.is_displayed()
    assert len(graph.all(".map .dot, .map .area")) == len(graph.all(".node, .open"))
    assert graph.all(".map .area")
    before = view(graph)
    ActionChains(graph.browser).move_to_element_with_offset(chart, 0, 60).click().perform()
    lower = view(graph)
    assert lower[0] == before[0]
    assert lower[2] < before[2]
    ActionChains(graph.browser).move_to_element_with_offset(
        chart, 0, 50
    ).click_and_hold().move_by_offset(0, -90).release().perform()
    assert view(graph)[2] > lower[2]
    open_box(graph, "Sequential")
    graph.click(".tools button", "Fit")
    assert not chart.is_displayed()


def test_the_timeline_is_of_one_run(graph: Page) -> None:
    profile = graph.data["profile"]
    assert max(end for _, _, end in profile["events"]) <= profile["call"]
    graph.click("#tab-profile")
    whole = graph.one(".event.whole rect").rect
    last = max(each.rect["x"] + each.rect["width"] for each in graph.all(".event.kernel rect")[-5:])
    assert last <= whole["x"] + whole["width"] + 1
    assert "> 100" not in graph.text(".profile .cards")
    shares = [
        each for row in graph.all(".profile tbody tr")[:40] for each in [row.text] if "%" in each
    ]
    assert shares
