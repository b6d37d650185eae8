"""Rebuilds an image from the filters that its own patches matched.

For each patch x_i and each epitome k, an epitomic layer finds the winning filter w_{k,p} (Eq. 2). The image is rebuilt
from these winners alone. Each patch becomes a sum of a few of them:

    x_i  ~  sum_j a_j w_{k_j, p_j}

Orthogonal matching pursuit chooses the winners one after the other. Each new winner explains most of what is left, and
least squares then fits all a_j again. With ``matches=None`` the sum is over all winners that pass the ReLU, weighted by
their responses, with one scale for each patch. Overlapping patches are averaged.

A layer with mean and contrast normalisation (Eq. 3) does not see the mean of a patch. There the filters are the
normalised ones, and each patch takes its mean from the original.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.analysis.matches import Match, first_match, match_layers
from epitomic.support.console import Tell, tell_nobody
from epitomic.support.errors import UserError
from epitomic.training.run_folder import RunFolder

SHOWN = (1, 4, None)  # numbers of matches that images are rebuilt from
IMAGES = 50  # images rebuilt at a time
CHUNK = 256  # patches rebuilt at a time; their winners together are CHUNK * K * C*W*W values


@dataclass(frozen=True)
class Reconstruction:
    """A rebuilt batch.

    Attributes:
        image: Rebuilt input of the layer, (N, C, H, W). It is zero, the mean grey, where no patch reaches.
        error: Relative error of each image, (N,): the root of squared error over squared input. 0 is exact, and 1 is
            no better than grey.
        matches: Number of winners in each patch. None means all of them, weighted by their responses.
    """

    image: Tensor
    error: Tensor
    matches: int | None

    @property
    def source(self) -> str:
        """Says what the batch was rebuilt from."""
        return matches_text(self.matches)


def matches_text(count: int | None) -> str:
    """Says how many winners a patch was rebuilt from.

    >>> matches_text(1), matches_text(4)
    ('the best match of each patch', 'the 4 best matches of each patch')
    """
    if count is None:
        return "all matches, weighted by response"
    return "the best match of each patch" if count == 1 else f"the {count} best matches of each patch"


@torch.no_grad()
def reconstruct(match: Match, matches: int | None = 1) -> Reconstruction:
    """Rebuilds the input of a layer from its winning filters.

    Args:
        match: What the layer matched, from `match_layers`.
        matches: Number of winners to build each patch from. None takes all, weighted by their responses.
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


def reconstruction_errors(run: RunFolder, images: int, tell: Tell = tell_nobody) -> dict[int | None, Tensor]:
    """Rebuilds the first test images from the best match, the 4 best matches and all matches.

    Args:
        run: A run with weights.
        images: Number of test images.
        tell: Called with the progress.

    Returns:
        The errors by number of matches, each (images,).

    Raises:
        UserError: If no epitomic layer of the network sees the image itself.
    """
    found: dict[int | None, list[Tensor]] = {count: [] for count in SHOWN}
    tell(f"{run.name}: reading the test images", 0)
    chosen = run.test.images[:images]
    for first in range(0, len(chosen), IMAGES):
        tell(f"{run.name}: {first} of {len(chosen)} images", first / len(chosen))
        _, matches = match_layers(run.model, run.to_input(chosen[first : first + IMAGES]))
        match = first_match(matches)
        if match is None:
            raise UserError(
                f"{run.model_name} has no epitomic layer that sees the image itself: nothing to rebuild from"
            )
        for count, errors in found.items():
            errors.append(reconstruct(match, matches=count).error)
    return {count: torch.cat(errors) for count, errors in found.items()}


def _weighted(atoms: Tensor, weights: Tensor, target: Tensor) -> Tensor:
    """Sums all winners, weighted by their responses (L, K), and scales the sum to fit each patch best."""
    total = torch.einsum("lk,lkf->lf", weights, atoms)
    scale = (total * target).sum(1, keepdim=True) / total.square().sum(1, keepdim=True).clamp(min=1e-30)
    return scale * total


def _pursue(atoms: Tensor, target: Tensor, matches: int) -> Tensor:
    """Orthogonal matching pursuit: fits patches (L, F) by sums of ``matches`` of their atoms (L, K, F)."""
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
        amounts = torch.linalg.pinv(basis) @ target.unsqueeze(
            2
        )  # least squares; the smallest amounts where atoms coincide
        built = (basis @ amounts).squeeze(2)
    return built
