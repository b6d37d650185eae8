"""The image put back together from the patches of the epitomes that its own patches matched.

An epitomic layer tells, for each patch x_i and each epitome k, the winning filter w_{k,p} (Eq. 2). The picture is built
from these winners alone: each patch becomes a sum of a few of them,

    x_i  ~  sum_j a_j w_{k_j, p_j}

chosen one after the other, each the winner that explains most of what is left, with the a_j refitted by least squares
each time (orthogonal matching pursuit). With ``matches=None`` all winners that pass the ReLU are summed, weighted by
their responses as the network has them, with one least-squares scale per patch. Overlapping patches are averaged.

A layer with mean + contrast normalisation (Eq. 3) is blind to the mean of a patch. There the filters are the normalised
ones, and each patch's mean is lent from the original.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.errors import UserError
from epitomic.visualisation.matches import Match, match_layers
from epitomic.visualisation.runs import RunView

IMAGES = 50  # at a time
CHUNK = 256  # patches at a time: their winners together are CHUNK * K * C*W*W values


@dataclass(frozen=True)
class Reconstruction:
    """A batch rebuilt.

    Attributes:
        image: (N, C, H, W), in the units of the layer's input. Zero, the mean grey, where no patch reaches.
        error: Root of the squared error over the squared input, per image, (N,): 0 is exact, 1 is no better than grey.
        matches: Winners per patch; None: all, weighted by their responses.
    """

    image: Tensor
    error: Tensor
    matches: int | None


@torch.no_grad()
def reconstruct(match: Match, matches: int | None = 1) -> Reconstruction:
    """Rebuilds the input of a layer from its winning filters.

    Args:
        match: What `match_layers` gave for the layer.
        matches: How many winners to build each patch from; None: all, weighted by their responses.
    """
    layer, x = match.layer, match.input.double()
    g = layer.geometry
    ph, pw = g.padding
    padded = F.pad(x, (pw, pw, ph, ph), mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
    patches = F.unfold(padded, g.kernel, stride=g.stride)  # (N, C*W*W, L)
    n, size, count = patches.shape
    flat = patches.transpose(1, 2).reshape(n * count, size)  # (N*L, C*W*W)
    winners = match.positions.flatten(2).transpose(1, 2).reshape(n * count, -1)  # (N*L, K)
    bank = layer.filters().double().flatten(2)  # (K, D*D, C*W*W)
    weights = match.response.double().relu().flatten(2).transpose(1, 2).reshape(n * count, -1)  # (N*L, K)

    mean = flat.mean(1, keepdim=True) if layer.normalize else flat.new_zeros(())
    rebuilt = torch.empty_like(flat)
    epitomes = torch.arange(len(bank))
    for first in range(0, len(flat), CHUNK):
        part = slice(first, first + CHUNK)
        atoms = bank[epitomes, winners[part]]  # (L', K, C*W*W): the winning filter of each epitome
        target = (flat - mean)[part]
        rebuilt[part] = _weighted(atoms, weights[part], target) if matches is None else _pursue(atoms, target, matches)
    rebuilt = (rebuilt + mean).reshape(n, count, size).transpose(1, 2)

    total = F.fold(rebuilt, padded.shape[-2:], g.kernel, stride=g.stride)
    cover = F.fold(torch.ones_like(rebuilt), padded.shape[-2:], g.kernel, stride=g.stride)
    image = total / cover.clamp(min=1)
    image = image[..., ph : ph + x.shape[-2], pw : pw + x.shape[-1]]
    power = x.square().sum((1, 2, 3)).clamp(min=1e-30)
    error = ((image - x).square().sum((1, 2, 3)) / power).sqrt()
    return Reconstruction(image.to(match.input.dtype), error, matches)


def reconstruction_errors(run: RunView, images: int, tell: Callable[[str], object]) -> dict[int | None, Tensor]:
    """The errors of the first test images, each (images,), rebuilt from the best match, the 4 best, and all matches.

    Raises:
        UserError: If no epitomic layer of the network sees the image itself.
    """
    found: dict[int | None, list[Tensor]] = {1: [], 4: [], None: []}
    chosen = run.test.images[:images]
    for first in range(0, len(chosen), IMAGES):
        tell(f"{run.name}: {first} of {len(chosen)} images")
        _, matches = match_layers(run.model, run.to_input(chosen[first : first + IMAGES]))
        match = first_match(matches)
        if match is None:
            raise UserError(
                f"{run.model_name} has no epitomic layer that sees the image itself: nothing to rebuild from"
            )
        for count, errors in found.items():
            errors.append(reconstruct(match, matches=count).error)
    return {count: torch.cat(errors) for count, errors in found.items()}


def first_match(matches: list[Match]) -> Match | None:
    """The match of a layer that sees the image itself, if the first one does: 1 or 3 channels."""
    return matches[0] if matches and matches[0].layer.in_channels in (1, 3) else None


def _weighted(atoms: Tensor, weights: Tensor, target: Tensor) -> Tensor:
    """All winners by their responses, (L, K), and the scale that fits each patch best."""
    total = torch.einsum("lk,lkf->lf", weights, atoms)
    scale = (total * target).sum(1, keepdim=True) / total.square().sum(1, keepdim=True).clamp(min=1e-30)
    return scale * total


def _pursue(atoms: Tensor, target: Tensor, matches: int) -> Tensor:
    """Orthogonal matching pursuit: (L, K, F) atoms, (L, F) patches -> (L, F) sums of ``matches`` atoms."""
    norms = atoms.norm(dim=2).clamp(min=1e-30)  # (L, K)
    free = torch.ones_like(norms)
    chosen = atoms[:, :0]  # (L, j, F)
    rows = torch.arange(len(atoms))
    built = torch.zeros_like(target)
    for _ in range(min(matches, atoms.shape[1])):
        left = target - built
        explained = torch.einsum("lkf,lf->lk", atoms, left).abs() / norms * free
        best = explained.argmax(1)
        free[rows, best] = 0
        chosen = torch.cat([chosen, atoms[rows, best].unsqueeze(1)], 1)
        basis = chosen.transpose(1, 2)  # (L, F, j)
        amounts = torch.linalg.pinv(basis) @ target.unsqueeze(2)  # least squares, least norm where atoms coincide
        built = (basis @ amounts).squeeze(2)
    return built
