"""The Triton kernels of `winograd`: the transforms around its matrix products. Importing this module imports Triton.

Each program takes a tile of patches (or pixels) and channels. Its transforms are sums in float32, one axis after the
other. Along the width their coefficients are constants. Along the height they are read from memory, which keeps the
programs short. Images are (N, H, W, C). Points are (V*V, patches, C) and products (V*V, patches, K).
"""

import triton
import triton.language as tl


@triton.constexpr_function
def _output(patch, weight, point, position):
    """Returns the entry of A for a point and a position along one axis."""
    from epitomic.ops.transforms import coefficient

    return coefficient("output", patch, weight, position, point)


@triton.constexpr_function
def _patch(patch, weight, point, place):
    """Returns the entry of the patches' map for a point and a place in the patch along one axis."""
    from epitomic.ops.transforms import coefficient

    return coefficient("patch", patch, weight, point, place)


@triton.constexpr_function
def _reached(patch, weight, point, place):
    """Returns the entry of `_patch`, or 0 for a place behind the patch."""
    from epitomic.ops.transforms import coefficient

    return coefficient("patch", patch, weight, point, place) if place < patch else 0.0


@triton.jit
def patches_to_points(
    x,
    map_h,  # the patches' map along the height, (V, P)
    points,
    patch_means,  # (N, oh, ow), with CENTRED
    FIRST,  # the number of the first patch
    PATCHES,
    H,
    W,
    OH,
    OW,
    C: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    BEFORE_H: tl.constexpr,
    BEFORE_W: tl.constexpr,
    PATCH_H: tl.constexpr,
    PATCH_W: tl.constexpr,
    WEIGHT_H: tl.constexpr,
    WEIGHT_W: tl.constexpr,
    CENTRED: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr,  # patches
    BLOCK_N: tl.constexpr,  # channels
):
    """X = R x R^T for each patch and channel."""
    V_H: tl.constexpr = PATCH_H if PATCH_H > WEIGHT_H else WEIGHT_H
    V_W: tl.constexpr = PATCH_W if PATCH_W > WEIGHT_W else WEIGHT_W
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (m < PATCHES)[:, None] & (c < C)[None, :]
    patch = FIRST + m
    n, top, left = patch // (OH * OW), patch // OW % OH * STRIDE_H - BEFORE_H, patch % OW * STRIDE_W - BEFORE_W
    base = ((n * H + top) * W + left)[:, None] * C + c[None, :]
    mean = tl.zeros((BLOCK_M, 1), tl.float32)
    if CENTRED:
        mean = tl.load(patch_means + patch, mask=m < PATCHES, other=0.0)[:, None]
    values = ()  # of the patch, row by row
    for r in tl.static_range(PATCH_H):
        for s in tl.static_range(PATCH_W):
            here = mask
            if PADDED:
                inside = (top + r >= 0) & (top + r < H) & (left + s >= 0) & (left + s < W)
                here = mask & inside[:, None]
            value = tl.load(x + base + (r * W + s) * C, mask=here, other=0.0).to(tl.float32)
            values = values + (value - mean,)
    out = m[:, None] * C + c[None, :]
    for a in range(V_H):
        factors = ()
        for r in tl.static_range(PATCH_H):
            factors = factors + (tl.load(map_h + a * PATCH_H + r),)
        rows = ()
        for s in tl.static_range(PATCH_W):
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for r in tl.static_range(PATCH_H):
                total += values[r * PATCH_W + s] * factors[r]
            rows = rows + (total,)
        for b in tl.static_range(V_W):
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for s in tl.static_range(PATCH_W):
                if _patch(PATCH_W, WEIGHT_W, b, s) != 0:
                    total += rows[s] * _patch(PATCH_W, WEIGHT_W, b, s)
            at = points + (a * V_W + b) * PATCHES * C + out
            tl.store(at, total.to(points.dtype.element_ty), mask=mask)


