"""Networks on the hub: what is uploaded comes back the same, and every problem is one clear line."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import epitomic
from epitomic import cli
from epitomic.models import create_model, from_pretrained
from epitomic.models.hub import repository_of
from epitomic.sharing import push_to_hub, save_for_hub
from epitomic.support.errors import UserError
from tests.fake_hub import FakeHub, files_of, set_offline

NAME = "someone/digits"
THREE = {"README.md", "config.json", "model.safetensors"}


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    images = torch.randn(3, 1, 8, 8)
    return torch.equal(a.eval()(images), b.eval()(images))


def test_a_run_goes_to_the_hub_and_comes_back(hub: FakeHub, folder: Path) -> None:
    address = push_to_hub(folder, NAME, private=True, license="mit", token="t")
    assert address.startswith(f"{hub.endpoint}/{NAME}/commit/")
    assert hub.private == {NAME: True}
    assert set(hub.repositories[NAME]["main"]) == THREE  # no metrics, no checkpoints
    again = epitomic.from_pretrained(NAME)
    assert same(again, from_pretrained(folder))
    assert again.pretrained_cfg.classes == from_pretrained(folder).pretrained_cfg.classes  # type: ignore[union-attr]
    assert not [request for request in hub.requests if request.startswith("GET") and "README" in request]


def test_the_cache_serves_when_the_hub_is_away(hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(NAME, files_of(folder))
    first = from_pretrained(NAME)
    set_offline(monkeypatch, True)
    asked = len(hub.requests)
    assert same(from_pretrained(NAME), first)
    assert len(hub.requests) == asked
    with pytest.raises(UserError, match="neither a folder here nor in the hub's cache"):
        from_pretrained("someone/else")


def test_a_revision_is_one_version_of_both_files(hub: FakeHub, folder: Path, make_run: object) -> None:
    old = hub.add(NAME, files_of(folder))
    other = create_model("epitomic_small", image_size=8, width=0.5)
    push_to_hub(other, NAME)
    assert same(from_pretrained(NAME), other)
    assert same(from_pretrained(NAME, revision=old), from_pretrained(folder))
    with pytest.raises(UserError, match=r"someone/digits on the hub has no revision 'v9'"):
        from_pretrained(NAME, revision="v9")
    with pytest.raises(UserError, match="a revision is for networks on the hub"):
        from_pretrained(folder, revision="main")


def test_create_model_and_the_command_line_load_from_the_hub(
    hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add(NAME, files_of(folder))
    model = create_model("epitomic_small", pretrained=NAME, num_classes=3)  # a new last layer
    assert model(torch.randn(1, 1, 8, 8)).shape == (1, 3)
    assert cli.main(["evaluate", f"hf://{NAME}"]) == 0
    assert "test images: error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("someone/nothing", "neither a folder here nor a network on the hub"),
        ("someone/empty", "no network of epitomic"),
        ("someone/transformer", "is of another library"),
        ("someone/wrong", "is of another network"),
        ("hf://no-slash", "named such as 'user/name', got 'no-slash'"),
        ("hf://../up", "named such as 'user/name'"),
    ],
)
def test_bad_networks_are_one_line(
    name: str, message: str, hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(folder)
    save_file({"weight": torch.zeros(2)}, tmp_path / "other")
    hub.add("someone/empty", {})
    hub.add("someone/transformer", {**files, "config.json": b'{"architectures": ["BertModel"]}'})
    hub.add("someone/wrong", {**files, "model.safetensors": (tmp_path / "other").read_bytes()})
    with pytest.raises(UserError, match=message):
        from_pretrained(name)
    address = name if name.startswith("hf://") else f"hf://{name}"
    assert cli.main(["predict", address, "image.png"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("epitomic: ")]
    assert message in line


def test_a_misspelt_folder_does_not_go_to_the_hub(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["evaluate", "runs/digist"]) == 2  # the command line never guesses
    (tmp_path / "runs").mkdir()
    assert repository_of("runs/digist") is None
    with pytest.raises(UserError, match="no folder"):
        from_pretrained("runs/digist")
    assert hub.requests == []


def test_a_folder_comes_first(hub: FakeHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path / NAME)
    assert same(from_pretrained(NAME), from_pretrained(folder))
    assert hub.requests == []


def test_the_card_says_what_the_run_says(folder: Path, tmp_path: Path) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    facts = {"command": "epitomic train digits --seed 1 --out /home/me/secret", "commit": "abc", "seed": 1}
    (run / "run.json").write_text(json.dumps({**facts, "versions": {"torch": "2.13"}, "wall_seconds": 90}))
    save_for_hub(run, tmp_path / "card", NAME, license="mit")
    card = huggingface_hub.ModelCard.load(tmp_path / "card" / "README.md")
    test = json.loads((folder / "results.json").read_text())["test"]
    assert card.data.library_name == "epitomic"
    assert card.data.license == "mit"
    assert card.data.datasets == ["digits"]
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("accuracy", round(100 * (1 - test["error"]), 2))
    for said in (f'from_pretrained("{NAME}")', "8 x 8 pixels", f"| {test['images']} | ", "--seed 1", "minutes: 1.5"):
        assert said in card.text
    assert "secret" not in card.content


def test_a_network_that_learnt_on_does_not_claim_old_figures(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    model = create_model("epitomic_small", pretrained="mnist", num_classes=3)
    save_for_hub(model, tmp_path / "new", NAME)
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert "trained" not in config
    assert "classes" not in config
    assert config["standardize"]
    card = (tmp_path / "new" / "README.md").read_text()
    assert "## Figures" not in card
    assert "## Training" not in card
    save_for_hub("epitomic_small-mnist", tmp_path / "shipped", NAME)
    assert "29 images wrong" in (tmp_path / "shipped" / "README.md").read_text()


def test_push_from_the_command_line(
    hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["push", str(folder), NAME, "--out", str(tmp_path / "out")]) == 0
    assert set(files_of(tmp_path / "out")) == THREE
    assert hub.requests == []
    assert cli.main(["push", str(folder), NAME, "--out", str(tmp_path / "out")]) == 2
    assert cli.main(["push", str(folder), "digits"]) == 2
    assert cli.main(["push", str(tmp_path / "nothing"), NAME]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [
        part in line for part, line in zip(("not an empty folder", "'user/name'", "no folder"), errors, strict=True)
    ]
    assert cli.main(["push", str(folder), NAME]) == 0
    assert f"{NAME}/commit/" in capsys.readouterr().out


def test_without_huggingface_hub_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", None)
    with pytest.raises(UserError, match=r"pip install 'epitomic\[hub\]'"):
        from_pretrained(NAME)


def test_torch_hub_finds_the_networks() -> None:
    root = Path(__file__).parents[2]
    if not (root / "hubconf.py").exists():
        pytest.skip("not a source tree")
    model = torch.hub.load(str(root), "epitomic_small", source="local", pretrained="mnist")
    shipped = torch.hub.load(str(root), "from_pretrained", "epitomic_small-mnist", source="local")
    images = torch.randn(2, 1, 28, 28)
    assert torch.equal(model.eval()(images), shipped(images))
