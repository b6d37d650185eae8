"""The layer works wherever a torch layer does: compile, export, ONNX, all kinds of autograd, threads, distributed."""

import concurrent.futures
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from epitomic import EpitomicConv2d, MaxPoolConv2d, WinogradConv2d
from tests.processes import run_two

VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {"kernel_size": 3},
    "normalised": {"kernel_size": 3, "normalize": True},
    "topographic": {"kernel_size": 3, "epitome_size": 6, "normalize": True},
    "epitome stride": {"kernel_size": 4, "epitome_stride": 2, "padding": 1},
    "max-pooled": {"kernel_size": 3, "pool_size": 3, "pool_stride": 2, "pool_padding": 1, "padding": 1, "groups": 2},
    "plain": {"kernel_size": 3, "padding": "same"},
}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()  # many tests of one layer class would reach its limit of recompilations


def make_layer(variant: str, algorithm: str = "auto") -> EpitomicConv2d | MaxPoolConv2d | WinogradConv2d:
    torch.manual_seed(0)
    kind: Any = {"max-pooled": MaxPoolConv2d, "plain": WinogradConv2d}.get(variant, EpitomicConv2d)
    return kind(32, 8, **VARIANTS[variant], algorithm=algorithm)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("algorithm", ["direct", "winograd", "auto"])
