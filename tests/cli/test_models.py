"""The command that lists the networks."""

import re

import pytest

from epitomic.cli import main


def test_networks_that_an_image_size_does_not_fit_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--image-size", "64"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "1 x 64 x 64" in rows["epitomic_small"]
    assert "image_size of alexnet networks must be at least" in rows["alexnet"]
    assert main(["models", "alexnet", "--image-size", "64"]) == 2


def test_a_network_is_shown_layer_by_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "epitomic_small"]) == 0
    title, _, _, *layers, total = capsys.readouterr().out.splitlines()
    assert title == "epitomic_small, input 1 x 28 x 28"
    assert re.split(r" {2,}", layers[0]) == [
        "features.layer1.conv",
        "EpitomicConv2d",
        "48 x 14 x 14",
        "1,776",
        "940,800",
    ]
    assert total.split() == ["all", "1,368,026", "23,523,072"]
