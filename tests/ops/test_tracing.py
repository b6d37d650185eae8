"""What each way of tracing, exporting, transforming or differentiating a call needs."""

import warnings

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from epitomic.ops.tracing import in_forward_mode, needs_known_operators, needs_plain_autograd


class Recorder(nn.Module):
    """Notes what `tracing` says during a call."""

    def forward(self, x: Tensor) -> Tensor:
        SAID[:] = in_forward_mode(), needs_plain_autograd(), needs_known_operators()
        return x + 1


SAID: list[bool] = []


def test_each_way() -> None:
    recorder, x = Recorder(), torch.zeros(2)
    recorder(x)
    assert SAID == [False, False, False]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit warns of its own age
        torch.jit.trace(recorder, x, check_trace=False)  # a check would call it once more
    assert SAID == [False, True, True]
    with forward_ad.dual_level():
        recorder(x)
    assert SAID == [True, True, True]
    torch.func.jvp(recorder, (x,), (x,))
    assert SAID == [True, True, True]
    torch.func.grad(lambda x: recorder(x).sum())(x)
    assert SAID == [False, False, True]
    torch.func.vmap(recorder)(x)
    assert SAID == [False, False, True]
    torch.export.export(recorder, (x,), strict=False)
    assert SAID == [False, False, True]