def test_compile_fullgraph(variant: str, algorithm: str) -> None:
    layer, x = make_layer(variant, algorithm), torch.randn(2, 32, 12, 12, requires_grad=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    expected, y = layer(x), compiled(x)
    torch.testing.assert_close(y, expected)
    parameters = [x, *layer.parameters()]
    for a, b in zip(
        torch.autograd.grad(y.square().sum(), parameters),
        torch.autograd.grad(expected.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_compile_with_inductor_keeps_channels_last() -> None:
    model = nn.Sequential(make_layer("mini", "winograd"), nn.ReLU(), EpitomicConv2d(8, 4, 3, algorithm="winograd"))
    x = torch.randn(2, 32, 14, 14).contiguous(memory_format=torch.channels_last)
    y = torch.compile(model, fullgraph=True)(x)
    torch.testing.assert_close(y, model(x))
    assert y.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("variant", VARIANTS)
def test_export_with_a_dynamic_batch(variant: str) -> None:
    layer = make_layer(variant).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(layer, (torch.randn(2, 32, 12, 12),), dynamic_shapes={"input": {0: batch}})
    assert "epitomic" not in str(program.graph)  # made of torch's own operators
    x = torch.randn(5, 32, 12, 12)
    torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_onnx_runtime_gives_equal_outputs(variant: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    layer, file = make_layer(variant).eval(), tmp_path / "layer.onnx"
    batch = torch.export.Dim("batch", min=1, max=64)
    torch.onnx.export(
        layer, (torch.randn(2, 32, 12, 12),), file, dynamo=True, dynamic_shapes={"input": {0: batch}}, verbose=False
    )
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for n in (1, 5):
        x = torch.randn(n, 32, 12, 12)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(y, layer(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_jit_trace(variant: str, tmp_path: Path) -> None:
    layer, x = make_layer(variant), torch.randn(2, 32, 12, 12)  # its parameters need gradients
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing warns of sizes that become constants, and that it is deprecated
        torch.jit.trace(layer, x).save(tmp_path / "layer.pt")
        traced = torch.jit.load(tmp_path / "layer.pt")
    other = torch.randn(3, 32, 12, 12)
    torch.testing.assert_close(traced(other), layer(other), rtol=1e-4, atol=1e-5)


def test_max_pooled_convolution_becomes_conv_and_max_pool_in_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    file = tmp_path / "layer.onnx"
    torch.onnx.export(make_layer("max-pooled").eval(), (torch.randn(2, 32, 12, 12),), file, dynamo=True, verbose=False)
    assert [node.op_type for node in onnx.load(file).graph.node] == ["Conv", "MaxPool"]


def test_onnx_by_the_older_exporter(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    layer, file, x = make_layer("normalised"), tmp_path / "layer.onnx", torch.randn(2, 32, 12, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(layer, (x,), file, dynamo=False, input_names=["input"])
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"input": x.numpy()})
    np.testing.assert_allclose(y, layer(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_fx_sees_one_call() -> None:
    model = nn.Sequential(make_layer("normalised"), nn.ReLU())
    traced, x = torch.fx.symbolic_trace(model), torch.randn(2, 32, 12, 12)
    assert [node.op for node in traced.graph.nodes].count("call_function") == 1
    torch.testing.assert_close(traced(x), model(x))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("learning", [True, False])
def test_forward_mode_is_the_derivative(variant: str, learning: bool) -> None:
    layer = make_layer(variant).double().requires_grad_(learning)
    x, v = torch.randn(2, 2, 32, 12, 12, dtype=torch.float64)
    slope = (layer(x + 1e-6 * v) - layer(x - 1e-6 * v)) / 2e-6
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, v))).tangent
    torch.testing.assert_close(tangent, slope, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.func.jvp(layer, (x,), (v,))[1], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [EpitomicConv2d, MaxPoolConv2d])
@pytest.mark.parametrize("algorithm", ["native", "winograd"])
def test_forward_mode_works_or_says_so(kind: Any, algorithm: str) -> None:
    layer, x = kind(2, 2, 2, algorithm=algorithm), torch.randn(1, 2, 4, 4)
    with pytest.raises(ValueError, match=rf"algorithm='{algorithm}' cannot serve this call"):
        torch.func.jvp(layer, (x,), (x,))


@pytest.mark.parametrize("kind", [EpitomicConv2d, MaxPoolConv2d])
def test_hessian_by_torch_func(kind: Any) -> None:
    torch.manual_seed(0)
    layer = kind(2, 2, 2, dtype=torch.float64)
    x, v = torch.randn(1, 2, 4, 4, dtype=torch.float64), torch.randn(layer.weight.shape, dtype=torch.float64)

    def loss(weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"weight": weight}, x).square().sum()

    weight, gradient = layer.weight.detach(), torch.func.grad(loss)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of operators that vmap runs one by one
        hessian = torch.func.hessian(loss)(weight)
    slope = (gradient(weight + 1e-6 * v) - gradient(weight - 1e-6 * v)) / 2e-6
    torch.testing.assert_close(torch.tensordot(hessian, v, 4), slope, rtol=1e-5, atol=1e-6)


def test_double_backward_works_or_says_so() -> None:
    x = torch.randn(1, 32, 8, 8, dtype=torch.float64, requires_grad=True)
    direct = make_layer("mini", "direct").double()
    (grad,) = torch.autograd.grad(direct(x).square().sum(), x, create_graph=True)
    assert torch.autograd.grad(grad.sum(), x)[0].isfinite().all()

    for variant in ("mini", "normalised", "max-pooled", "plain"):
        winograd = make_layer(variant, "winograd").double()
        for wanted in (x, winograd.weight):
            (grad,) = torch.autograd.grad(winograd(x).square().sum(), wanted, create_graph=True)
            with pytest.raises(RuntimeError, match=r"no double backward .* algorithm='direct'"):
                torch.autograd.grad(grad.sum(), wanted)


@pytest.mark.parametrize("kind", [EpitomicConv2d, MaxPoolConv2d])
def test_gradgradcheck_direct(kind: Any) -> None:
    torch.manual_seed(0)
    layer = kind(2, 2, 2, algorithm="direct", dtype=torch.float64)
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda x, w: torch.func.functional_call(layer, {"weight": w}, x), (x, layer.weight)
    )


@pytest.mark.parametrize("kind", [EpitomicConv2d, MaxPoolConv2d])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("algorithm", ["direct", "auto"])
def test_gradients_of_each_sample_by_torch_func(kind: Any, algorithm: str, normalize: bool) -> None:
    torch.manual_seed(0)
    layer = kind(8, 8, 3, algorithm=algorithm, normalize=normalize)
    x = torch.randn(3, 8, 8, 8)
    parameters: dict[str, torch.Tensor] = dict(layer.named_parameters())

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, parameters, x).square().sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of operators that vmap runs one by one
        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for sample, one in enumerate(x):
        alone = torch.autograd.grad(layer(one).square().sum(), list(parameters.values()))
        for name, grad in zip(parameters, alone, strict=True):
            torch.testing.assert_close(each[name][sample], grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("algorithm", ["direct", "winograd", "auto"])
def test_overlapping_calls_do_not_disturb_each_other(algorithm: str) -> None:
    layers = [EpitomicConv2d(16, 8 + k, 3, algorithm=algorithm) for k in range(4)]
    inputs = [torch.randn(4, 16, 16 + k, 16, requires_grad=True) for k in range(4)]

    def step(k: int) -> torch.Tensor:
        return torch.autograd.grad(layers[k](inputs[k]).square().sum(), inputs[k])[0]

    alone = [step(k) for k in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for grad, expected in zip(pool.map(step, range(4)), alone, strict=True):
                assert torch.equal(grad, expected)


def test_data_parallel_across_processes(tmp_path: Path) -> None:
    """Two processes with half the batch each get the gradient of the whole batch."""
    body = """
from torch.nn.parallel import DistributedDataParallel
from epitomic import EpitomicConv2d, MaxPoolConv2d, WinogradConv2d
torch.manual_seed(0)
layer, x = EpitomicConv2d(32, 4, 3, normalize=True), torch.randn(4, 32, 10, 10)
layer(x).square().mean().backward()
whole = layer.weight.grad.clone()
layer.zero_grad()
parallel = DistributedDataParallel(layer)
parallel(x[2 * rank : 2 * rank + 2]).square().mean().backward()
torch.testing.assert_close(layer.weight.grad, whole, rtol=1e-3, atol=1e-5)
"""
    run_two(body, tmp_path)
