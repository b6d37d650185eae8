"""The report in a real browser: no errors, no requests, at any width, in light and dark, all of it clicked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epitomic.visualisation import open_run
from epitomic.visualisation.report import write_report
from tests.visualisation.browser import chromium, find_chromium
from tests.visualisation.conftest import MakeRun

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium on this machine")

SHOWN = "Array.from(document.images).every(i => i.complete && i.naturalWidth > 0)"
WIDE = (  # what sticks out of the window, but for what scrolls on its own
    "Array.from(document.querySelectorAll('body *')).filter(e => e.getBoundingClientRect().right > innerWidth + 1"
    " && !e.closest('.scroll, nav, pre')).map(e => e.tagName + '.' + e.className)"
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
    config = json.loads((long / "config.json").read_text())
    config["classes"][3] = "a_class_with_a_name_that_is_much_too_long_for_the_screen_of_a_telephone"
    (long / "config.json").write_text(json.dumps(config))
    one, two = open_run(long), open_run(make_run("maxpool_small"))
    write_report([one], out / "one.html", images=40)
    write_report([one, two], out / "two.html", images=40)
    return [out / "one.html", out / "two.html"]


def test_it_opens_and_can_be_clicked_through(pages: list[Path], tmp_path: Path) -> None:
    with chromium(tmp_path) as page:
        for path in pages:
            for width in (390, 1440):
                for dark in (False, True):
                    page.open(path, width=width, dark=dark)
                    assert page.run(SHOWN)
                    assert page.run("document.documentElement.scrollWidth") <= width
                    assert page.run(WIDE) == []
                    assert page.run(SMALLEST) >= 11
                    assert page.run(FAINTEST) >= 4.5
                    assert page.run("document.querySelector('.matrix tbody th').offsetWidth") < width / 2
                    background = page.run("getComputedStyle(document.body).backgroundColor")
                    red = int(background.partition("(")[2].partition(",")[0])
                    assert (red < 60) == dark
                    chart = page.run("document.querySelector('.chart img').currentSrc.length")
                    assert chart > 1000
            for number in range(1, page.run("document.querySelectorAll('nav a').length") + 1):
                page.click(f"nav a:nth-child({number})")
                key = page.run(f"document.querySelector('nav a:nth-child({number})').getAttribute('href')")
                assert page.run("location.hash") == key
            for number in range(page.run("document.querySelectorAll('details').length")):
                page.run(f"document.querySelectorAll('summary')[{number}].setAttribute('data-test', {number})")
                page.click(f"summary[data-test='{number}']")
                assert page.run(f"document.querySelectorAll('details')[{number}].open")
            assert page.run(SHOWN)
            assert page.run(WIDE) == []
        assert page.problems == []
        assert {request.partition("#")[0] for request in page.requests} == {path.resolve().as_uri() for path in pages}
