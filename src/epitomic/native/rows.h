// The left factors of the products, for one row of points of a block: one vertical point, all horizontal ones.
//
// Patches:    X[t, b, c] = sum_ij R[vh, i] R[vw, j] (x[b, i, j, c] - mean[b]), where R is G, or B^T for the data
// Gradients: dM[t, b, k] = A[vh, ph] A[vw, pw] dy[b, k], where (ph, pw) is the winner,
//         or dM[t, b, k] = sum_ij A[vh, i] A[vw, j] dy[b, i, j, k] where all responses are kept: patches of dy
#pragma once

#include "geometry.h"
#include "transforms.h"

namespace {

// Where element (t, b, i) of a factor lies: t * plane + b * row + i / PANEL * panel + i % PANEL.
struct Factor {
  float* data;
  int64_t plane, row, panel;
  bool in_rows;  // panel = PANEL: a vector may begin anywhere in a row
};

// The rows of a patch that a vertical point reads, and their coefficients.
struct Taps {
  int64_t count;
  int64_t rows[8];  // floats from the top of the patch
  float weights[8];
};

template <bool CENTRED>
INLINE Vec pixels(const float* x, int64_t count, float mean) {
  return CENTRED ? load(x, count) - mean : load(x, count);
}

// Transforms some channels of a patch: sums its weighted rows of pixels and transforms along the width. With EDGE, some
// columns are outside of the image, and zero. In rows, the last vector overlaps the one before, so that a channel's
// result does not depend on which others are with it.
template <int V, int P, bool DATA, bool CENTRED, bool EDGE>
INLINE void transform_patch(const Taps& high, const float* wide, const float* x, int64_t pixel, Inside columns,
                            float mean, int64_t channels, const Factor& out) {
  for (int64_t i = 0; i < channels; i += LANES) {
    int64_t at = out.in_rows ? max(0, min(i, channels - LANES)) : i, there = channels - at;
    Vec sums[P], points[V];
    UNROLL for (int j = 0; j < P; j++) sums[j] = Vec{};
    for (int64_t r = 0; r < high.count; r++)
      UNROLL for (int j = 0; j < P; j++)
        if (!EDGE || (j >= columns.first && j < columns.last))
          sums[j] += high.weights[r] * pixels<CENTRED>(x + high.rows[r] + j * pixel + at, there, mean);
    evaluate<V, P, DATA>(wide, sums, points);
    float* to = out.data + (out.in_rows ? at : at / PANEL * out.panel + at % PANEL);
    UNROLL for (int t = 0; t < V; t++) store(to + t * out.plane, points[t]);
  }
}

// Patches that are not centred have no mean to subtract. This saves half the operations on pixels.
template <int V, int P, bool DATA>
void patch_points(const Taps& high, const float* wide, const float* x, int64_t pixel, Inside columns, float mean,
                  int64_t channels, const Factor& out) {
  if (!columns.all(P)) {
    CHECK(mean == 0);
    return transform_patch<V, P, DATA, false, true>(high, wide, x, pixel, columns, mean, channels, out);
  }
  if (mean == 0) return transform_patch<V, P, DATA, false, false>(high, wide, x, pixel, columns, mean, channels, out);
  CHECK(!DATA);
  if (!DATA) transform_patch<V, P, DATA, true, false>(high, wide, x, pixel, columns, mean, channels, out);
}

typedef void (*PatchPoints)(const Taps& high, const float* wide, const float* x, int64_t pixel, Inside columns,
                            float mean, int64_t channels, const Factor& out);
const PatchPoints PATCH_POINTS[9][9] = TABLE_OF_MAPS(patch_points);

// An image that is read patch by patch: the input, or the gradient of all responses.
struct Image {
  const float* data;
  int64_t h, w, c;
  int64_t size[2], stride[2], before[2];  // of the patches
  int64_t map[2];                         // in TABLE_OF_MAPS
  const float *high, *wide;               // (V, size)
  const float* means;                     // of the patches, or null
};

INLINE Image input_image(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t) {
  return {t.x,  p.h, p.w, g.c, {g.ph, g.pw}, {p.stride[0], p.stride[1]}, {p.before[0], p.before[1]},
          {g.patch_map[0], g.patch_map[1]}, p.patch_map[0], p.patch_map[1], t.patch_mean};
}

INLINE Image gradient_image(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t) {
  return {t.dy, p.responses[0], p.responses[1], g.k, {g.dh, g.dw}, {g.dh, g.dw}, {0, 0}, {g.dh, g.dw}, p.output_map[0],
          p.output_map[1], nullptr};
}

// The rows of a patch that lie in the image and have a coefficient.
INLINE Taps taps_of(const Image& image, const float* high, int64_t top) {
  Inside rows(top, image.size[0], image.h);
  Taps taps = {};
  for (int64_t i = rows.first; i < rows.last; i++) {
    if (high[i] == 0) continue;
    taps.rows[taps.count] = i * image.w * image.c;
    taps.weights[taps.count++] = high[i];
  }
  return taps;
}

// One row of points of an image, for the given channels.
INLINE void image_row(const Geometry& g, const Image& image, Block block, Block channels, int64_t vh, Factor out) {
  const float* high = image.high + vh * image.size[0];
  Taps taps = {};
  int64_t row_of_taps = -1;
  Walk at(g, block);
  for (int64_t b = 0; b < block.count; b++, at.next(), out.data += out.row) {
    int64_t top = at.i * image.stride[0] - image.before[0], left = at.j * image.stride[1] - image.before[1];
    if (at.i != row_of_taps) taps = taps_of(image, high, top), row_of_taps = at.i;
    Inside columns(left, image.size[1], image.w);
    const float* x = image.data + ((at.n * image.h + top) * image.w + left) * image.c + channels.first;
    float mean = image.means ? image.means[block.first + b] : 0;
    PATCH_POINTS[g.vw][image.map[1]](taps, image.wide, x, image.c, columns, mean, channels.count, out);
  }
}

// One row of points of dM, for the given panels of outputs, from the winners.
template <int V, int D>
void winner_row(const EpitomicProblem& p, const Geometry& g, const float* dy, const uint8_t* positions, Block block,
                Block panels, int64_t vh, Factor out) {
  constexpr int FIRST = V % 2 == 0;
  const float *high = p.output_map[0] + vh * g.dh, *wide = p.output_map[1];
  for (int64_t b = 0; b < block.count; b++) {
    for (int64_t h = 0; h < 2 * panels.count; h++) {  // vectors
      int64_t k = panels.first * PANEL + h * LANES, there = max(0, g.k - k), at = (block.first + b) * g.k + k;
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

typedef void (*WinnerRow)(const EpitomicProblem&, const Geometry&, const float* dy, const uint8_t* positions, Block,
                          Block panels, int64_t vh, Factor);
const WinnerRow WINNER_ROW[9][9] = TABLE_OF_WINDOWS(winner_row);

// One row of points of dM, for the given panels of outputs.
INLINE void gradient_row(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t, Block block,
                         Block panels, int64_t vh, Factor out) {
  if (!p.all) return WINNER_ROW[g.vw][g.dw](p, g, t.dy, t.positions, block, panels, vh, out);
  int64_t first = panels.first * PANEL;
  image_row(g, gradient_image(p, g, t), block, {first, min(panels.count * PANEL, g.k - first)}, vh, out);
}

}  // namespace
