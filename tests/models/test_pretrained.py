"""Saving and loading of networks, and the weights that ship with the package."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from epitomic.data.test_images import open_test_images
from epitomic.evaluation import score
from epitomic.models import create_model, from_pretrained, list_pretrained, save_pretrained
from epitomic.models.pretrained import SHIPPED
from epitomic.support.errors import UserError
from epitomic.support.files import SEAL
from tests.fuzzing import VARIANTS, mutate

RESULTS = Path(__file__).parents[2] / "results"
KEYS = ("command", "commit")
SMALL = {"image_size": 8, "width": 0.25}


def test_round_trip(tmp_path: Path) -> None:
    model = create_model("epitomic_small_norm", num_classes=4, batch_norm=True, **SMALL).eval()  # type: ignore[arg-type]
    save_pretrained(model, tmp_path, classes=["a", "b", "c", "d"])
    again = from_pretrained(tmp_path)
    assert again.config == model.config
    images = torch.randn(3, 1, 8, 8)
    assert torch.equal(again(images), model(images))
    assert json.loads((tmp_path / "config.json").read_text())["classes"] == ["a", "b", "c", "d"]


def test_a_file_of_another_program_loads(tmp_path: Path) -> None:
    model = create_model("epitomic_small", **SMALL)  # type: ignore[arg-type]
    save_pretrained(model, tmp_path)
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    assert torch.equal(from_pretrained(tmp_path).state_dict()["out.weight"], model.state_dict()["out.weight"])


@pytest.mark.parametrize("name", list_pretrained())
def test_shipped_weights_are_as_good_as_they_say(name: str) -> None:
    model_name, _, data = name.partition("-")
    assert sum(path.stat().st_size for path in (SHIPPED / name).iterdir()) < 7e6
    model = create_model(model_name, pretrained=data).eval()
    config = json.loads((SHIPPED / name / "config.json").read_text())
    if "EPITOMIC_DATA" not in os.environ:
        pytest.skip("EPITOMIC_DATA does not say where the real data are")
    images = open_test_images(config, SHIPPED / name / "config.json", workers=0)
    found = score(model, images.batches()).errors
    assert abs(found - config["trained"]["test_errors"]) <= 2  # they are kept in half precision


@pytest.mark.parametrize("name", list_pretrained())
def test_shipped_weights_are_of_a_published_run(name: str) -> None:
    trained = json.loads((SHIPPED / name / "config.json").read_text())["trained"]
    words = trained["command"].split()
    model, seed = (words[words.index(option) + 1] for option in ("--model", "--seed"))
    published = {path: json.loads(path.read_text()) for path in RESULTS.glob(f"*/{model}-{seed}/run.json")}
    (path,) = (p for p, facts in published.items() if facts.items() >= {k: trained[k] for k in KEYS}.items())
    run = json.loads(path.with_name("results.json").read_text())
    assert trained["test_errors"] == run["test"]["errors"]
    assert trained["validation_error"] == run["validation_error"]


def test_without_safetensors_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(UserError, match=r"pip install 'epitomic\[train\]'"):
        create_model("epitomic_small", pretrained="mnist")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_of_the_folder_will_do(name: str, tmp_path: Path) -> None:
    model = create_model("epitomic_small", **SMALL)  # type: ignore[arg-type]
    save_pretrained(model, tmp_path)
    again = from_pretrained(tmp_path / name)
    torch.testing.assert_close(dict(again.state_dict()), dict(model.state_dict()), rtol=0, atol=0)


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        from_pretrained(tmp_path / "nowhere")
    model = create_model("epitomic_small", **SMALL)  # type: ignore[arg-type]
    save_pretrained(model, tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    good = weights.read_bytes()

    raw = bytearray(good)
    raw[-5] ^= 1
    weights.write_bytes(raw)
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        from_pretrained(tmp_path)
    weights.write_bytes(good[:-10])
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        from_pretrained(tmp_path)
    weights.write_bytes(good)
    for text, message in (
        ("[]", "not a JSON object"),
        ("{", "cannot read"),
        ("{}", "has no entries"),
        ('{"library": "epitomic"}', "names no model"),
        ('{"model": "nothing"}', r"config\.json: unknown model"),
        ('{"model": "epitomic_small", "image_size": "x"}', "image_size"),
        ('{"model": "epitomic_small", "image_size": 8, "width": 0.5}', "another network"),
    ):
        config.write_text(text)
        with pytest.raises(UserError, match=message):
            from_pretrained(tmp_path)


@VARIANTS
def test_fuzzed_configurations(variants: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    save_pretrained(create_model("epitomic_small", **SMALL), tmp_path)  # type: ignore[arg-type]
    path = tmp_path / "config.json"
    good = path.read_bytes()
    for _ in range(variants):
        path.write_bytes(mutate(good, rng))
        with contextlib.suppress(UserError):
            from_pretrained(tmp_path)


def test_another_number_of_classes_in_the_configuration_is_refused(tmp_path: Path) -> None:
    """Before, the last layer silently kept random weights."""
    save_pretrained(create_model("epitomic_small", **SMALL), tmp_path)  # type: ignore[arg-type]
    path = tmp_path / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if key != SEAL}
    path.write_text(json.dumps({**config, "num_classes": 7}))
    for load in (from_pretrained, lambda folder: create_model("epitomic_small", pretrained=folder)):
        with pytest.raises(UserError, match=r"has weights for \d+ classes, but .*config\.json says 7"):
            load(tmp_path)
    assert create_model("epitomic_small", pretrained=tmp_path, num_classes=7).config["num_classes"] == 7  # type: ignore[index]
