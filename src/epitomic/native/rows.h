// The left factors of the products, for one row of points (fixed vertical point, all horizontal ones) of a block.
//
// Patches:    X[t, b, c] = sum_ij G[vh, i] G[vw, j] (x[b, i, j, c] - mean[b])
// Gradients: dM[t, b, k] = A[vh, ph] A[vw, pw] dy[b, k], where (ph, pw) is the winner
#pragma once

#include "geometry.h"
#include "transforms.h"

namespace {

// Where element (t, b, i) of a factor lies: t * plane + b * row + i / PANEL * panel + i % PANEL.
struct Factor {
  float* data;
  int64_t plane, row, panel;
};

template <bool CENTRED>
INLINE Vec pixels(const float* x, int64_t count, float mean) {
  return CENTRED ? load(x, count) - mean : load(x, count);
}

// A patch, some of its channels: `count` rows of pixels weighted by `high` and summed, then the transform along the width.
// Every channel goes the same way, whichever others are with it: the last vector overlaps the one before.
template <int V, int W, bool CENTRED>
INLINE void transform_patch(const float* high, int64_t count, const float* wide, const float* x, int64_t row,
                            int64_t pixel, float mean, int64_t channels, float* out, int64_t plane) {
  for (int64_t i = 0; i < channels; i += LANES) {
    int64_t at = most(0, least(i, channels - LANES)), there = channels - at;
    Vec sums[W], points[V];
    UNROLL for (int j = 0; j < W; j++) sums[j] = high[0] * pixels<CENTRED>(x + j * pixel + at, there, mean);
    for (int64_t r = 1; r < count; r++)
      UNROLL for (int j = 0; j < W; j++)
        sums[j] += high[r] * pixels<CENTRED>(x + r * row + j * pixel + at, there, mean);
    evaluate<V, W>(wide, sums, points);
    UNROLL for (int t = 0; t < V; t++) store(out + t * plane + at, points[t]);
  }
}

// Patches that are not centred have no mean to subtract, which saves half the operations on pixels.
template <int V, int W>
void patch_points(const float* high, int64_t count, const float* wide, const float* x, int64_t row, int64_t pixel,
                  float mean, int64_t channels, float* out, int64_t plane) {
  if (mean == 0)
    transform_patch<V, W, false>(high, count, wide, x, row, pixel, mean, channels, out, plane);
  else
    transform_patch<V, W, true>(high, count, wide, x, row, pixel, mean, channels, out, plane);
}

typedef void (*PatchPoints)(const float* high, int64_t count, const float* wide, const float* x, int64_t row,
                            int64_t pixel, float mean, int64_t channels, float* out, int64_t plane);
const PatchPoints PATCH_POINTS[9][9] = TABLE_OF_SIZES(patch_points);

// Of the given channels alone.
INLINE void patch_row(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t, Block block,
                      const int64_t* offsets, Block channels, int64_t vh, Factor out) {
  bool zero = vh == 0 && g.vh % 2 == 0, infinity = vh == g.vh - 1;  // one coefficient alone: see transforms.h
  int64_t first = infinity ? g.wh - 1 : 0, count = zero || infinity ? 1 : g.wh;
  const float* high = p.patch[0] + vh * g.wh + first;
  for (int64_t b = 0; b < block.count; b++) {
    const float* x = t.x + offsets[b] * g.c + first * g.row + channels.first;
    CHECK(offsets[b] * g.c + (g.wh - 1) * g.row + g.ww * g.c <= p.n * p.h * g.row);
    float mean = t.patch_mean ? t.patch_mean[block.first + b] : 0;
    PATCH_POINTS[g.vw][g.ww](high, count, p.patch[1], x, g.row, g.c, mean, channels.count, out.data + b * out.row,
                             out.plane);
  }
}

// The columns [first, first + count) * PANEL of dM, rounded up to whole panels.
template <int V, int D>
void gradient_row(const EpitomicProblem& p, const Geometry& g, const float* dy, const uint8_t* positions, Block block,
                  Block panels, int64_t vh, Factor out) {
  constexpr int FIRST = V % 2 == 0;
  const float *high = p.output[0] + vh * g.dh, *wide = p.output[1];
  for (int64_t b = 0; b < block.count; b++) {
    for (int64_t h = 0; h < 2 * panels.count; h++) {  // vectors
      int64_t k = panels.first * PANEL + h * LANES, there = most(0, g.k - k), at = (block.first + b) * g.k + k;
      float* to = out.data + b * out.row + h / 2 * out.panel + h % 2 * LANES;
      Vec d = load(dy + at, there);
      Ints position = load_positions(positions + at, there), start = {};
      Vec a = broadcast(high[0]);
      for (int64_t i = 1; i < g.dh; i++) {
        Ints later = position >= (int32_t)(i * D);
        a = select(later, broadcast(high[i]), a);
        start = later ? broadcast((int32_t)(i * D)) : start;
      }
      d *= a;
      Ints column = position - start;
      Vec mirrored = select((column & 1) == 1, -d, d);  // at -t instead of t
      if (FIRST) store(to, select(column == 0, wide[0] * d, Vec{}));
      UNROLL for (int r = FIRST; r + 1 < V - 1; r += 2) {
        const float* m = wide + (r + 1) * D;
        Vec power = broadcast(m[0]);
        UNROLL for (int j = 1; j < D; j++) power = select(column >= j, broadcast(m[j]), power);
        store(to + r * out.plane, power * mirrored);
        store(to + (r + 1) * out.plane, power * d);
      }
      store(to + (V - 1) * out.plane, select(column == D - 1, wide[V * D - 1] * d, Vec{}));
    }
  }
}

typedef void (*GradientRow)(const EpitomicProblem&, const Geometry&, const float* dy, const uint8_t* positions, Block,
                            Block panels, int64_t vh, Factor);
const GradientRow GRADIENT_ROW[9][9] = TABLE_OF_SIZES(gradient_row);

}  // namespace
