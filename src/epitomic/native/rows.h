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

// out = sum_i m[i] * (x[i * stride] - mean), `length` floats of it.
template <int W>
void combine(const float* m, const float* x, int64_t stride, float mean, float* out, int64_t length) {
  int64_t j = 0;
  for (; j + LANES <= length; j += LANES) {
    Vec sum = m[0] * (load(x + j) - mean);
    UNROLL for (int i = 1; i < W; i++) sum += m[i] * (load(x + i * stride + j) - mean);
    store(out + j, sum);
  }
  for (; j < length; j++) {
    float sum = m[0] * (x[j] - mean);
    for (int i = 1; i < W; i++) sum += m[i] * (x[i * stride + j] - mean);
    out[j] = sum;
  }
}

typedef void (*Combine)(const float* m, const float* x, int64_t stride, float mean, float* out, int64_t length);
const Combine COMBINE[9] = {nullptr,    combine<1>, combine<2>, combine<3>, combine<4>,
                            combine<5>, combine<6>, combine<7>, combine<8>};

// Floats of `line`, the workspace of `patch_row`.
INLINE int64_t patch_line(const Geometry& g) { return up(g.ww * g.c + LANES, LINE); }

// Of the given channels alone. `pixelwise`: the pixels of a row one by one, as parts of the channels need; then the
// result does not depend on how the channels are parted, to the last bit.
INLINE void patch_row(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t, Block block,
                      const int64_t* offsets, Block channels, bool pixelwise, int64_t vh, Factor out,
                      float* line) {
  bool zero = vh == 0 && g.vh % 2 == 0, infinity = vh == g.vh - 1;  // one coefficient alone: see transforms.h
  int64_t first = infinity ? g.wh - 1 : 0, count = zero || infinity ? 1 : g.wh;
  const float* m = p.patch[0] + vh * g.wh + first;
  CHECK(pixelwise || channels.count == g.c);
  int64_t runs = pixelwise ? g.ww : 1, length = pixelwise ? channels.count : g.ww * g.c;
  for (int64_t b = 0; b < block.count; b++) {
    const float* x = t.x + offsets[b] * g.c + first * g.row + channels.first;
    CHECK(offsets[b] * g.c + (g.wh - 1) * g.row + g.ww * g.c <= p.n * p.h * g.row);
    float mean = t.patch_mean ? t.patch_mean[block.first + b] : 0;
    for (int64_t j = 0; j < runs; j++) COMBINE[count](m, x + j * g.c, g.row, mean, line + j * length, length);
    EVALUATE_ALL[g.vw][g.ww](p.patch[1], line, channels.count, out.data + b * out.row, out.plane,
                             up(channels.count, LANES) / LANES);
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
