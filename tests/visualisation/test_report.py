"""The report: what it says, of runs whole and broken, and that it needs nothing but itself."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from epitomic.analysis.explanation import explain
from epitomic.analysis.findings import Findings
from epitomic.analysis.robustness import measure_shifts
from epitomic.support.errors import UserError
from epitomic.support.files import read_sealed
from epitomic.visualisation import explain_figure, open_run
from epitomic.visualisation.report import render, write_report
from tests.runs import MakeRun, make_weights

SECTIONS = ["curves", "epitomes", "positions", "matches", "robustness", "classes", "data", "mistakes", "time", "facts"]


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


def section(page: str, name: str) -> str:
    """The markup of one section."""
    return page.partition(f'<section id="{name}">')[2].partition("</section>")[0]


def overview(page: str) -> str:
    """The markup above the sections."""
    return page.partition("<header>")[2].partition("</header>")[0]


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
    config = read_sealed(folder / "config.json")
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


@pytest.mark.parametrize("swapped", [False, True])
def test_runs_that_were_shifted_less_far_have_dashes(folder: Path, make_run: MakeRun, swapped: bool) -> None:
    reports = [
        Findings(run, shifts=measure_shifts(run, maximum=most, images=images))
        for run, most, images in ((open_run(folder), 1, 20), (open_run(make_run("maxpool_small")), 3, 30))
    ]
    markup = section(render(reports[::-1] if swapped else reports), "robustness")
    assert {len(re.findall("<t[hd][ >]", row)) for row in re.findall("<tr>(.*?)</tr>", markup)} == {5}
    rows = dict(re.findall(r'<th scope="row">([^<]*)</th>(.*?)</tr>', markup))
    assert rows["epitomic_small, error"].endswith("<td>-</td><td>-</td>")
    assert "<td>-<" not in rows["maxpool_small, error"]
    assert "20 to 30 test images" in markup
    alt = next(a["alt"] for tag, a in Reader(markup).tags if tag == "img")
    assert alt is not None
    assert re.search(r"epitomic_small: [\d.]+ % at 1 pixels", alt)
    assert re.search(r"maxpool_small: [\d.]+ % at 3 pixels", alt)


def test_an_unfinished_run_shows_what_is_there(make_run: MakeRun, tmp_path: Path) -> None:
    begun, going = make_run(epochs=0, finished=False), make_run(epochs=2, finished=False)
    for folder, expected in ((begun, ["facts"]), (going, [s for s in SECTIONS if s != "robustness"])):
        write_report([open_run(folder)], tmp_path / "page.html", images=20, robustness=False)
        reader = Reader((tmp_path / "page.html").read_text())
        assert reader.sections() == expected
        assert "This run is not finished" in reader.text
        assert f"epitomic train --resume --out {folder}" in reader.text


def test_weights_alone_are_shown_without_classes_or_a_recipe(folder: Path, tmp_path: Path) -> None:
    config = read_sealed(folder / "config.json")
    del config["classes"]
    copy = tmp_path / "weights"
    copy.mkdir()
    shutil.copy(folder / "model.safetensors", copy)
    (copy / "config.json").write_text(json.dumps(config))
    run = open_run(copy)
    assert run.classes == tuple("0123456789")
    (report,) = write_report([run], tmp_path / "page.html", images=20, robustness=False)
    assert report.notes == []
    reader = Reader((tmp_path / "page.html").read_text())
    assert reader.sections() == [s for s in SECTIONS if s not in ("curves", "data", "robustness")]
    assert " of ?" not in reader.text
    alts = [a.get("alt") for tag, a in reader.tags if tag == "img"]
    labels = sorted(set(run.test.labels[:20].tolist()))[:6]
    assert [alt for alt in alts if alt and alt.startswith("test image")] == [f"test image of class {c}" for c in labels]
    assert any("true class: " in t.get_text() for t in explain_figure(run, explain(run, 0)).texts)


def test_a_finished_run_whose_weights_are_elsewhere_is_no_unfinished_one(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in ("metrics.csv", "recipe.json", "results.json", "run.json"):
        shutil.copy(folder / name, kept)
    (report,) = write_report([open_run(kept)], tmp_path / "page.html")
    (note,) = report.notes
    assert "its weights are not kept there: `epitomic reproduce` leaves them in the folder that its --runs" in note
    assert "--resume" not in note
    assert "again" not in note
    assert Reader((tmp_path / "page.html").read_text()).sections() == ["curves", "classes", "facts"]
    (kept / "recipe.json").unlink()
    with pytest.raises(UserError, match=r"neither recipe\.json nor config\.json with model\.safetensors"):
        open_run(kept)


def test_each_run_has_its_own_row_of_last_figures(make_run: MakeRun) -> None:
    runs = [open_run(make_run(seed=seed)) for seed in (0, 1)]
    markup = section(render([Findings(run) for run in runs]), "curves")
    assert [f'<th scope="row">epitomic_small, seed {seed}</th>' in markup for seed in (0, 1)] == [True, True]


def test_many_classes_are_lists_instead_of_a_matrix(tmp_path: Path) -> None:
    matrix = [[40 if i == j else 0 for j in range(100)] for i in range(100)]
    matrix[7][3], matrix[50][51] = 10, 30
    run = open_run(make_weights(tmp_path / "run", [f"{i}" for i in range(100)]))
    markup = section(render([Findings(run, confusion=matrix)]), "classes").replace("\u00a0", " ")
    assert 'class="matrix' not in markup
    assert "Confusion matrix" not in markup
    rows = re.findall(r'<tr><th scope="row">(\d+)</th><td>([^<]*)</td><td>([^<]*)</td></tr>', markup)
    assert rows == [
        ("50", "43 % (32 to 55 %)", "51 (30)"),
        ("7", "20 % (11 to 33 %)", "3 (10)"),
        ("50", "51", "30 of 70"),
        ("7", "3", "10 of 50"),
    ]


def test_wordnet_ids_have_english_names_without_weights_too(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in ("recipe.json", "run.json"):
        shutil.copy(folder / name, kept)
    results = json.loads((folder / "results.json").read_text())
    old = results["test"]["classes"]
    results["test"]["classes"] = dict(zip(["n01440764", *list(old)[1:]], old.values(), strict=True))
    (kept / "results.json").write_text(json.dumps(results))
    run = open_run(kept)
    markup = section(render([Findings(run, confusion=results["test"]["confusion"])]), "classes")
    assert '<th scope="row" title="tench">tench</th>' in markup
    assert "n01440764" not in markup


def test_each_mistake_shows_its_true_class(page: str) -> None:
    mistakes = section(page, "mistakes")
    cards = mistakes.split('<div class="mistake">')[1:]
    assert cards
    for card in cards:
        true = re.findall(r"<b>(\d+), taken for", card)
        assert re.findall(r'<div class="bar own"><span class="name" title="✓ (\d+)"', card) == true
    assert "✓ true class" in mistakes.split('<div class="mistake">')[0]


def test_colours_have_keys(page: str) -> None:
    for name in ("epitomes", "positions", "classes", "mistakes", "time"):
        assert 'class="key"' in section(page, name)


def test_the_plain_error_stands_beside_that_of_averaged_views(make_run: MakeRun) -> None:
    folder = make_run()
    results = json.loads((folder / "results.json").read_text())
    assert "plain" not in overview(render([Findings(open_run(folder))]))
    (folder / "results.json").write_text(json.dumps({**results, "plain": {**results["test"], "error": 0.0745}}))
    report = Findings(open_run(folder))
    assert "test error (one view: 7.45 %)" in overview(render([report]))
    assert overview(render([report, report])).count("(one view: 7.45 %)") == 2


def test_without_the_data_it_says_how_to_get_it(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    config = read_sealed(copy / "config.json")
    (copy / "config.json").write_text(json.dumps({**config, "dataset": "cifar10"}))
    (tmp_path / "data" / "cifar-10-batches-py").mkdir(parents=True)  # refused, so that nothing is downloaded
    write_report([open_run(copy, str(tmp_path / "data"))], tmp_path / "page.html", images=20)
    reader = Reader((tmp_path / "page.html").read_text())
    assert reader.sections() == ["curves", "epitomes", "classes", "facts"]
    assert "(cifar10) are not here" in reader.text
    assert "epitomic report" in reader.text
