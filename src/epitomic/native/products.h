// What the forward pass and the gradient of the input share: from a block's left factors to its partial results.
//
// Each row of points takes three steps: the left factor (rows.h), its products with packed U, and the transform along
// the width, which leaves `taps` values of V points. The transform along the height follows when all rows are done.
// So a block holds one row of left factors and products at a time, and V * taps planes of partial results:
//
//     left (V, block, depth) @ U (V, depth, columns) -> product (V, block, columns) -> partial (V * taps, ...)
#pragma once

#include "gemm.h"
#include "rows.h"

namespace {

// Bytes of products between GEMM and transform. With a left factor, they should fit the second-level cache.
constexpr int64_t PRODUCT_BYTES = 128 * 1024;

struct Products {
  int64_t depth, panels, taps;  // depth and panels of the right factor; taps of the transform along the width
  int64_t group;                // panels at a time
  int64_t stride;               // floats between rows of the left factor
  int64_t left, product, partial;  // floats between planes
  int64_t means_at, left_at, product_at, partial_at, floats;

  Products(const Geometry& g, int64_t block, int64_t depth_, int64_t panels_, int64_t taps_)
      : depth(depth_), panels(panels_), taps(taps_) {
    group = PRODUCT_BYTES / (4 * g.vw * block * PANEL);
    group = max(1, min(group, panels));
    stride = row_stride(depth);
    left = spread(block * stride);
    product = spread(group * block * PANEL);
    partial = spread(panels * block * PANEL);
    means_at = 0;
    left_at = means_at + round_up(block, LINE);
    product_at = left_at + g.vw * left;
    partial_at = product_at + g.vw * product;
    floats = partial_at + g.vh * taps * partial;
  }

  // No multiple of four cache lines: the gradient of the weights reads down the columns, and rows that far apart would
  // share cache sets.
  static int64_t row_stride(int64_t depth) {
    int64_t lines = round_up(depth, PANEL > LINE ? PANEL : LINE) / LINE;
    return (lines % 4 ? lines : lines + (PANEL > LINE ? PANEL / LINE : 1)) * LINE;
  }

  Factor left_factor(float* workspace) const { return {workspace + left_at, left, stride, PANEL, true}; }

  // Multiplies row `vh` by packed `u` (points, panels_of_u, depth, PANEL) from its panel `first` on, and transforms the
  // products along the width. `columns` counts the columns of u from that panel on.
  void row(const Geometry& g, const float* u, int64_t panels_of_u, int64_t first, int64_t columns, MapAll gather_all,
           const float* matrix, int64_t vh, int64_t rows, float* workspace) const {
    const float* a = workspace + left_at;
    float *m = workspace + product_at, *z = workspace + partial_at + vh * taps * partial;
    for (int64_t q = 0; q < panels; q += group) {
      int64_t count = min(group, panels - q);
      for (int64_t vw = 0; vw < g.vw; vw++) {
        const float* b = u + ((vh * g.vw + vw) * panels_of_u + first + q) * depth * PANEL;
        multiply(a + vw * left, stride, rows, b, depth, count, columns - q * PANEL, m + vw * product);
      }
      gather_all(matrix, m, product, z + q * rows * PANEL, partial, 2 * count * rows);
    }
  }
};

}  // namespace
