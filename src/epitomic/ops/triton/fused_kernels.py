"""The Triton kernels of `fused`. Importing this module imports Triton.

All of them multiply tiles of matrices that are never stored. Images are (N, H, W, C), weights (S, S, C, K), responses
(N, oh, ow, K), all dense. Rows of a tile are patches or blocks of pixels, counted with the images innermost: so the
rows of a tile lie at the same place in many images, and what lies outside the image can be skipped for all at once.

Along each axis either the filters slide over the patch (Eq. 1, ``SLIDE``) or the patch slides over the epitome (Eq. 2).
With p the position, o a place in the patch and u a place in the weights: u = o + p in Eq. 2 and u = o - p in Eq. 1.
"""

import triton
import triton.language as tl


@triton.jit
def _product(a, b, acc, PRECISION: tl.constexpr, WIDE: tl.constexpr):
    """Adds a @ b to ``acc``. ``WIDE`` first makes float32 of both: Triton's interpreter cannot multiply bfloat16."""
    if WIDE:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def _divide(a, b):
    """Returns quotient and remainder of numbers that are not negative: unsigned, which takes fewer registers."""
    a, b = tl.cast(a, tl.uint32), tl.cast(b, tl.uint32)
    quotient = a // b
    return tl.cast(quotient, tl.int32), tl.cast(a - quotient * b, tl.int32)


