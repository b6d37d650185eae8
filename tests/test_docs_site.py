"""The documentation site: it builds without a warning, its links lead somewhere, and it needs no network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "mkdocs.yml").exists(), reason="not a source tree")
LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href"), ("video", "src")}


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if (tag, name) in LOADS and value:
                self.loaded.append(value)
            elif name == "href" and value is not None:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it hides warnings from --strict, too.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_links_and_anchors_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) > 50
    broken = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else None
            missing = anchors is not None and parts.fragment and unquote(parts.fragment) not in anchors
            if not target.is_file() or missing:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_comes_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    remote = re.compile(r"^(https?:)?//")
    assert [(path.name, url) for path, page in pages.items() for url in page.loaded if remote.match(url)] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text()), style


def test_the_main_pages_are_there(pages: dict[Path, Page], site: Path) -> None:
    names = {str(path.relative_to(site)) for path in pages}
    expected = (
        "index results performance native-kernel api paper-to-code compatibility stability contributing changelog"
    )
    assert {f"{name}.html" for name in expected.split()} <= names
    steps = {path.stem for path in (ROOT / "docs/how-to").glob("*.md")}
    assert {f"how-to/{name}.html" for name in steps} <= names


def test_every_public_name_is_in_the_api(site: Path, pages: dict[Path, Page]) -> None:
    import epitomic
    from epitomic import analysis, visualisation

    anchors = {anchor.rpartition(".")[2] for anchor in pages[site / "api.html"].anchors}
    assert {name for name in epitomic.__all__ if name != "__version__"} - anchors == set()
    assert {name for name in (*analysis.__all__, *visualisation.__all__) if not name.isupper()} - anchors == set()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_of_the_repositorys_front_pages(name: str) -> None:
    """Where one browses the repository, without the site."""
    links = re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", (ROOT / name).read_text())
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_it_works_from_disk_in_a_browser(site: Path, pages: dict[Path, Page]) -> None:
    """The search finds pages, nothing is asked of the network, and nothing but tables and code is too wide."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium on this machine")
    requests: list[str] = []
    errors: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        for path in (path for path in pages if "repository" not in path.parts):
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") == 390, path
        page.goto((site / "how-to" / "train.html").as_uri())
        page.locator("label.md-header__button[for=__search]").click()
        page.locator("input[name=query]").press_sequentially("topographic")
        page.wait_for_selector(".md-search-result__item a", timeout=20_000)
        browser.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "about:"))] == []


@pytest.mark.long
def test_the_code_of_the_deployment_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/how-to/deploy.md").read_text(), re.DOTALL):
        exec(block, names)
    assert names["scores"].shape == (2, 10)
    assert {"mean", "std"} <= set(names["config"]["standardize"])
    assert (tmp_path / "model.onnx").is_file()
