"""What docs/compatibility.md says of the layer and torch's other tools, where no other test shows it.

Some tests here hold a limitation. When one of them fails because the limitation is gone, change the page as well.
"""

import copy
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
from torch import Tensor, nn
from torch.nn.utils import fusion, parametrizations, parametrize
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from epitomic import EpitomicConv2d
from tests.processes import run_two

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"


def make_layer(**options: Any) -> EpitomicConv2d:
    torch.manual_seed(0)
    return EpitomicConv2d(8, 8, 3, **options)


def gradients(layer: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 8, 12, 12, requires_grad=True)


@pytest.mark.skipif(not PAGE.exists(), reason="not a source tree")
def test_every_row_of_the_page_names_its_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| (?!---|what |-)", line)]
    assert len(rows) >= 20
    assert [row for row in rows if "](../tests/" not in row] == []


def test_gradient_checkpointing(x: Tensor) -> None:
    layer = make_layer()
    again = checkpoint(layer, x, use_reentrant=False)
    for a, b in zip(
        torch.autograd.grad(again.square().sum(), [x, *layer.parameters()]), gradients(layer, x), strict=True
    ):
        assert torch.equal(a, b)


class Double(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def test_parametrized_weights_are_used(x: Tensor) -> None:
    layer = make_layer(bias=False)
    once = layer(x)
    parametrize.register_parametrization(layer, "weight", Double())
    torch.testing.assert_close(layer(x), 2 * once, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalise", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_weight_and_spectral_norm_learn(normalise: Callable[[nn.Module], nn.Module], x: Tensor) -> None:
    layer = normalise(make_layer())
    layer(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())


def test_pruned_weights_stay_zero(x: Tensor) -> None:
    layer = make_layer()
    pruned = torch.nn.utils.prune.l1_unstructured(layer, "weight", 0.5)
    pruned(x).sum().backward()
    assert (layer.weight == 0).sum() == layer.weight.numel() // 2
    assert (layer.weight_orig.grad[layer.weight == 0] == 0).all()  # type: ignore[index]


@pytest.mark.parametrize("algorithm", ["auto", "winograd", "direct"])
def test_deterministic_algorithms(algorithm: str, x: Tensor) -> None:
    layer = make_layer(algorithm=algorithm)
    torch.use_deterministic_algorithms(True)
    try:
        for a, b in zip(gradients(layer, x), gradients(layer, x), strict=True):
            assert torch.equal(a, b)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_on_cpu(dtype: torch.dtype, normalize: bool, x: Tensor) -> None:
    layer = make_layer(normalize=normalize)
    with torch.autocast("cpu", dtype=dtype):
        y = layer(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), layer(x), rtol=0.02, atol=0.02)
    y.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_every_floating_dtype(dtype: torch.dtype, x: Tensor) -> None:
    layer, exact = make_layer().to(dtype), make_layer().double()
    cast = x.detach().to(dtype).requires_grad_()
    y = layer(cast)
    y.sum().backward()
    assert y.dtype == dtype
    assert cast.grad is not None
    assert cast.grad.dtype == dtype
    torch.testing.assert_close(y.double(), exact(x.detach().double()), rtol=0.03, atol=0.03)


def test_vmap_over_an_ensemble(x: Tensor) -> None:
    layers = [EpitomicConv2d(8, 8, 3) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(layers)
    base = copy.deepcopy(layers[0]).to("meta")

    def call(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(base, (parameters, buffers), (x,))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says which of its operators vmap one by one
        together = torch.func.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
    for layer, y in zip(layers, together, strict=True):
        torch.testing.assert_close(y, layer(x), rtol=1e-4, atol=1e-5)


def test_an_exported_program_can_be_saved(x: Tensor, tmp_path: Path) -> None:
    layer, file = make_layer().eval(), tmp_path / "layer.pt2"
    torch.export.save(torch.export.export(layer, (x.detach(),)), file)
    torch.testing.assert_close(torch.export.load(file).module()(x), layer(x), rtol=1e-4, atol=1e-5)


def test_onnx_has_standard_operators_only(x: Tensor, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    file = tmp_path / "layer.onnx"
    torch.onnx.export(make_layer().eval(), (x.detach(),), file, dynamo=True, verbose=False)
    model = onnx.load(file)
    ((domain, version),) = [(opset.domain, opset.version) for opset in model.opset_import]
    assert domain == ""
    assert 18 <= version <= 20
    assert {node.op_type for node in model.graph.node} == {"Conv", "Max", "Add"}


def test_weight_averages_follow(x: Tensor) -> None:
    layer, average = make_layer(), torch.optim.swa_utils.AveragedModel(make_layer())
    average.update_parameters(layer)
    torch.testing.assert_close(average(x), layer(x))


@pytest.mark.parametrize("algorithm", ["auto", "winograd", "direct"])
def test_flop_counters_count_the_definition(algorithm: str, x: Tensor) -> None:
    with FlopCounterMode(display=False) as counter:
        make_layer(algorithm=algorithm)(x)
    outputs, multiply_adds = 2 * 8 * 5 * 5, 4 * 8 * 3 * 3
    assert counter.get_total_flops() == 2 * outputs * multiply_adds


def test_fusing_a_batch_norm_with_a_negative_scale_is_wrong(x: Tensor) -> None:
    layer, norm = make_layer().eval(), nn.BatchNorm2d(8).eval()
    fused = fusion.fuse_conv_bn_eval(layer, norm)  # type: ignore[type-var]
    torch.testing.assert_close(fused(x), norm(layer(x)), rtol=1e-4, atol=1e-4)  # positive scales: right
    nn.init.uniform_(norm.weight, -2, -1)  # a negative scale turns the maximum into a minimum
    fused = fusion.fuse_conv_bn_eval(layer, norm)  # type: ignore[type-var]
    assert (fused(x) - norm(layer(x))).abs().max() > 0.1


def test_fx_fusion_leaves_the_layer_alone() -> None:
    from torch.fx.experimental.optimization import fuse

    fused = fuse(nn.Sequential(make_layer(), nn.BatchNorm2d(8)).eval())
    assert any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())


def test_quantisation_leaves_the_layer_in_float() -> None:
    model = nn.Sequential(make_layer(), nn.Flatten(), nn.Linear(200, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the successor of its quantisation
        quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear, EpitomicConv2d})
    assert isinstance(quantised[0], EpitomicConv2d)
    assert quantised[0].weight.dtype == torch.float32
    assert type(quantised[2]) is not nn.Linear  # the layer beside it is quantised


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit is on its way out
def test_jit_script_is_refused() -> None:
    with pytest.raises((RuntimeError, ValueError), match="Geometry"):
        torch.jit.script(make_layer())


def test_fully_sharded_across_processes(tmp_path: Path) -> None:
    """Two processes with half the layer and half the batch each get the gradient of the whole batch."""
    body = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from epitomic import EpitomicConv2d
torch.manual_seed(0)
layer, x = EpitomicConv2d(8, 4, 3, normalize=True), torch.randn(4, 8, 10, 10)
layer(x).square().mean().backward()
whole = layer.weight.grad.clone()
layer.zero_grad()
fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))
layer(x[2 * rank : 2 * rank + 2]).square().mean().backward()
assert layer.weight.grad.to_local().shape[0] == 2
torch.testing.assert_close(layer.weight.grad.full_tensor(), whole, rtol=1e-3, atol=1e-5)
os._exit(0)  """
    run_two(body, tmp_path)
