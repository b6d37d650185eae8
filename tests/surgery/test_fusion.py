"""fuse_ and unfuse_: the same function, the same state dict, and a reason for whatever is left alone."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic import MaxPoolConv2d, WinogradConv2d, fuse_, unfuse_
from tests.surgery.architectures import ARCHITECTURES, VGG, Architecture


def made(architecture: Architecture) -> tuple[nn.Module, Tensor]:
    """A network in float64 whose batch normalisations have seen something, with scales of both signs."""
    torch.manual_seed(0)
    model = architecture.make().double()
    x = torch.randn(architecture.shape, dtype=torch.float64)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.weight.uniform_(-1.5, 1.5)
                module.bias.normal_()
        model.train()(torch.randn(architecture.shape, dtype=torch.float64))
    return model, x


def gradients(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    x = x.clone().requires_grad_()
    model(x).square().sum().backward()
    assert x.grad is not None
    return {"input": x.grad, **{n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_same_function_in_eval_mode(name: str) -> None:
    model, x = made(ARCHITECTURES[name])
    model.eval()
    expected, state = model(x), copy.deepcopy(model.state_dict())
    assert fuse_(model) == list(ARCHITECTURES[name].fused)
    torch.testing.assert_close(model(x), expected, rtol=1e-9, atol=1e-9)
    assert sorted(unfuse_(model)) == sorted(ARCHITECTURES[name].fused)
    after = model.state_dict()
    assert after.keys() == state.keys()
    assert all(torch.equal(after[key], state[key]) for key in state)
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("name", [name for name, a in ARCHITECTURES.items() if a.trainable])
def test_the_same_training(name: str) -> None:
    model, x = made(ARCHITECTURES[name])
    expected, state = gradients(model, x), list(model.state_dict())
    assert fuse_(model) == list(ARCHITECTURES[name].trainable)
    assert list(model.state_dict()) == state
    found = gradients(model, x)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-7, atol=1e-9, msg=key)


def test_parameters_are_the_same_objects_and_come_back_trained() -> None:
    model = VGG()
    before = dict(model.named_parameters())
    fuse_(model)
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    optimizer.step()
    trained = model(torch.ones(1, 3, 32, 32))
    unfuse_(model)
    assert type(model.features[0]) is nn.Conv2d
    torch.testing.assert_close(model(torch.ones(1, 3, 32, 32)), trained, rtol=1e-4, atol=1e-5)


def test_a_copy_of_a_fused_network_can_be_unfused() -> None:
    model = VGG()
    fuse_(model)
    twin = copy.deepcopy(model)
    unfuse_(twin)
    assert isinstance(model.features[0], MaxPoolConv2d)
    assert type(twin.features[0]) is nn.Conv2d
    assert twin.features[0].weight is not model.features[0].weight


def test_a_folded_layer_refuses_training() -> None:
    model = VGG(batch_norm=True).eval()
    fuse_(model)
    with pytest.raises(RuntimeError, match="unfuse_"):
        model.train()
    unfuse_(model)
    model.train()


class Wrapped(nn.Module):
    """A convolution and a max-pooling, with ``between`` and ``after`` to stand in the way."""

    def __init__(self, between: Callable[[Tensor], Tensor], pool: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.conv, self.pool, self.between = nn.Conv2d(2, 4, 3), pool or nn.MaxPool2d(2), between

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.between(self.conv(x)))


class ReadTwice(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.pool(y).sum() + y.sum()


class UsedTwice(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(x)).sum() + self.conv(x).sum()


class PoolElsewhere(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(x)).sum() + self.pool(x).sum()


class ReadsWeight(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(x)).sum() + self.conv.weight.square().sum()


class Branches(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(x)) if x.sum() > 0 else x


def hooked() -> nn.Module:
    model = Wrapped(nn.ReLU())
    model.conv.register_forward_hook(lambda *_: None)
    return model


def parametrized() -> nn.Module:
    model = Wrapped(nn.ReLU())
    nn.utils.parametrizations.weight_norm(model.conv)
    return model


def dilated() -> nn.Module:
    model = Wrapped(nn.ReLU())
    model.conv = nn.Conv2d(2, 4, 3, dilation=2)
    return model


LEFT_ALONE = {
    "GELU": (lambda: Wrapped(nn.GELU()), "GELU"),
    "SiLU": (lambda: Wrapped(F.silu), "silu"),
    "PReLU": (lambda: Wrapped(nn.PReLU()), "PReLU"),
    "a falling slope": (lambda: Wrapped(nn.LeakyReLU(-0.1)), "LeakyReLU"),
    "a falling slope, as a function": (lambda: Wrapped(lambda x: F.leaky_relu(x, -0.1)), "leaky_relu"),
    "batch norm in training": (lambda: Wrapped(nn.BatchNorm2d(4)), "eval mode"),
    "response normalisation": (lambda: Wrapped(nn.LocalResponseNorm(3)), "LocalResponseNorm"),
    "dropout": (lambda: Wrapped(nn.Dropout()), "Dropout"),
    "two activations": (lambda: Wrapped(nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4))), "BatchNorm2d"),
    "functional pooling": (lambda: Wrapped(F.relu, lambda x: F.max_pool2d(x, 2)), "is a function"),
    "average pooling": (lambda: Wrapped(F.relu, nn.AvgPool2d(2)), "AvgPool2d"),
    "pooling with dilation": (lambda: Wrapped(F.relu, nn.MaxPool2d(2, dilation=2)), "dilation"),
    "dilation": (dilated, "dilation"),
    "read twice": (lambda: ReadTwice(F.relu), "read more than once"),
    "used twice": (lambda: UsedTwice(F.relu), "also used"),
    "a pooling used elsewhere": (lambda: PoolElsewhere(F.relu), "also used"),
    "a weight that the forward reads": (lambda: ReadsWeight(F.relu), "also used"),
    "hooks": (hooked, "hooks"),
    "parametrizations": (parametrized, "parametrizations"),
    "untraceable": (lambda: Branches(F.relu), "cannot trace"),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone_and_explained(case: str) -> None:
    make, reason = LEFT_ALONE[case]
    model = make()
    modules = list(model.modules())
    with pytest.warns(UserWarning, match="nothing was fused"):
        lines = fuse_(model, explain=True)
    assert [(name, replaced) for name, replaced, _ in lines] == [("conv", False)]
    assert reason in lines[0][2]
    assert list(model.modules()) == modules


INCREASING = [
    *(nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.1), nn.ELU(), nn.CELU(), nn.SELU(), nn.Sigmoid(), nn.Tanh(), nn.Softplus()),
    *(nn.Hardtanh(), nn.Hardsigmoid(), F.relu, F.elu, F.softplus, torch.sigmoid, lambda x: F.leaky_relu(x, 0.2)),
    *(lambda x: x.relu(), lambda x: x.tanh(), lambda x: F.hardtanh(x, -2.0, 0.5), lambda x: x),
]


@pytest.mark.parametrize("activation", INCREASING)
def test_increasing_activations_commute_with_the_maximum(activation: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model, x = Wrapped(activation).double(), torch.randn(2, 2, 12, 12, dtype=torch.float64)
    expected = gradients(model, x)
    assert fuse_(model) == ["conv"]
    for key, value in gradients(model, x).items():
        torch.testing.assert_close(value, expected[key], msg=key)


def test_one_pooling_with_two_settings_is_left_alone() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.two, self.three = nn.Conv2d(2, 2, 3, padding=1), nn.MaxPool2d(2), nn.MaxPool2d(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.three(self.conv(self.two(self.conv(x))))

    with pytest.warns(UserWarning, match="different layers after it"):
        assert fuse_(Twice()) == []


def test_a_filter_chooses() -> None:
    names = fuse_(VGG(), filter_fn=lambda module, name: isinstance(module, nn.Conv2d) and name != "features.0")
    assert "features.0" not in names
    assert "features.3" in names


def test_an_error_in_the_filter_changes_nothing() -> None:
    def fail(module: nn.Module, name: str) -> bool:
        if name == "features.8":
            raise KeyError(name)
        return True

    model = VGG()
    modules = list(model.modules())
    with pytest.raises(KeyError):
        fuse_(model, filter_fn=fail)
    assert list(model.modules()) == modules


def test_no_network() -> None:
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        fuse_("resnet")  # type: ignore[call-overload]
    with pytest.warns(UserWarning, match="no convolution"):
        assert fuse_(nn.Linear(2, 2)) == []


def test_unfusing_what_was_not_fused_changes_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert unfuse_(VGG()) == []


@pytest.mark.parametrize("name", ["vgg", "alexnet", "squeezenet", "resnet"])
def test_plain_layers_compute_the_same_and_go_back(name: str) -> None:
    model, x = made(ARCHITECTURES[name])
    model.eval()
    expected, state = model(x), list(model.state_dict())
    names = fuse_(model, plain=True)
    plain = [n for n in names if isinstance(model.get_submodule(n), WinogradConv2d)]
    assert plain
    assert set(names) - set(plain) == set(ARCHITECTURES[name].fused)
    torch.testing.assert_close(model(x), expected, rtol=1e-9, atol=1e-9)
    assert sorted(unfuse_(model)) == sorted(names)
    assert list(model.state_dict()) == state
    assert not any(isinstance(m, WinogradConv2d) for m in model.modules())
    assert torch.equal(model(x), expected)


def test_plain_layers_that_are_left_alone_are_explained() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3))
    lines = fuse_(model, plain=True, explain=True, filter_fn=lambda _, name: name != "2")
    reasons = {name: reason for name, _, reason in lines}
    assert [replaced for _, replaced, _ in lines] == [False, False, False, True]
    assert "its stride or dilation is not 1" in reasons["0"]
    assert "its filters have one pixel" in reasons["1"]
    assert "filter_fn leaves it out" in reasons["2"]
