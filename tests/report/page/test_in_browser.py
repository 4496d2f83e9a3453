"""Reports in a real browser: nothing is complained about, and a reader gets everywhere.

Needs playwright and a Chromium of the system (Debian: `apt-get install chromium`); without, these
tests skip and say so. Screenshots are left in out/reports.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.page.networks import hostile_texts, judged, residual_network, with_texts
from tests.report.page.test_page import RECORDS, alignment, bisection

from verax.records.network import NetworkOutline, OutlinedNode
from verax.report import write_report

SHOTS = Path(__file__).parents[3] / "out" / "reports"
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLUID = 0.1
"""Seconds after which an answer no longer seems immediate (Miller 1968)."""
SLOW_MACHINE = 5
"""How many times as slow a loaded machine of tests may be."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A running browser."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("needs a Chromium of the system: apt-get install chromium")
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=root)
        yield browser
        browser.close()


Opened = Callable[..., Any]


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Opened]:
    """Open the report on records; whatever the browser complains of, asks or loads is an error."""
    complaints: list[str] = []
    pages = []

    def call(records: Any, **options: Any) -> Any:
        file = write_report(records, tmp_path / f"{len(pages)}.html")
        page = chromium.new_page(**{"viewport": {"width": 1360, "height": 900}, **options})
        pages.append(page)
        page.on("console", lambda m: complaints.append(f"{m.type}: {m.text}"))
        page.on("pageerror", lambda e: complaints.append(f"error: {e}"))
        page.on("dialog", lambda d: complaints.append(f"dialog: {d.message}") or d.dismiss())
        address = file.absolute().as_uri()
        page.on(
            "request",
            lambda r: (
                r.url == address
                or r.url.startswith("data:")
                or complaints.append(f"request: {r.url}")
            ),
        )
        page.goto(address)
        return page

    yield call
    for page in pages:
        page.close()
    assert not complaints


def shot(page: Any, name: str, **options: Any) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", **options)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", RECORDS)
def test_every_kind_of_record_opens_in_both_schemes(opened: Opened, name: str, scheme: str) -> None:
    page = opened(RECORDS[name](), color_scheme=scheme)
    assert page.locator("h1").inner_text().split()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, ground.strip("rgb()").split(",")))
    assert brightness > 600 if scheme == "light" else brightness < 150
    shot(page, f"{name.replace(' ', '_')}-{scheme}", full_page=True)


def test_texts_of_strangers_do_nothing(opened: Opened) -> None:
    page = opened([with_texts(RECORDS[name](), hostile_texts()) for name in RECORDS])
    for box in page.locator(".box[data-node]").all()[:12]:
        if box.is_visible():
            box.click()
    page.locator("input[type=search]").first.fill("alert")
    assert page.locator(".hits li").first.is_visible()
    assert page.evaluate("document.querySelectorAll('main img:not([src^=\"data:\"])').length") == 0


def test_a_click_on_a_node_shows_its_errors_attributes_and_cause(opened: Opened) -> None:
    page = opened(bisection())
    detail = page.locator(".detail")
    assert "/stage0/block1/layer2/Conv" in detail.inner_text()  # the faulty one at once
    for text in ("pads swapped", "only the last column", "out/case", "kernel_shape", "812", "0.75"):
        assert text in detail.inner_text(), text
    assert detail.locator("img").count() == 6
    assert detail.locator("img").first.evaluate("i => i.complete && i.naturalWidth") == 9
    page.locator(".box[data-node='3']").click()
    assert "/stage0/block0/Add" in detail.inner_text() and "pads" not in detail.inner_text()
    assert page.locator(".box.selected").count() == 1
    shot(page, "selected")


def test_by_keyboard_alone(opened: Opened) -> None:
    page = opened(judged(residual_network(4)))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    page.keyboard.type("block2 layer1")
    hits = page.locator(".hits button").all_inner_texts()
    assert len(hits) == 2 and "/stage0/block2/layer1/Conv" in hits[0]  # and who reads it
    page.keyboard.press("Enter")
    active = "document.activeElement.getAttribute('aria-label')"
    assert "/stage0/block2/layer1/Conv" in page.evaluate(active)
    page.keyboard.press("ArrowDown")
    assert "/stage0/block2/layer2/Conv" in page.evaluate(active)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert "/stage0/block2/layer0/Conv" in page.evaluate(active)
    assert "/stage0/block2/layer0/Conv" in page.locator(".detail h3").inner_text()
    size = "document.querySelector('.view svg').getBoundingClientRect().width"
    before = page.evaluate(size)
    page.keyboard.press("+")
    assert page.evaluate(size) > 1.2 * before
    page.keyboard.press("0")
    svg, canvas = (page.locator(s).first.bounding_box() for s in (".view svg", ".canvas"))
    assert svg["height"] <= canvas["height"]


