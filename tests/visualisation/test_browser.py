"""The report in a real browser: no errors, no requests, at any width, in light and dark, all of it clicked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epitomic.analysis.findings import Findings
from epitomic.support.files import read_sealed
from epitomic.visualisation import open_run
from epitomic.visualisation.confusion import LEGIBLE
from epitomic.visualisation.report import render, write_report
from tests.runs import MakeRun, make_weights

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SHOWN = "Array.from(document.images).every(i => i.complete && i.naturalWidth > 0)"
WIDE = (  # what sticks out of the window, but for what scrolls on its own
    "Array.from(document.querySelectorAll('body *')).filter(e => e.getBoundingClientRect().right > innerWidth + 1"
    " && !e.closest('.scroll, nav, pre')).map(e => e.tagName + '.' + e.className)"
)
CUT = (  # matrices that have to be scrolled, which would hide their last columns
    "Array.from(document.querySelectorAll('.matrix')).map(e => e.closest('.scroll'))"
    ".filter(e => e.scrollWidth > e.clientWidth).map(e => `${e.scrollWidth} of ${e.clientWidth}`)"
)
FAINTEST = """Math.min(...Array.from(document.querySelectorAll('.grid td, .matrix td')).map(cell => {
  const numbers = value => value.match(/[\\d.]+/g).map(Number);
  const [under, over, ink] = [
    getComputedStyle(cell.closest('article')).backgroundColor,
    getComputedStyle(cell).backgroundColor,
    getComputedStyle(cell).color,
  ].map(numbers);
  const alpha = over.length > 3 ? over[3] : 1;
  const mixed = over.slice(0, 3).map((c, i) => alpha * c + (1 - alpha) * under[i]);
  const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const weights = [0.2126, 0.7152, 0.0722];
  const level = rgb => weights.reduce((sum, weight, i) => sum + weight * linear(rgb[i] / 255), 0);
  const [low, high] = [level(mixed), level(ink)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}))"""  # the least contrast of a number on its cell, by WCAG 2
SMALLEST = (
    "Math.min(...Array.from(document.querySelectorAll('body *'))"
    ".filter(e => e.children.length == 0 && e.textContent.trim())"
    ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
)


@pytest.fixture(scope="module")
def pages(make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The page of one run, and one that compares two."""
    out = tmp_path_factory.mktemp("pages")
    long = make_run(name="long")
    config = read_sealed(long / "config.json")
    config["classes"][3] = "a_class_with_a_name_that_is_much_too_long_for_the_screen_of_a_telephone"
    (long / "config.json").write_text(json.dumps(config))
    one, two = open_run(long), open_run(make_run("maxpool_small"))
    write_report([one], out / "one.html", images=40)
    write_report([one, two], out / "two.html", images=40)
    return [out / "one.html", out / "two.html"]


@pytest.mark.parametrize("count", [10, LEGIBLE])
def test_a_matrix_fits_a_phone(count: int, browser: Browser, tmp_path: Path) -> None:
    matrix = [[900 if i == j else 7 for j in range(count)] for i in range(count)]
    run = make_weights(tmp_path / "run", [f"automobile {i}" for i in range(count)])
    (tmp_path / "page.html").write_text(render([Findings(open_run(run), confusion=matrix)]))
    page = browser.new_page(viewport={"width": 390, "height": 900}, is_mobile=True)
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate("document.querySelectorAll('.matrix').length") == 1
    assert page.evaluate(CUT) == []
    assert page.locator(".matrix td span").first.is_visible() == (count == 10)  # more classes have colours alone
    page.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("number", [0, 1], ids=["one-run", "two-runs"])
def test_it_opens_and_can_be_clicked_through(
    pages: list[Path], browser: Browser, number: int, width: int, dark: bool
) -> None:
    page = browser.new_page(
        viewport={"width": width, "height": 900},
        is_mobile=width < 600,
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    address = pages[number].resolve().as_uri()
    page.goto(address)
    assert page.evaluate(SHOWN)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(WIDE) == []
    assert page.evaluate(SMALLEST) >= 11
    assert page.evaluate(FAINTEST) >= 4.5
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.querySelector('.matrix tbody th').offsetWidth") < width / 2
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(background.partition("(")[2].partition(",")[0])
    assert (red < 60) == dark
    assert page.evaluate("document.querySelector('.chart img').currentSrc.length") > 1000
    for link in page.locator("nav a").all():
        link.click()
        assert page.evaluate("location.hash") == link.get_attribute("href")
    for place, summary in enumerate(page.locator("summary").all()):
        summary.click()
        assert page.evaluate(f"document.querySelectorAll('details')[{place}].open")
    assert page.evaluate(SHOWN)
    assert page.evaluate(WIDE) == []
    assert problems == []
    assert {url.partition("#")[0] for url in requests if not url.startswith("data:")} == {address}
    page.close()
