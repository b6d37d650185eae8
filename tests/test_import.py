"""What ``import epitomic`` brings, and what it leaves for later."""

from __future__ import annotations

import subprocess
import sys

import pytest

import epitomic


def test_importing_the_package_needs_torch_alone() -> None:
    """It loads torch and the layer; networks, training and torch's compiler, which takes a second, load when used."""
    code = "import sys, torch; before = set(sys.modules); import epitomic; print(*set(sys.modules) - before)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    new = [name.split(".") for name in finished.stdout.split()]
    assert {name[0] for name in new} - sys.stdlib_module_names <= {"epitomic", "torch"}
    own = {name[1] for name in new if name[0] == "epitomic" and len(name) > 1}
    assert own == {"_version", "functional", "functional_1d", "geometry", "layers", "ops"}
    assert not {name[1] for name in new if name[0] == "torch"} & {"_dynamo", "_inductor", "onnx"}


def test_the_networks_are_at_the_top() -> None:
    assert "epitomic_small" in epitomic.list_models()
    assert epitomic.create_model("epitomic_small", image_size=8).config["image_size"] == 8  # type: ignore[index]
    with pytest.raises(AttributeError, match="nothing"):
        epitomic.nothing  # noqa: B018