def test_everything_has_a_name_for_screen_readers(opened: Opened) -> None:
    page = opened([bisection(), alignment()])
    unnamed = page.evaluate(
        """() =>
        [...document.querySelectorAll("button, input, a, section, svg[role], [role=button]")]
        .filter((e) => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
            || e.textContent.trim() || (e.labels && e.labels.length))).map((e) => e.outerHTML)"""
    )
    assert unnamed == []
    broken = page.evaluate(
        """() => [...document.querySelectorAll('[aria-labelledby], [aria-controls]')].flatMap((e) =>
        ['aria-labelledby', 'aria-controls'].filter((a) => e.hasAttribute(a)
            && !document.getElementById(e.getAttribute(a))))"""
    )
    assert broken == []
    assert page.evaluate("[...document.querySelectorAll('img')].every((i) => i.alt)")
    assert page.evaluate("[...document.querySelectorAll('table')].every((t) => t.caption)")
    assert page.evaluate("[...document.querySelectorAll('th')].every((t) => t.scope)")


def test_modules_open_and_close(opened: Opened) -> None:
    page = opened(judged(residual_network(90), faulty=250))
    assert "/stage7/block62/layer2/Conv" in page.locator(".detail").inner_text()
    assert page.locator(".view:not([hidden]) .crumbs").inner_text().endswith("resnet / stage7")
    shot(page, "module")
    page.locator(".view:not([hidden]) .crumbs button").click()
    assert page.locator(".view:not([hidden]) .box.module").count() == 12
    box = page.locator(".view:not([hidden]) .box.module.k-mistake")
    assert box.get_attribute("aria-label").startswith("stage7")
    shot(page, "modules")
    box.click()
    assert page.locator(".view:not([hidden]) .crumbs").inner_text().endswith("resnet / stage7")
    page.locator(".view:not([hidden]) .box").first.press("Escape")
    assert page.locator(".view:not([hidden])").get_attribute("data-view") == "0"


def test_a_network_of_two_thousand_nodes_is_fluid(opened: Opened) -> None:
    network = residual_network(500)
    begin = time.perf_counter()
    page = opened(judged(network, faulty=1717, pictured=16))
    assert len(network.nodes) == 2000
    loaded = time.perf_counter() - begin
    timed = """async (step) => {
        const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        await frame();
        const begin = performance.now();
        const field = document.querySelector('input[type=search]');
        if (step === 'search') { field.value = 'layer1'; field.dispatchEvent(new Event('input')); }
        else if (step === 'select') document.querySelector('.hits button').click();
        else document.querySelector(`[data-zoom=${step}]`).click();
        await frame();
        return performance.now() - begin;
    }"""
    steps = ("search", "select", "in", "out", "fit")
    took = {step: page.evaluate(timed, step) / 1000 for step in steps}
    print(f"loaded in {loaded:.2f} s; {', '.join(f'{k} {v:.3f} s' for k, v in took.items())}")
    assert page.locator(".hits li").last.inner_text() == "and 940 more"
    assert max(took.values()) < SLOW_MACHINE * FLUID
    shot(page, "two_thousand")


def test_it_prints(opened: Opened) -> None:
    page = opened(bisection())
    page.emulate_media(media="print")
    assert not page.locator(".toolbar").first.is_visible()
    assert page.locator(".faulty").first.is_visible()
    SHOTS.mkdir(parents=True, exist_ok=True)
    content = page.pdf(path=SHOTS / "printed.pdf", format="A4")
    assert content.startswith(b"%PDF") and len(content) > 20_000
    shot(page, "printed", full_page=True)


def test_a_wide_network_begins_at_its_input(opened: Opened) -> None:
    weights = [OutlinedNode(f"copy{i}", "Identity", (f"c{i}",), (f"w{i}",)) for i in range(80)]
    total = OutlinedNode("sum", "Sum", ("x", *(f"w{i}" for i in range(80))), ("y",))
    network = NetworkOutline("wide", ("x",), ("y",), (*weights, total))
    page = opened(judged(network))
    canvas = page.locator(".canvas").bounding_box()
    box = page.locator(".box.input").bounding_box()
    assert canvas["x"] <= box["x"] and box["x"] + box["width"] <= canvas["x"] + canvas["width"]
