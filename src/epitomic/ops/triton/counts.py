"""Bytes and operations of each launch of a Triton kernel, counted from its grid, tiles and masks.

What a program loads comes from memory or, more often, from a cache that another program has filled. So each tensor's
own size is a lower bound of the memory's traffic, and the loads are the traffic between caches and programs. A test
compares loads, stores and operations with those that Triton's interpreter makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from epitomic.ops.triton.launches import Launch

Elements = dict[str, int]


class Count(NamedTuple):
    """What all programs of a launch do.

    Attributes:
        loads: Elements loaded, by tensor.
        stores: Elements stored, by tensor.
        operations: Multiplications and additions of the matrix products, those of masked elements included.
    """

    loads: Elements
    stores: Elements
    operations: int = 0


TENSORS = {
    "match_forward": ("x", "weights", "bias", "gain", "filter_sums", "patch_means", "y", "winners"),
    "input_gradient": ("dy", "winners", "weights", "dx"),
    "weight_gradient": ("dy", "winners", "x", "dweights"),
    "scale_gradient": ("dy", "winners", "gain", "filter_means", "scaled", "patch_sums"),
    "gain_sums": ("dy", "y", "bias", "winners", "scaled", "patch_means", "sums"),
    "patches_to_points": ("x", "map_h", "points", "patch_means"),
    "products_to_maximum": ("products", "map_h", "bias", "gain", "y", "winners"),
    "winners_to_products": ("dy", "winners", "dproducts"),
    "multiply_points": ("a", "b", "out"),
    "points_to_pixels": ("dpoints", "map_h", "dx"),
}


def count(launch: Launch) -> Count:
    """Counts a launch."""
    return COUNTERS[launch.kernel](launch.grid, _Numbers({**launch.numbers, **launch.constants}))


def count_bytes(launch: Launch, sizes: Sequence[int]) -> tuple[int, int]:
    """Returns the bytes loaded and stored.

    Args:
        launch: The launch.
        sizes: Bytes of an element of each tensor, in the order of the kernel's arguments.
    """
    counted = count(launch)
    size = dict(zip(TENSORS[launch.kernel], sizes, strict=True))
    loads = sum(n * size[name] for name, n in counted.loads.items())
    return loads, sum(n * size[name] for name, n in counted.stores.items())


class _Numbers(dict[str, int | str]):
    """The arguments of a kernel that are numbers."""

    def __call__(self, *names: str) -> list[int]:
        return [int(self[name]) for name in names]

    def pair(self, name: str) -> tuple[int, int]:
        """Returns NAME_H and NAME_W."""
        return int(self[f"{name}_H"]), int(self[f"{name}_W"])


def _match_forward(grid: tuple[int, int, int], a: _Numbers) -> Count:
    n, h, w, oh, ow, k, c = a("N", "H", "W", "OH", "OW", "K", "C")
    (th, tw), (dh, dw), slides = a.pair("TAPS"), a.pair("POOL"), a.pair("SLIDE")
    rows = sum(_inside(oh, sh * int(slides[0]) + r, h, a, 0) for sh in range(dh) for r in range(th))
    columns = sum(_inside(ow, sw * int(slides[1]) + t, w, a, 1) for sw in range(dw) for t in range(tw))
    tiles_m, tiles_n, _ = grid
    m, block_n, block_k = a("BLOCK_M", "BLOCK_N", "BLOCK_K")
    positions, patches = dh * dw, n * oh * ow
    # Rows beyond the last patch load that one again, and terms beyond the last one its weights.
    more = tiles_m * m - patches
    last_rows = sum(_last_inside(oh, sh * int(slides[0]) + r, h, a, 0) for sh in range(dh) for r in range(th))
    last_columns = sum(_last_inside(ow, sw * int(slides[1]) + t, w, a, 1) for sw in range(dw) for t in range(tw))
    loads = {"x": tiles_n * (n * rows * columns + more * last_rows * last_columns) * c}
    loads |= {"weights": tiles_m * positions * th * _cdiv(tw * c, block_k) * block_k * k}
    if a["HAS_BIAS"]:
        loads["bias"] = tiles_m * k
    if a["HAS_GAIN"]:
        loads |= {"patch_means": tiles_n * positions * tiles_m * m}
        loads |= dict.fromkeys(("gain", "filter_sums"), tiles_m * positions * k)
    steps = positions * th * _cdiv(tw * c, block_k)
    operations = 2 * tiles_m * tiles_n * steps * m * block_n * block_k
    return Count(loads, dict.fromkeys(("y", "winners"), patches * k), operations)


def _input_gradient(grid: tuple[int, int, int], a: _Numbers) -> Count:
    n, h, w, oh, ow, k, c = a("N", "H", "W", "OH", "OW", "K", "C")
    m, block_n, block_k = a("BLOCK_M", "BLOCK_N", "BLOCK_K")
    (sh, sw), (bh, bw), (th, tw), (dh, dw) = (a.pair(name) for name in ("STRIDE", "BEFORE", "TAPS", "POOL"))
    slide_h, slide_w = a.pair("SLIDE")
    patch = th + dh - 1 if slide_h else th, tw + dw - 1 if slide_w else tw
    size = th if slide_h else th + dh - 1, tw if slide_w else tw + dw - 1
    blocks_w, rows, columns = _cdiv(w + bw, sw), n * _cdiv(h + bh, sh) * _cdiv(w + bw, sw), sh * sw * c
    loads = {"dy": 0, "winners": 0, "weights": 0}
    steps = 0
    # For each tile of columns and step from a patch to the block: how many positions, and how many weights are loaded.
    reach: list[dict[tuple[int, int], tuple[int, int]]] = []
    for tile in range(grid[1]):
        start, end = tile * block_n, min((tile + 1) * block_n, columns) - 1
        a_low, a_high = start // (sw * c), end // (sw * c)
        b_low, b_high = (start // c % sw, end // c % sw) if a_low == a_high else (0, sw - 1)
        places = [(x // (sw * c), x // c % sw) for x in range(start, end + 1)]
        found = {}
        for t_h in range((patch[0] - 1 - a_low + sh) // sh):
            low_h, high_h = _reached(slide_h, a_low + t_h * sh, a_high + t_h * sh, th, dh)
            for t_w in range((patch[1] - 1 - b_low + sw) // sw):
                low_w, high_w = _reached(slide_w, b_low + t_w * sw, b_high + t_w * sw, tw, dw)
                weights = 0
                for p_h in range(low_h, high_h):
                    for p_w in range(low_w, high_w):
                        for x, y in places:
                            o_h, o_w = x + t_h * sh, y + t_w * sw
                            u_h, u_w = o_h - p_h if slide_h else o_h + p_h, o_w - p_w if slide_w else o_w + p_w
                            in_patch = o_h < patch[0] and o_w < patch[1]
                            weights += in_patch and 0 <= u_h < size[0] and 0 <= u_w < size[1]
                found[t_h, t_w] = max(0, high_h - low_h) * max(0, high_w - low_w), weights
        reach.append(found)
    for first in range(0, grid[0] * m, m):
        members = range(first, min(first + m, rows))
        blocks: dict[tuple[int, int], int] = {}
        for row in members:
            key = row // n // blocks_w, row // n % blocks_w
            blocks[key] = blocks.get(key, 0) + 1
        q_low, q_high = first // n // blocks_w, members[-1] // n // blocks_w
        w_low, w_high = (first // n % blocks_w, members[-1] // n % blocks_w) if q_low == q_high else (0, blocks_w - 1)
        for found in reach:
            for (t_h, t_w), (positions, weights) in found.items():
                if not (max(q_low - oh + 1, 0) <= t_h <= q_high and max(w_low - ow + 1, 0) <= t_w <= w_high):
                    continue
                exist = sum(number for (i, j), number in blocks.items() if 0 <= i - t_h < oh and 0 <= j - t_w < ow)
                loads["dy"] += exist * k
                loads["winners"] += exist * k
                loads["weights"] += weights * k
                steps += positions * _cdiv(k, block_k)
    return Count(loads, {"dx": n * h * w * c}, 2 * steps * m * block_n * block_k)


def _weight_gradient(grid: tuple[int, int, int], a: _Numbers) -> Count:
    n, h, w, oh, ow, k, c = a("N", "H", "W", "OH", "OW", "K", "C")
    m, block_n, block_k = a("BLOCK_M", "BLOCK_N", "BLOCK_K")
    (th, tw), (dh, dw), (slide_h, slide_w) = (a.pair(name) for name in ("TAPS", "POOL", "SLIDE"))
    patch_w = tw + dw - 1 if slide_w else tw
    size = th if slide_h else th + dh - 1, tw if slide_w else tw + dw - 1
    columns, patches = size[1] * c, n * oh * ow
    tiles_n, tiles_k = _cdiv(columns, block_n), grid[1]
    blocks = sum(_cdiv(min(s + int(a["SLICE"]), patches) - s, block_k) for s in range(0, patches, int(a["SLICE"])))
    x = steps = gradients = 0
    for u_h in range(size[0]):
        low_h, high_h = (0, dh) if slide_h else (max(0, u_h - th + 1), min(dh, u_h + 1))
        for tile in range(tiles_n):
            start, end = tile * block_n, min((tile + 1) * block_n, columns) - 1
            low_w, high_w = (0, dw) if slide_w else (max(0, start // c - tw + 1), min(dw, end // c + 1))
            gradients += 1
            steps += (high_h - low_h) * (high_w - low_w)
            rows = sum(_inside(oh, u_h + p if slide_h else u_h - p, h, a, 0) for p in range(low_h, high_h))
            across = 0
            for p in range(low_w, high_w):
                for column in range(start, end + 1):
                    place = column // c + (p if slide_w else -p)
                    across += _inside(ow, place, w, a, 1) if 0 <= place < patch_w else 0
            x += n * rows * across
    loads = {"x": tiles_k * x} | dict.fromkeys(("dy", "winners"), gradients * patches * k)
    operations = 2 * tiles_k * steps * blocks * m * block_n * block_k
    return Count(loads, {"dweights": grid[2] * k * size[0] * columns}, operations)


def _scale_gradient(grid: tuple[int, int, int], a: _Numbers) -> Count:
    patches, k = a("PATCHES", "K")
    values = patches * k
    return Count(
        dict.fromkeys(("dy", "winners", "gain", "filter_means"), values), {"scaled": values, "patch_sums": patches}
    )


def _gain_sums(grid: tuple[int, int, int], a: _Numbers) -> Count:
    """Each response has one winner, so each element of dy, y and scaled is loaded for one position only."""
    patches, k, positions = a("PATCHES", "K", "POSITIONS")
    loads = dict.fromkeys(("dy", "y", "scaled"), patches * k)
    loads |= {"winners": positions * patches * k, "patch_means": grid[0] * positions * patches}
    if a["HAS_BIAS"]:
        loads["bias"] = positions * grid[2] * k
    return Count(loads, {"sums": 2 * positions * grid[2] * k})


def _patches_to_points(grid: tuple[int, int, int], a: _Numbers) -> Count:
    patches, h, w, oh, ow, c = a("PATCHES", "H", "W", "OH", "OW", "C")
    (ph, pw), (vh, vw) = a.pair("PATCH"), _points(a)
    rows = sum(_inside(oh, r, h, a, 0) for r in range(ph))
    columns = sum(_inside(ow, s, w, a, 1) for s in range(pw))
    loads = {"x": patches // (oh * ow) * rows * columns * c, "map_h": grid[0] * grid[1] * vh * ph}
    if a["CENTRED"]:
        loads["patch_means"] = grid[1] * patches
    return Count(loads, {"points": vh * vw * patches * c})


def _products_to_maximum(grid: tuple[int, int, int], a: _Numbers) -> Count:
    patches, k = a("PATCHES", "K")
    (vh, vw), (dh, dw) = _points(a), _pool(a)
    loads = {"products": vh * vw * patches * k, "map_h": grid[0] * grid[1] * vh * dh}
    if a["HAS_BIAS"]:
        loads["bias"] = grid[0] * k
    if a["HAS_GAIN"]:
        loads["gain"] = grid[0] * dh * dw * k
    return Count(loads, dict.fromkeys(("y", "winners"), patches * k))


def _winners_to_products(grid: tuple[int, int, int], a: _Numbers) -> Count:
    patches, k = a("PATCHES", "K")
    vh, vw = _points(a)
    return Count(dict.fromkeys(("dy", "winners"), patches * k), {"dproducts": vh * vw * patches * k})


def _points_to_pixels(grid: tuple[int, int, int], a: _Numbers) -> Count:
    images, h, w, oh, ow, c = a("IMAGES", "H", "W", "OH", "OW", "C")
    (vh, vw), (ph, pw), (sh, sw), (bh, bw) = _points(a), a.pair("PATCH"), a.pair("STRIDE"), a.pair("BEFORE")
    reach_h, reach_w = _cdiv(ph, sh), _cdiv(pw, sw)
    rows, columns = _cdiv(h + bh, sh), _cdiv(w + bw, sw)
    pairs_h = sum(0 <= q - t < oh for q in range(rows) for t in range(reach_h))
    pairs_w = sum(0 <= q - t < ow for q in range(columns) for t in range(reach_w))
    programs = grid[0] * grid[1] * reach_h * reach_w
    loads = {
        "dpoints": images * pairs_h * pairs_w * c * vh * vw,
        "map_h": programs * vh * min(sh, ph),
    }
    return Count(loads, {"dx": images * h * w * c})


def _multiply_points(grid: tuple[int, int, int], a: _Numbers) -> Count:
    m, n, k, block_m, block_n, block_k = a("M", "N", "K", "BLOCK_M", "BLOCK_N", "BLOCK_K")
    tiles_m, tiles_n, points = grid
    operations = 2 * points * tiles_m * tiles_n * _cdiv(k, block_k) * block_m * block_n * block_k
    return Count({"a": tiles_n * points * m * k, "b": tiles_m * points * k * n}, {"out": points * m * n}, operations)


COUNTERS: dict[str, Callable[[tuple[int, int, int], _Numbers], Count]] = {
    "match_forward": _match_forward,
    "input_gradient": _input_gradient,
    "weight_gradient": _weight_gradient,
    "scale_gradient": _scale_gradient,
    "gain_sums": _gain_sums,
    "patches_to_points": _patches_to_points,
    "products_to_maximum": _products_to_maximum,
    "winners_to_products": _winners_to_products,
    "multiply_points": _multiply_points,
    "points_to_pixels": _points_to_pixels,
}


def _inside(outputs: int, offset: int, size: int, a: _Numbers, axis: int) -> int:
    """Returns at how many patches along an axis the place ``offset`` of the patch lies inside the input."""
    stride, before = a.pair("STRIDE")[axis], a.pair("BEFORE")[axis]
    return sum(0 <= i * stride - before + offset < size for i in range(outputs))


def _last_inside(outputs: int, offset: int, size: int, a: _Numbers, axis: int) -> bool:
    """Whether the place ``offset`` of the last patch along an axis lies inside the input."""
    return 0 <= (outputs - 1) * a.pair("STRIDE")[axis] - a.pair("BEFORE")[axis] + offset < size


def _reached(slides: int, lowest: int, highest: int, taps: int, pool: int) -> tuple[int, int]:
    """Returns the positions, from and to, at which a filter reaches any of these places of the patch."""
    return (max(0, lowest - taps + 1), min(pool, highest + 1)) if slides else (0, pool)


def _points(a: _Numbers) -> tuple[int, int]:
    (ph, pw), (sh, sw) = a.pair("PATCH"), a.pair("WEIGHT")
    return max(ph, sh), max(pw, sw)


def _pool(a: _Numbers) -> tuple[int, int]:
    (ph, pw), (sh, sw) = a.pair("PATCH"), a.pair("WEIGHT")
    return abs(ph - sh) + 1, abs(pw - sw) + 1


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)
