"""`for_export`: every form computes what the layer computes, and exports to standard operators with dynamic sizes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from epitomic import EpitomicConv1d, EpitomicConv2d, create_model, for_export
from epitomic.surgery.exporting import FORMS, Convolutions, OneConvolution, WinogradProducts, export_form

LAYERS: dict[str, dict[str, Any]] = {
    "mini": {"kernel_size": 3},
    "normalised": {"kernel_size": 3, "normalize": True, "groups": 2},
    "topographic": {"kernel_size": 3, "epitome_size": 6, "normalize": True},
    "epitome stride": {"kernel_size": 4, "epitome_stride": 2, "padding": 1, "bias": False},
    "odd epitome stride": {"kernel_size": 3, "epitome_stride": 2, "pool_size": (2, 3)},
    "reflected": {"kernel_size": (2, 3), "padding": (1, 2), "padding_mode": "reflect", "stride": 1},
    "same": {"kernel_size": 4, "padding": "same", "stride": 1, "pool_size": (1, 2)},
}


def make_layer(name: str) -> EpitomicConv2d:
    torch.manual_seed(0)
    return EpitomicConv2d(4, 8, **LAYERS[name]).eval()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_every_form_computes_the_layer(name: str, form: str) -> None:
    layer = make_layer(name)
    exported = for_export(layer, form)
    for shape in ((1, 4, 12, 12), (3, 4, 13, 17)):
        x = torch.randn(shape)
        torch.testing.assert_close(exported(x), layer(x), rtol=1e-4, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_winograd_products_equal_the_layer_for_random_sizes(data: st.DataObject) -> None:
    whole = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    stride, blocks = whole(1, 3), whole(1, 2)
    pool = (whole(1, 3), whole(1, 3))
    kernel = (whole(1, 4) * blocks, whole(1, 4) * blocks)
    options: dict[str, Any] = {"stride": stride * blocks, "padding": whole(0, 2), "normalize": data.draw(st.booleans())}
    layer = EpitomicConv2d(2, 4, kernel, pool_size=pool, epitome_stride=blocks, groups=whole(1, 2), **options).eval()
    exported = for_export(layer, "winograd")
    assert isinstance(exported, WinogradProducts)
    x = torch.randn(whole(1, 3), 2, kernel[0] + whole(0, 9), kernel[1] + whole(0, 9))
    torch.testing.assert_close(exported(x), layer(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_sequences(form: str) -> None:
    layer, x = EpitomicConv1d(4, 8, 5, pool_size=3, padding=2).eval(), torch.randn(2, 4, 40)
    torch.testing.assert_close(for_export(layer, form)(x), layer(x), rtol=1e-4, atol=1e-5)


def test_the_form_follows_the_saved_work() -> None:
    assert export_form(EpitomicConv2d(96, 192, 6, pool_size=3)) == "winograd"  # layer 2 of the paper
    assert export_form(EpitomicConv2d(512, 512, 3, pool_size=3)) == "winograd"  # layer 6
    assert export_form(EpitomicConv2d(3, 96, 8, pool_size=3, stride=4, epitome_stride=2)) == "one_convolution"
    assert export_form(EpitomicConv2d(512, 64, 3, epitome_stride=2)) == "one_convolution"  # 2 does not divide 3
    kinds = {name: type(for_export(EpitomicConv2d(3, 8, 3), name)) for name in FORMS[1:]}
    assert list(kinds.values()) == [OneConvolution, Convolutions, WinogradProducts]


def test_a_network_is_copied_and_its_scores_stay() -> None:
    model = create_model("epitomic_small", num_classes=5, in_channels=1, image_size=28).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    exported = for_export(model)
    assert not any(isinstance(module, EpitomicConv2d) for module in exported.modules())
    assert any(isinstance(module, EpitomicConv2d) for module in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    x = torch.randn(2, 1, 28, 28)
    torch.testing.assert_close(exported(x), model(x), rtol=1e-4, atol=1e-5)


def test_what_is_no_form_or_no_module() -> None:
    with pytest.raises(ValueError, match=r"form must be one of auto, one_convolution, .*, got 'fast'"):
        for_export(EpitomicConv2d(3, 8, 3), "fast")
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        for_export("model")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "form"), [("mini", "one_convolution"), ("epitome stride", "winograd")])
def test_onnx_with_dynamic_batch_height_and_width(name: str, form: str, tmp_path: Path) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    layer, file = make_layer(name), tmp_path / "layer.onnx"
    size = torch.export.Dim.DYNAMIC
    torch.onnx.export(
        for_export(nn.Sequential(layer), form),
        (torch.randn(2, 4, 18, 22),),
        file,
        dynamo=True,
        verbose=False,
        dynamic_shapes=({0: size, 2: size, 3: size},),
    )
    assert {node.domain for node in onnx.load(file).graph.node} <= {"", "ai.onnx"}
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for shape in ((1, 4, 18, 22), (5, 4, 13, 31)):
        x = torch.randn(shape)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(y, layer(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_torch_export_with_dynamic_sizes() -> None:
    size = torch.export.Dim.DYNAMIC
    layer = EpitomicConv2d(96, 192, 3, pool_size=3).eval()
    program = torch.export.export(
        for_export(layer), (torch.randn(2, 96, 18, 22),), dynamic_shapes=({0: size, 2: size, 3: size},)
    )
    x = torch.randn(3, 96, 12, 10)
    torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-4, atol=1e-5)