@triton.jit
def products_to_maximum(
    products,
    map_h,  # A along the height, (V, D)
    bias,
    gain,  # (D*D, K), with HAS_GAIN
    y,
    winners,
    FIRST,
    PATCHES,
    OH,
    OW,
    K,
    ROWS_COUNTED,
    COLUMNS_COUNTED,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    SKIPPED_H: tl.constexpr,
    SKIPPED_W: tl.constexpr,
    PATCH_H: tl.constexpr,
    PATCH_W: tl.constexpr,
    WEIGHT_H: tl.constexpr,
    WEIGHT_W: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_GAIN: tl.constexpr,
    ALL_COUNT: tl.constexpr,
    BLOCK_M: tl.constexpr,  # patches
    BLOCK_N: tl.constexpr,  # outputs
):
    """Y = A^T M A for each patch and output, its maximum and the winner."""
    V_H: tl.constexpr = PATCH_H if PATCH_H > WEIGHT_H else WEIGHT_H
    V_W: tl.constexpr = PATCH_W if PATCH_W > WEIGHT_W else WEIGHT_W
    POOL_H: tl.constexpr = PATCH_H + WEIGHT_H - 2 * min(PATCH_H, WEIGHT_H) + 1
    POOL_W: tl.constexpr = PATCH_W + WEIGHT_W - 2 * min(PATCH_W, WEIGHT_W) + 1
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_m, in_k = m < PATCHES, k < K
    mask = in_m[:, None] & in_k[None, :]
    at = m[:, None] * K + k[None, :]
    responses = ()
    for p in tl.static_range(POOL_H * POOL_W):
        responses = responses + (tl.zeros((BLOCK_M, BLOCK_N), tl.float32),)
    for a in range(V_H):
        row = ()
        for b in tl.static_range(V_W):
            value = tl.load(products + (a * V_W + b) * PATCHES * K + at, mask=mask, other=0.0)
            row = row + (value.to(tl.float32),)
        columns = ()
        for q in tl.static_range(POOL_W):
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for b in tl.static_range(V_W):
                if _output(PATCH_W, WEIGHT_W, b, q) != 0:
                    total += row[b] * _output(PATCH_W, WEIGHT_W, b, q)
            columns = columns + (total,)
        more = ()
        for p in tl.static_range(POOL_H):
            factor = tl.load(map_h + a * POOL_H + p)
            for q in tl.static_range(POOL_W):
                more = more + (responses[p * POOL_W + q] + columns[q] * factor,)
        responses = more
    patch = FIRST + m
    i, j = patch // OW % OH, patch % OW
    best = tl.full((BLOCK_M, BLOCK_N), float("-inf"), tl.float32)
    where = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for p in tl.static_range(POOL_H * POOL_W):
        response = responses[p]
        if HAS_GAIN:
            response = response * tl.load(gain + p * K + k, mask=in_k, other=0.0)[None, :]
        if not ALL_COUNT:
            number_h, number_w = i * STRIDE_H + p // POOL_W - SKIPPED_H, j * STRIDE_W + p % POOL_W - SKIPPED_W
            counts = (number_h >= 0) & (number_h < ROWS_COUNTED) & (number_w >= 0) & (number_w < COLUMNS_COUNTED)
            response = tl.where(counts[:, None], response, float("-inf"))
        better = (response > best) | (response != response)
        best = tl.where(better, response, best)
        where = tl.where(better, p, where)
    if HAS_BIAS:
        best += tl.load(bias + k, mask=in_k, other=0.0).to(tl.float32)[None, :]
    out = FIRST * K + at
    tl.store(y + out, best.to(y.dtype.element_ty), mask=mask)
    tl.store(winners + out, where.to(tl.uint8), mask=mask)


