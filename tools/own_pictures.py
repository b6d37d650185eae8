"""Makes the pictures of docs/how-to/own-images.md and play.md: trains on a folder, predicts, and looks at the pages.

    python tools/own_pictures.py work/

`work/` has class folders in `pictures/`, and images that were not trained on in `new/`. The pages are those that a user
sees: the commands run in `work/`, and Chromium opens what they make. A run that is there is not made again.
"""

from __future__ import annotations

import argparse
import html
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH, HEIGHT = 1200, 900  # pixels of the browser window
RUN, LOG = Path("runs/pictures"), "train.txt"
TERMINAL = """<style>
body { margin: 0; background: #16181d; }
pre { display: inline-block; margin: 0; padding: 16px 20px; font: 15px/1.5 monospace; white-space: pre-wrap; }
pre { color: #e6e6e6; }
b { color: #8ab4f8; font-weight: normal; }
</style>
<pre>%s</pre>"""


def run(work: Path, *words: str) -> str:
    """Runs a command of epitomic in the folder, and returns what it writes."""
    command = [sys.executable, "-m", "epitomic", *words]
    return subprocess.run(
        command, check=True, cwd=work, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout


def terminal(page: Page, texts: dict[str, str], path: Path) -> None:
    """Pictures commands and what they wrote."""
    shown = (f"<b>$ {html.escape(command)}</b>\n{html.escape(text)}" for command, text in texts.items())
    page.set_content(TERMINAL % "\n".join(shown))
    page.locator("pre").screenshot(path=path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(64).save(path, optimize=True)


def sections(page: Page, report: Path, names: tuple[str, ...], path: Path) -> None:
    """Pictures the head of a report and some of its sections."""
    page.goto(report.resolve().as_uri())
    kept = ", ".join(f"#{name}" for name in names)
    page.add_style_tag(content=f"main > section:not({kept}), footer {{ display: none }}")
    page.screenshot(path=path, full_page=True)


@contextmanager
def playing(work: Path) -> Iterator[str]:
    """Runs `epitomic play` in the folder, and yields the address of its page."""
    command = [sys.executable, "-m", "epitomic", "play", str(RUN), "--port", "0"]
    with subprocess.Popen(command, cwd=work, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if line.startswith("open "))
            yield line.split()[1]
        finally:
            process.terminate()


def play(page: Page, address: str, image: Path, path: Path) -> None:
    """Pictures the page of `epitomic play` after an image was dropped."""
    page.goto(address)
    page.set_input_files("#file", image)
    page.wait_for_selector("#layers canvas, #layers img", timeout=120_000)
    page.wait_for_timeout(1000)
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": WIDTH, "height": 1.6 * HEIGHT}, full_page=True)


def picture_all(browser: Browser, work: Path, new: list[Path], images: Path) -> None:
    """Makes all pictures."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    words = ("train", "pictures/")
    if not (work / LOG).is_file():
        (work / LOG).write_text(run(work, *words))
    terminal(page, {f"epitomic {' '.join(words)}": (work / LOG).read_text()}, images / "own-train.png")
    predicted = run(work, "predict", str(RUN), "new/", "--top", "3")
    terminal(page, {f"epitomic predict {RUN} new/ --top 3": predicted}, images / "own-predict.png")
    sections(page, work / RUN / "report.html", ("classes", "data", "mistakes"), images / "own-report.png")
    with playing(work) as address:
        play(page, address, new[0], images / "own-play.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder that the pictures are written to")
    args = parser.parse_args()
    new = sorted((args.work / "new").iterdir())
    options: dict[str, Any] = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**options)
        picture_all(browser, args.work, new, args.out)
        browser.close()


if __name__ == "__main__":
    main()
