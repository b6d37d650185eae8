"""The report: what it says, of runs whole and broken, and that it needs nothing but itself."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from epitomic.visualisation import open_run
from epitomic.visualisation.report import write_report
from tests.visualisation.conftest import MakeRun

SECTIONS = ["curves", "epitomes", "positions", "matches", "robustness", "classes", "mistakes", "time", "facts"]


class Reader(HTMLParser):
    """All tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def sections(self) -> list[str | None]:
        return [attributes["id"] for tag, attributes in self.tags if tag == "section"]


@pytest.fixture(scope="module")
def page(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report([open_run(folder)], path, images=60)
    assert path.stat().st_size < 5e6
    return path.read_text()


def test_it_has_all_sections_and_links_to_them(page: str) -> None:
    reader = Reader(page)
    assert reader.sections() == SECTIONS
    assert [a["href"] for tag, a in reader.tags if tag == "a"] == [f"#{name}" for name in SECTIONS]
    for text in ("epitomic_small on digits", "12,345", "0:09", "Confusion matrix", "positions win"):
        assert text in reader.text


def test_it_needs_nothing_else(page: str) -> None:
    for tag, attributes in Reader(page).tags:
        for name in ("src", "srcset", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, name, value[:80])
    assert "<script" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!data:)", page.partition("</style>")[0])


def test_pictures_have_words(page: str) -> None:
    images = [attributes for tag, attributes in Reader(page).tags if tag == "img"]
    assert len(images) > 20
    assert all(attributes.get("alt") for attributes in images)


def test_text_is_escaped(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(name="a<b>&")
    evil = "<script>alert(1)</script>"
    config = json.loads((folder / "config.json").read_text())
    config["classes"] = [f"{evil}{i}" for i in range(10)]
    (folder / "config.json").write_text(json.dumps(config))
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, "command": f'"{evil}'}))
    write_report([open_run(folder)], tmp_path / "page.html", images=20, robustness=False)
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_several_runs_are_compared(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [open_run(make_run(name=name)) for name in ("epitomic_small", "maxpool_small")]
    runs.append(open_run(make_run("maxpool_small")))
    write_report(runs, tmp_path / "page.html", images=20, robustness=False)
    reader = Reader((tmp_path / "page.html").read_text())
    assert reader.sections() == [name for name in SECTIONS if name != "robustness"]
    assert "epitomic_small and maxpool_small on digits" in reader.text
    assert "maxpool_small has no epitomic layer" in reader.text


def test_an_unfinished_run_shows_what_is_there(make_run: MakeRun, tmp_path: Path) -> None:
    begun, going = make_run(epochs=0, finished=False), make_run(epochs=2, finished=False)
    for folder, expected in ((begun, ["facts"]), (going, [s for s in SECTIONS if s != "robustness"])):
        write_report([open_run(folder)], tmp_path / "page.html", images=20, robustness=False)
        reader = Reader((tmp_path / "page.html").read_text())
        assert reader.sections() == expected
        assert "This run is not finished" in reader.text
        assert f"epitomic train --resume --out {folder}" in reader.text


def test_without_the_data_it_says_how_to_get_it(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "dataset": "cifar10"}))
    (tmp_path / "data" / "cifar-10-batches-py").mkdir(parents=True)  # there, and empty: nothing to download
    write_report([open_run(copy, str(tmp_path / "data"))], tmp_path / "page.html", images=20)
    reader = Reader((tmp_path / "page.html").read_text())
    assert reader.sections() == ["curves", "epitomes", "classes", "facts"]
    assert "(cifar10) are not here" in reader.text
    assert "epitomic report" in reader.text