@triton.jit
def winners_to_products(
    dy,
    winners,
    dproducts,
    FIRST,
    PATCHES,
    K,
    PATCH_H: tl.constexpr,
    PATCH_W: tl.constexpr,
    WEIGHT_H: tl.constexpr,
    WEIGHT_W: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The products' gradient dM = A dY A^T, where dY is dy at the winner and 0 elsewhere."""
    V_H: tl.constexpr = PATCH_H if PATCH_H > WEIGHT_H else WEIGHT_H
    V_W: tl.constexpr = PATCH_W if PATCH_W > WEIGHT_W else WEIGHT_W
    POOL_H: tl.constexpr = PATCH_H + WEIGHT_H - 2 * min(PATCH_H, WEIGHT_H) + 1
    POOL_W: tl.constexpr = PATCH_W + WEIGHT_W - 2 * min(PATCH_W, WEIGHT_W) + 1
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (m < PATCHES)[:, None] & (k < K)[None, :]
    at = m[:, None] * K + k[None, :]
    g = tl.load(dy + FIRST * K + at, mask=mask, other=0.0).to(tl.float32)
    where = tl.load(winners + FIRST * K + at, mask=mask, other=0).to(tl.int32)
    p_h, p_w = where // POOL_W, where % POOL_W
    for a in tl.static_range(V_H):
        factor = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for p in tl.static_range(POOL_H):
            factor = tl.where(p_h == p, _output(PATCH_H, WEIGHT_H, a, p), factor)
        row = g * factor
        for b in tl.static_range(V_W):
            factor = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for q in tl.static_range(POOL_W):
                factor = tl.where(p_w == q, _output(PATCH_W, WEIGHT_W, b, q), factor)
            out = dproducts + (a * V_W + b) * PATCHES * K + at
            tl.store(out, (row * factor).to(dproducts.dtype.element_ty), mask=mask)


@triton.jit
def points_to_pixels(
    dpoints,
    map_h,  # the patches' map along the height, with zeros up to whole blocks
    dx,
    IMAGE,  # the first image of this chunk
    IMAGES,
    PATCHES,
    H,
    W,
    OH,
    OW,
    C: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    BEFORE_H: tl.constexpr,
    BEFORE_W: tl.constexpr,
    PATCH_H: tl.constexpr,
    PATCH_W: tl.constexpr,
    WEIGHT_H: tl.constexpr,
    WEIGHT_W: tl.constexpr,
    BLOCK_M: tl.constexpr,  # blocks of stride x stride pixels
    BLOCK_N: tl.constexpr,  # channels
):
    """The pixels' gradient dx = R^T dX R, summed over the patches that hold a pixel."""
    V_H: tl.constexpr = PATCH_H if PATCH_H > WEIGHT_H else WEIGHT_H
    V_W: tl.constexpr = PATCH_W if PATCH_W > WEIGHT_W else WEIGHT_W
    REACH_H: tl.constexpr = (PATCH_H + STRIDE_H - 1) // STRIDE_H  # patches that reach a block, along each axis
    REACH_W: tl.constexpr = (PATCH_W + STRIDE_W - 1) // STRIDE_W
    SIZE_H: tl.constexpr = min(STRIDE_H, PATCH_H)  # the pixels of a block that any patch reaches
    SIZE_W: tl.constexpr = min(STRIDE_W, PATCH_W)
    blocks_h, blocks_w = tl.cdiv(H + BEFORE_H, STRIDE_H), tl.cdiv(W + BEFORE_W, STRIDE_W)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (m < IMAGES * blocks_h * blocks_w)[:, None] & (c < C)[None, :]
    n, q_h, q_w = m // (blocks_h * blocks_w), m // blocks_w % blocks_h, m % blocks_w
    pixels = ()
    for p in tl.static_range(SIZE_H * SIZE_W):
        pixels = pixels + (tl.zeros((BLOCK_M, BLOCK_N), tl.float32),)
    for t_h in range(REACH_H):
        for t_w in tl.static_range(REACH_W):
            i, j = q_h - t_h, q_w - t_w
            here = mask & ((i >= 0) & (i < OH) & (j >= 0) & (j < OW))[:, None]
            at = dpoints + ((n * OH + i) * OW + j)[:, None] * C + c[None, :]
            for a in range(V_H):
                row = ()
                for b in tl.static_range(V_W):
                    value = tl.load(at + (a * V_W + b) * PATCHES * C, mask=here, other=0.0)
                    row = row + (value.to(tl.float32),)
                columns = ()
                for s in tl.static_range(SIZE_W):
                    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
                    for b in tl.static_range(V_W):
                        if _reached(PATCH_W, WEIGHT_W, b, t_w * STRIDE_W + s) != 0:
                            total += row[b] * _reached(PATCH_W, WEIGHT_W, b, t_w * STRIDE_W + s)
                    columns = columns + (total,)
                more = ()
                for r in tl.static_range(SIZE_H):
                    factor = tl.load(map_h + a * REACH_H * STRIDE_H + t_h * STRIDE_H + r)
                    for s in tl.static_range(SIZE_W):
                        more = more + (pixels[r * SIZE_W + s] + columns[s] * factor,)
                pixels = more
    for r in tl.static_range(STRIDE_H):
        for s in tl.static_range(STRIDE_W):
            h, w = q_h * STRIDE_H + r - BEFORE_H, q_w * STRIDE_W + s - BEFORE_W
            inside = mask & ((h >= 0) & (h < H) & (w >= 0) & (w < W))[:, None]
            out = dx + (((IMAGE + n) * H + h) * W + w)[:, None] * C + c[None, :]
            if (r < SIZE_H) & (s < SIZE_W):
                tl.store(out, pixels[r * SIZE_W + s].to(dx.dtype.element_ty), mask=inside)
            else:
                tl.store(out, tl.zeros((BLOCK_M, BLOCK_N), dx.dtype.element_ty), mask=inside)


@triton.jit
def multiply_points(
    a,  # (points, M, K), each matrix with strides of its own
    b,  # (points, K, N)
    out,  # (points, M, N), dense
    M,
    N,
    K,
    STRIDE_AM,
    STRIDE_AK,
    STRIDE_BK,
    STRIDE_BN,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The product of two float32 matrices for each point, in a precision that no flag of torch decides."""
    point = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_m, in_n = m < M, n < N
    rows = a + point * M * K + (m * STRIDE_AM)[:, None]
    columns = b + point * K * N + (n * STRIDE_BN)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        in_k = k < K
        left = tl.load(rows + (k * STRIDE_AK)[None, :], mask=in_m[:, None] & in_k[None, :], other=0.0)
        right = tl.load(columns + (k * STRIDE_BK)[:, None], mask=in_k[:, None] & in_n[None, :], other=0.0)
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
    at = out + point * M * N + m[:, None] * N + n[None, :]
    tl.store(at, acc, mask=in_m[:, None] & in_n[None, :])
