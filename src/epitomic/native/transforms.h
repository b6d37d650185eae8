// The one-dimensional maps of F(D, W) along an axis of vectors, unrolled for every V and W.
//
// Both G (V, W) and A (V, D) evaluate polynomials at the V points of ops/transforms.py, which come as zero (when V is
// even), pairs -t, t, and infinity. So a pair shares its even and odd halves, zero takes the first coefficient alone
// and infinity the last.
#pragma once

#include "vec.h"

namespace {

template <int V, int W>
INLINE void evaluate(const float* m, const Vec (&x)[W], Vec (&out)[V]) {
  constexpr int FIRST = V % 2 == 0;
  if (FIRST) out[0] = m[0] * x[0];
  UNROLL for (int r = FIRST; r + 1 < V - 1; r += 2) {
    const float* t = m + (r + 1) * W;
    Vec even = t[0] * x[0], odd = {};
    UNROLL for (int j = 2; j < W; j += 2) even += t[j] * x[j];
    if (W > 1) odd = t[1] * x[W > 1];
    UNROLL for (int j = 3; j < W; j += 2) odd += t[j] * x[j];
    out[r] = even - odd;
    out[r + 1] = even + odd;
  }
  out[V - 1] = m[V * W - 1] * x[W - 1];
}

// The transpose: from V points to W coefficients.
template <int V, int W>
INLINE void gather(const float* m, const Vec (&x)[V], Vec (&out)[W]) {
  constexpr int FIRST = V % 2 == 0, PAIRS = (V - 1 - FIRST) / 2;
  UNROLL for (int j = 0; j < W; j++) out[j] = Vec{};
  UNROLL for (int i = 0; i < PAIRS; i++) {
    int r = FIRST + 2 * i;
    const float* t = m + (r + 1) * W;
    Vec sum = x[r + 1] + x[r], difference = x[r + 1] - x[r];
    UNROLL for (int j = 0; j < W; j++) out[j] += t[j] * (j % 2 ? difference : sum);
  }
  if (FIRST) out[0] += m[0] * x[0];
  out[W - 1] += m[V * W - 1] * x[V - 1];
}

// Applies `gather` to `vectors` neighbouring vectors; the points and the coefficients are `tap` floats apart.
template <int V, int W>
void gather_all(const float* m, const float* in, int64_t in_tap, float* out, int64_t out_tap, int64_t vectors) {
  for (int64_t v = 0; v < vectors; v++, in += LANES, out += LANES) {
    Vec points[V], x[W];
    UNROLL for (int i = 0; i < V; i++) points[i] = load(in + i * in_tap);
    gather<V, W>(m, points, x);
    UNROLL for (int j = 0; j < W; j++) store(out + j * out_tap, x[j]);
  }
}

typedef void (*MapAll)(const float* m, const float* in, int64_t in_tap, float* out, int64_t out_tap, int64_t vectors);

// A table of F<V, W>::run, to be indexed as [V][W].
#define TABLE_OF_SIZES(F)                                                                                     \
  {                                                                                                           \
    {}, {nullptr, F<1, 1>}, {nullptr, F<2, 1>, F<2, 2>}, {nullptr, F<3, 1>, F<3, 2>, F<3, 3>},                \
        {nullptr, F<4, 1>, F<4, 2>, F<4, 3>, F<4, 4>}, {nullptr, F<5, 1>, F<5, 2>, F<5, 3>, F<5, 4>, F<5, 5>}, \
        {nullptr, F<6, 1>, F<6, 2>, F<6, 3>, F<6, 4>, F<6, 5>, F<6, 6>},                                      \
        {nullptr, F<7, 1>, F<7, 2>, F<7, 3>, F<7, 4>, F<7, 5>, F<7, 6>, F<7, 7>},                             \
        {nullptr, F<8, 1>, F<8, 2>, F<8, 3>, F<8, 4>, F<8, 5>, F<8, 6>, F<8, 7>, F<8, 8>},                    \
  }

const MapAll GATHER_ALL[9][9] = TABLE_OF_SIZES(gather_all);


}  // namespace
