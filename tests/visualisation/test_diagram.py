"""The pictures that explain the layer: what they show is true, and can be read on a phone."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from epitomic.cli import main
from epitomic.cli.diagram import KINDS
from epitomic.support.errors import UserError
from epitomic.visualisation.diagram import DIAGRAMS, EPITOME, UNIT, open_example, topographic_figure
from tests.runs import MakeRun

PHONE = 390  # pixels


@pytest.fixture(scope="module")
def figures(make_run: MakeRun) -> dict[str, Figure]:
    drawn = {kind: draw() for kind, draw in DIAGRAMS.items()}
    drawn["topographic"] = topographic_figure(str(make_run("topographic_small_norm")))
    assert tuple(drawn) == KINDS
    return drawn


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.texts)


@pytest.mark.parametrize("right", [0, 1])
def test_the_example_is_what_the_layer_computes(right: int) -> None:
    example = open_example(right)
    layer, (row, column) = example.match.layer, UNIT
    response, positions = layer.match(example.match.input)
    assert layer.bias is not None
    assert example.responses.max() == pytest.approx((response[0, EPITOME, row, column] - layer.bias[EPITOME]).item())
    assert example.responses.argmax() == positions[0, EPITOME, row, column]


def test_the_winner_moves_against_the_image_and_the_output_stays(figures: dict[str, Figure]) -> None:
    before, after = open_example(), open_example(right=1)
    winners = int(before.responses.argmax()), int(after.responses.argmax())
    assert winners == (1, 0)  # one pixel to the left in the epitome
    assert after.responses.max() == pytest.approx(before.responses.max(), rel=0.05)
    assert after.responses[1] < 0.75 * before.responses[1]
    for response in (*before.responses, *after.responses):
        assert f"{response:.2f}".replace("-", "\N{MINUS SIGN}") in texts(figures["shift"])


def test_the_idea_shows_both_searches(figures: dict[str, Figure]) -> None:
    text = texts(figures["idea"])
    assert text.count("output") == 2
    assert f"{open_example().responses.max():.2f}" in text


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_legible_on_a_phone(figures: dict[str, Figure], kind: str) -> None:
    figure = figures[kind]
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    written = [(text.get_text(), text.get_window_extent()) for text in figure.texts if text.get_text()]
    for text, box in written:
        assert 0 <= box.x0 < box.x1 <= width, text
        assert 0 <= box.y0 < box.y1 <= height, text
    for (one, box), (other, beside) in combinations(written, 2):
        assert not box.overlaps(beside), (one, other)
    sizes = [float(text.get_fontsize()) / 72 * figure.dpi for text in figure.texts]
    assert min(sizes) * PHONE / width > 9.5


def test_the_command_writes_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagram", "--out", str(tmp_path / "picture")]) == 0
    assert f"wrote {tmp_path / 'picture.png'}" in capsys.readouterr().out
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "picture.svg").read_bytes()[:1000]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("diagram idea --run x", "--run is for KIND topographic alone, got KIND idea"),
        ("diagram topographic", "KIND topographic needs --run"),
        ("diagram topographic --run epitomic_small-mnist", "the first layer of epitomic_small is not topographic"),
        ("diagram x", "KIND invalid choice: 'x'"),
    ],
)
def test_bad_input_is_one_line_and_code_2(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1


def test_a_network_without_epitomes_is_not_topographic(make_run: MakeRun) -> None:
    with pytest.raises(UserError, match="maxpool_small is not topographic"):
        topographic_figure(str(make_run("maxpool_small")))