@triton.jit
def match_forward(
    x,
    weights,
    bias,
    gain,  # (D*D, K) or anything
    filter_sums,  # (D*D, K), with gain
    patch_means,  # (N, oh, ow), with gain
    y,
    winners,
    N,
    H,
    W,
    OH,
    OW,
    ROWS_COUNTED,
    COLUMNS_COUNTED,
    POSITIONS,
    STEPS,
    K: tl.constexpr,
    C: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    BEFORE_H: tl.constexpr,
    BEFORE_W: tl.constexpr,
    SKIPPED_H: tl.constexpr,
    SKIPPED_W: tl.constexpr,
    TAPS_H: tl.constexpr,
    TAPS_W: tl.constexpr,
    POOL_H: tl.constexpr,
    POOL_W: tl.constexpr,
    SLIDE_H: tl.constexpr,
    SLIDE_W: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_GAIN: tl.constexpr,
    PADDED: tl.constexpr,  # whether patches reach beyond the input
    ALL_COUNT: tl.constexpr,  # whether all responses count
    PRECISION: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,  # patches
    BLOCK_N: tl.constexpr,  # outputs
    BLOCK_K: tl.constexpr,  # terms of the sum: columns of the filter times channels
):
    """Responses at one position after the other, with the best so far and its position in registers."""
    WEIGHT_W: tl.constexpr = TAPS_W if SLIDE_W else TAPS_W + POOL_W - 1
    TERMS: tl.constexpr = TAPS_W * C  # a row of a filter
    ROW_STEPS: tl.constexpr = (TERMS + BLOCK_K - 1) // BLOCK_K
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    term = tl.arange(0, BLOCK_K)
    in_m, in_k = m < N * OH * OW, k < K
    m = tl.minimum(m, N * OH * OW - 1)  # what is loaded for rows beyond the last is never stored
    window, n = _divide(m, N)
    i, j = _divide(window, OW)
    top, left = i * STRIDE_H - BEFORE_H, j * STRIDE_W - BEFORE_W
    patch = x + ((n * H + top) * W + left) * C

    best = tl.full((BLOCK_M, BLOCK_N), float("-inf"), tl.float32)
    where = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for p in range(POSITIONS):
        p_h, p_w = p // POOL_W, p % POOL_W
        image_h, image_w, weight_h, weight_w = p_h * 0, p_h * 0, p_h, p_w
        if SLIDE_H:
            image_h, weight_h = p_h, p_h * 0
        if SLIDE_W:
            image_w, weight_w = p_w, p_h * 0
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(STEPS):
            r = step // ROW_STEPS
            t = step % ROW_STEPS * BLOCK_K + term
            here = (t < TERMS)[None, :]
            if PADDED:
                row = top + image_h + r
                column = left[:, None] + (image_w + t // C)[None, :]
                here = here & ((row >= 0) & (row < H))[:, None] & (column >= 0) & (column < W)
            a = tl.load(patch[:, None] + ((image_h + r) * W + image_w) * C + t[None, :], mask=here, other=0.0)
            base = ((weight_h + r) * WEIGHT_W + weight_w) * C
            filters = weights + (base + tl.minimum(t, TERMS - 1))[:, None] * K + k[None, :]
            b = tl.load(filters, mask=in_k[None, :], other=0.0)
            acc = _product(a, b, acc, PRECISION, WIDE)
        if HAS_GAIN:
            mean = tl.load(patch_means + n * (OH * OW) + window)
            sums = tl.load(filter_sums + p * K + k, mask=in_k, other=0.0)
            acc = (acc - mean[:, None] * sums[None, :]) * tl.load(gain + p * K + k, mask=in_k, other=0.0)[None, :]
        if not ALL_COUNT:
            number_h, number_w = i * STRIDE_H + p_h - SKIPPED_H, j * STRIDE_W + p_w - SKIPPED_W
            counts = (number_h >= 0) & (number_h < ROWS_COUNTED) & (number_w >= 0) & (number_w < COLUMNS_COUNTED)
            acc = tl.where(counts[:, None], acc, float("-inf"))
        better = (acc > best) | (acc != acc)  # strictly: equals leave the lowest p; NaN wins
        best = tl.where(better, acc, best)
        where = tl.where(better, p, where)
    if HAS_BIAS:
        best += tl.load(bias + k, mask=in_k, other=0.0).to(tl.float32)[None, :]
    out = (n * (OH * OW) + window)[:, None] * K + k[None, :]
    mask = in_m[:, None] & in_k[None, :]
    tl.store(y + out, best.to(y.dtype.element_ty), mask=mask)
    tl.store(winners + out, where.to(tl.uint8), mask=mask)


@triton.jit
def input_gradient(
    dy,
    winners,
    weights,
    dx,
    N,
    H,
    W,
    OH,
    OW,
    POSITIONS,
    K: tl.constexpr,
    C: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    BEFORE_H: tl.constexpr,
    BEFORE_W: tl.constexpr,
    TAPS_H: tl.constexpr,
    TAPS_W: tl.constexpr,
    POOL_H: tl.constexpr,
    POOL_W: tl.constexpr,
    SLIDE_H: tl.constexpr,
    SLIDE_W: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,  # blocks of stride x stride pixels
    BLOCK_N: tl.constexpr,  # pixels of a block times channels
    BLOCK_K: tl.constexpr,  # outputs
):
    """The gradient of each pixel, gathered from the patches that hold it: nothing is added in memory."""
    PATCH_H: tl.constexpr = TAPS_H + POOL_H - 1 if SLIDE_H else TAPS_H
    PATCH_W: tl.constexpr = TAPS_W + POOL_W - 1 if SLIDE_W else TAPS_W
    WEIGHT_H: tl.constexpr = TAPS_H if SLIDE_H else TAPS_H + POOL_H - 1
    WEIGHT_W: tl.constexpr = TAPS_W if SLIDE_W else TAPS_W + POOL_W - 1
    COLUMNS: tl.constexpr = STRIDE_H * STRIDE_W * C
    blocks_h, blocks_w = tl.cdiv(H + BEFORE_H, STRIDE_H), tl.cdiv(W + BEFORE_W, STRIDE_W)
    rows = N * blocks_h * blocks_w
    first = tl.program_id(0) * BLOCK_M
    last = tl.minimum(first + BLOCK_M, rows) - 1
    m = first + tl.arange(0, BLOCK_M)
    in_m = m < rows
    block, n = _divide(m, N)
    q_h, q_w = _divide(block, blocks_w)
    # Which pixel of its block, and which channel, a column is.
    start = tl.program_id(1) * BLOCK_N
    end = tl.minimum(start + BLOCK_N, COLUMNS) - 1
    column = start + tl.arange(0, BLOCK_N)
    in_c = column < COLUMNS
    a, b, c = column // (STRIDE_W * C), column // C % STRIDE_W, column % C
    a_low, a_high = start // (STRIDE_W * C), end // (STRIDE_W * C)
    b_low, b_high = start // C % STRIDE_W, end // C % STRIDE_W
    b_low, b_high = tl.where(a_low == a_high, b_low, 0), tl.where(a_low == a_high, b_high, STRIDE_W - 1)
    # The blocks q - t of the patches that reach a block q: those of any row and column of this tile.
    q_low, q_high = first // N // blocks_w, last // N // blocks_w
    w_low, w_high = first // N % blocks_w, last // N % blocks_w
    w_low, w_high = tl.where(q_low == q_high, w_low, 0), tl.where(q_low == q_high, w_high, blocks_w - 1)
    from_h, from_w = tl.maximum(q_low - OH + 1, 0), tl.maximum(w_low - OW + 1, 0)
    to_h = tl.minimum((PATCH_H - 1 - a_low + STRIDE_H) // STRIDE_H, q_high + 1)
    to_w = tl.minimum((PATCH_W - 1 - b_low + STRIDE_W) // STRIDE_W, w_high + 1)

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for t_h in range(from_h, to_h):
        i = q_h - t_h
        o_h = a + t_h * STRIDE_H  # the place of the pixel in the patch
        low_h, high_h = 0, POOL_H
        if SLIDE_H:  # positions p at which a filter reaches it
            low_h = tl.maximum(0, a_low + t_h * STRIDE_H - TAPS_H + 1)
            high_h = tl.minimum(POOL_H, a_high + t_h * STRIDE_H + 1)
        for t_w in range(from_w, to_w):
            j = q_w - t_w
            o_w = b + t_w * STRIDE_W
            in_patch = in_c & (o_h < PATCH_H) & (o_w < PATCH_W)
            low_w, high_w = 0, POOL_W
            if SLIDE_W:
                low_w = tl.maximum(0, b_low + t_w * STRIDE_W - TAPS_W + 1)
                high_w = tl.minimum(POOL_W, b_high + t_w * STRIDE_W + 1)
            exists = in_m & (i >= 0) & (i < OH) & (j >= 0) & (j < OW)
            base = ((n * OH + i) * OW + j) * K
            for k_start in range(0, K, BLOCK_K):
                k = k_start + tl.arange(0, BLOCK_K)
                in_k = k < K
                mask = exists[:, None] & in_k[None, :]
                g = tl.load(dy + base[:, None] + k[None, :], mask=mask, other=0.0)
                where = tl.load(winners + base[:, None] + k[None, :], mask=mask, other=0).to(tl.int32)
                positions = (high_h - low_h) * (high_w - low_w)
                if not SLIDE_H and not SLIDE_W:
                    positions = POSITIONS
                for pp in range(positions):
                    p_h, p_w = low_h + pp // (high_w - low_w), low_w + pp % (high_w - low_w)
                    u_h, u_w = o_h + p_h, o_w + p_w
                    if SLIDE_H:
                        u_h = o_h - p_h
                    if SLIDE_W:
                        u_w = o_w - p_w
                    in_u = in_patch & (u_h >= 0) & (u_h < WEIGHT_H) & (u_w >= 0) & (u_w < WEIGHT_W)
                    offset = ((u_h * WEIGHT_W + u_w) * C + c) * K
                    w = tl.load(weights + offset[None, :] + k[:, None], mask=in_k[:, None] & in_u[None, :], other=0.0)
                    won = tl.where(where == p_h * POOL_W + p_w, g, tl.zeros_like(g))
                    acc = _product(won, w, acc, PRECISION, WIDE)
    h = (q_h * STRIDE_H - BEFORE_H)[:, None] + a[None, :]
    w = (q_w * STRIDE_W - BEFORE_W)[:, None] + b[None, :]
    mask = in_m[:, None] & in_c[None, :] & (h >= 0) & (h < H) & (w >= 0) & (w < W)
    tl.store(dx + ((n[:, None] * H + h) * W + w) * C + c[None, :], acc.to(dx.dtype.element_ty), mask=mask)


@triton.jit
def weight_gradient(
    dy,
    winners,
    x,
    dweights,  # (slices, K, S, S, C), float32
    N,
    H,
    W,
    OH,
    OW,
    SLICE,  # patches of a slice, a multiple of BLOCK_K
    K: tl.constexpr,
    C: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    BEFORE_H: tl.constexpr,
    BEFORE_W: tl.constexpr,
    TAPS_H: tl.constexpr,
    TAPS_W: tl.constexpr,
    POOL_H: tl.constexpr,
    POOL_W: tl.constexpr,
    SLIDE_H: tl.constexpr,
    SLIDE_W: tl.constexpr,
    PADDED: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,  # outputs
    BLOCK_N: tl.constexpr,  # columns of the weights times channels
    BLOCK_K: tl.constexpr,  # patches
):
    """The gradient of one row of the weights, summed over a slice of the patches and the positions that reach it."""
    PATCH_W: tl.constexpr = TAPS_W + POOL_W - 1 if SLIDE_W else TAPS_W
    WEIGHT_H: tl.constexpr = TAPS_H if SLIDE_H else TAPS_H + POOL_H - 1
    WEIGHT_W: tl.constexpr = TAPS_W if SLIDE_W else TAPS_W + POOL_W - 1
    COLUMNS: tl.constexpr = WEIGHT_W * C
    TILES_N: tl.constexpr = (COLUMNS + BLOCK_N - 1) // BLOCK_N
    u_h = tl.program_id(0) // TILES_N
    start = tl.program_id(0) % TILES_N * BLOCK_N
    end = tl.minimum(start + BLOCK_N, COLUMNS) - 1
    column = start + tl.arange(0, BLOCK_N)
    in_c = column < COLUMNS
    k = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    in_k = k < K
    low_h, high_h, low_w, high_w = 0, POOL_H, 0, POOL_W  # the positions that reach this row, and any of these columns
    if not SLIDE_H:
        low_h, high_h = tl.maximum(0, u_h - TAPS_H + 1), tl.minimum(POOL_H, u_h + 1)
    if not SLIDE_W:
        low_w, high_w = tl.maximum(0, start // C - TAPS_W + 1), tl.minimum(POOL_W, end // C + 1)
    positions = (high_h - low_h) * (high_w - low_w)
    patches = N * OH * OW
    begin = tl.program_id(2) * SLICE

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for m_start in range(begin, tl.minimum(begin + SLICE, patches), BLOCK_K):
        m = m_start + tl.arange(0, BLOCK_K)
        in_m = m < patches
        window, n = _divide(m, N)
        i, j = _divide(window, OW)
        base = (n * (OH * OW) + window) * K
        mask = in_k[:, None] & in_m[None, :]
        g = tl.load(dy + base[None, :] + k[:, None], mask=mask, other=0.0)
        where = tl.load(winners + base[None, :] + k[:, None], mask=mask, other=0).to(tl.int32)
        top, left = i * STRIDE_H - BEFORE_H, j * STRIDE_W - BEFORE_W
        patch = x + ((n * H + top) * W + left) * C
        for pp in range(positions):
            p_h, p_w = low_h + pp // (high_w - low_w), low_w + pp % (high_w - low_w)
            o_h, shift = u_h - p_h, -p_w
            if SLIDE_H:
                o_h = u_h + p_h
            if SLIDE_W:
                shift = p_w
            place = column + shift * C  # in a row of the patch
            here = in_m[:, None] & (in_c & (place >= 0) & (place < PATCH_W * C))[None, :]
            if PADDED:
                row = top + o_h
                pixel = left[:, None] + (place // C)[None, :]
                here = here & ((row >= 0) & (row < H))[:, None] & (pixel >= 0) & (pixel < W)
            values = tl.load(patch[:, None] + o_h * W * C + place[None, :], mask=here, other=0.0)
            won = tl.where(where == p_h * POOL_W + p_w, g, tl.zeros_like(g))
            acc = _product(won, values, acc, PRECISION, WIDE)
    out = dweights + tl.program_id(2) * K * WEIGHT_H * COLUMNS
    out += (k[:, None] * WEIGHT_H + u_h) * COLUMNS + column[None, :]
    tl.store(out, acc, mask=in_k[:, None] & in_c[None, :])


@triton.jit
def scale_gradient(
    dy,
    winners,
    gain,  # (D*D, K)
    filter_means,  # (D*D, K)
    scaled,
    patch_sums,  # (patches,)
    PATCHES,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The gradient times the winners' gain, and for each patch its sum over the outputs times the winners' mean."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    in_m = m < PATCHES
    total = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, K, BLOCK_N):
        k = start + tl.arange(0, BLOCK_N)
        mask = in_m[:, None] & (k < K)[None, :]
        at = m[:, None] * K + k[None, :]
        entry = tl.load(winners + at, mask=mask, other=0).to(tl.int32) * K + k[None, :]
        value = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32) * tl.load(gain + entry, mask=mask, other=0.0)
        tl.store(scaled + at, value.to(scaled.dtype.element_ty), mask=mask)
        total += tl.sum(value * tl.load(filter_means + entry, mask=mask, other=0.0), 1)
    tl.store(patch_sums + m, total, mask=in_m)


@triton.jit
def gain_sums(
    dy,
    y,
    bias,
    winners,
    scaled,
    patch_means,  # (patches,)
    sums,  # (slices, 2, D*D, K)
    PATCHES,
    SLICE,
    K: tl.constexpr,
    POSITIONS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Sums over a slice of the patches for one position: dy times the response, and the scaled dy times the mean."""
    k = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    p = tl.program_id(1)
    begin = tl.program_id(2) * SLICE
    in_k = k < K
    shift = tl.zeros((BLOCK_N,), tl.float32)
    if HAS_BIAS:
        shift = tl.load(bias + k, mask=in_k, other=0.0).to(tl.float32)
    responses, means = tl.zeros((BLOCK_N,), tl.float32), tl.zeros((BLOCK_N,), tl.float32)
    for start in range(begin, tl.minimum(begin + SLICE, PATCHES), BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        in_m = m < PATCHES
        at = m[:, None] * K + k[None, :]
        mask = in_m[:, None] & in_k[None, :]
        won = mask & (tl.load(winners + at, mask=mask, other=0).to(tl.int32) == p)
        response = tl.load(y + at, mask=won, other=0.0).to(tl.float32) - shift[None, :]
        gradient = tl.load(dy + at, mask=won, other=0.0).to(tl.float32)
        responses += tl.sum(tl.where(won, gradient * response, 0.0), 0)
        mean = tl.load(patch_means + m, mask=in_m, other=0.0)
        means += tl.sum(tl.load(scaled + at, mask=won, other=0.0).to(tl.float32) * mean[:, None], 0)
    out = sums + (tl.program_id(2) * 2 * POSITIONS + p) * K + k
    tl.store(out, responses, mask=in_k)
    tl.store(out + POSITIONS * K, means, mask=in_k)
