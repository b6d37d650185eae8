"""Epitomic convolution as the paper writes it, one filter at a time: the oracle of every test.

Slow and large on purpose. Nothing here is shared with the fast algorithms but the geometry.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Geometry


def epitomic_conv2d_reference(
    x: Tensor, epitomes: Tensor, bias: Tensor | None, geometry: Geometry, *, normalize: bool, eps: float
) -> tuple[Tensor, Tensor]:
    """Eq. 2, or Eq. 3 with ``normalize``: for each patch and mini-epitome, the best response and where it was.

    Args:
        x: Input, (N, C, H, W).
        epitomes: (K, C, V, V).
        bias: (outputs,) or None.
        geometry: The sizes.
        normalize: Mean + contrast normalisation of the filters.
        eps: lambda of Eq. 3.

    Returns:
        Responses and positions, each (N, K * outputs per epitome, output height, output width).
    """
    (wh, ww), (dh, dw), (eh, ew) = geometry.kernel, geometry.pool, geometry.epitome_stride
    mh, mw = geometry.outputs
    oh, ow = geometry.output_size(*x.shape[-2:])
    patches = F.unfold(x, geometry.kernel, padding=geometry.padding, stride=geometry.stride)  # (N, C*W*W, L)

    values, positions = [], []
    for epitome in epitomes:  # (C, V, V)
        for a in range(mh):  # each epitome gives outputs D positions apart (the topographic model) ...
            for b in range(mw):  # ... and a mini-epitome gives just one
                responses = []
                for r in range(a * dh, (a + 1) * dh):  # p, row-major in the D x D window
                    for c in range(b * dw, (b + 1) * dw):
                        w = epitome[:, r * eh : r * eh + wh, c * ew : c * ew + ww].flatten()  # w_{k,p}
                        if normalize:
                            w = w - w.mean()
                            w = w / (w @ w + eps).sqrt()
                        responses.append(w @ patches)  # x_i^T w_{k,p}, (N, L)
                stacked = torch.stack(responses)  # (D*D, N, L)
                p = stacked.detach().argmax(0, keepdim=True)  # the first of equal maxima
                values.append(stacked.gather(0, p)[0])
                positions.append(p[0])
    y = torch.stack(values, 1).unflatten(2, (oh, ow))  # (N, K, oh, ow)
    if bias is not None:
        y = y + bias[:, None, None]
    return y, torch.stack(positions, 1).unflatten(2, (oh, ow))
