// A block's way from left factors to results, shared by the forward pass and the gradient of the input.
//
// For each row of points: the left factor (rows.h), products with packed U, and the transform along the width, which
// leaves `taps` values of each row of V points. The transform along the height comes last, with what follows it. So
// the block holds one row of left factors and products at a time, and V * taps planes of partial results:
//
//     left (V, block, depth) @ U (V, depth, columns) -> product (V, block, columns) -> partial (V * taps, ...)
#pragma once

#include "gemm.h"
#include "rows.h"

namespace {

// Bytes of products between GEMM and transform: with a left factor, they should stay in the second-level cache.
constexpr int64_t PRODUCT_BYTES = 128 * 1024;

struct Products {
  int64_t depth, panels, taps;  // of the right factor; taps of the transform along the width
  int64_t group;                // panels at a time
  int64_t stride;               // between rows of the left factor
  int64_t left, product, partial;  // planes
  int64_t offsets_at, means_at, left_at, product_at, partial_at, floats;

  Products(const Geometry& g, int64_t block, int64_t depth_, int64_t panels_, int64_t taps_)
      : depth(depth_), panels(panels_), taps(taps_) {
    group = PRODUCT_BYTES / (4 * g.vw * block * PANEL);
    group = most(1, least(group, panels));
    stride = row_stride(depth);
    left = spread(block * stride);
    product = spread(group * block * PANEL);
    partial = spread(panels * block * PANEL);
    offsets_at = 0;
    means_at = offsets_at + up(2 * block, LINE);  // an offset is as large as two floats
    left_at = means_at + up(block, LINE);
    product_at = left_at + g.vw * left;
    partial_at = product_at + g.vw * product;
    floats = partial_at + g.vh * taps * partial;
  }

  // Rows lie not too many per cache set, as the gradient of the epitomes walks down the columns.
  static int64_t row_stride(int64_t depth) {
    int64_t lines = up(depth, PANEL > LINE ? PANEL : LINE) / LINE;
    return (lines % 4 ? lines : lines + (PANEL > LINE ? PANEL / LINE : 1)) * LINE;
  }

  Factor left_factor(float* workspace) const { return {workspace + left_at, left, stride, PANEL}; }

  // Products of row `vh` with packed `u` (points, panels_of_u, depth, PANEL), from its panel `first`, transformed. From
  // there on it has so many columns.
  void row(const Geometry& g, const float* u, int64_t panels_of_u, int64_t first, int64_t columns, const float* matrix,
           int64_t vh, int64_t rows, float* workspace) const {
    const float* a = workspace + left_at;
    float *m = workspace + product_at, *z = workspace + partial_at + vh * taps * partial;
    for (int64_t q = 0; q < panels; q += group) {
      int64_t count = least(group, panels - q);
      for (int64_t vw = 0; vw < g.vw; vw++) {
        const float* b = u + ((vh * g.vw + vw) * panels_of_u + first + q) * depth * PANEL;
        multiply(a + vw * left, stride, rows, b, depth, count, columns - q * PANEL, m + vw * product);
      }
      GATHER_ALL[g.vw][taps](matrix, m, product, z + q * rows * PANEL, partial, 2 * count * rows);
    }
  }
};

}  // namespace
