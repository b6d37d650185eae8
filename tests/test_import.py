from __future__ import annotations

import subprocess
import sys

import pytest

import epitomic


def test_importing_the_package_needs_torch_only() -> None:
    code = (
        "import sys, epitomic; print([m for m in ('lightning_fabric', 'sklearn', 'safetensors') if m in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


def test_the_networks_are_at_the_top() -> None:
    assert "epitomic_small" in epitomic.list_models()
    assert epitomic.create_model("epitomic_small", image_size=8).config["image_size"] == 8  # type: ignore[index]
    with pytest.raises(AttributeError, match="nothing"):
        epitomic.nothing  # noqa: B018
