// Small matrix products in registers: a tile of ROWS rows and one panel.
#pragma once

#include "vec.h"

namespace {

// c (M, PANEL) = or += a (M, depth) @ b (depth, PANEL); a[i, d] lies at a[i * row + d * step].
template <int M>
INLINE void tile(const float* a, int64_t row, int64_t step, const float* b, int64_t depth, float* c, bool add) {
  Vec acc[M][2];
  if (add) {
    UNROLL for (int i = 0; i < M; i++) {
      acc[i][0] = load(c + i * PANEL);
      acc[i][1] = load(c + i * PANEL + LANES);
    }
  } else {
    UNROLL for (int i = 0; i < M; i++) acc[i][0] = acc[i][1] = Vec{};
  }
  for (int64_t d = 0; d < depth; d++, a += step, b += PANEL) {
    Vec b0 = load(b), b1 = load(b + LANES);
    UNROLL for (int i = 0; i < M; i++) {
      Vec value = broadcast(a[i * row]);
      acc[i][0] += value * b0;
      acc[i][1] += value * b1;
    }
  }
  UNROLL for (int i = 0; i < M; i++) {
    store(c + i * PANEL, acc[i][0]);
    store(c + i * PANEL + LANES, acc[i][1]);
  }
}

// a with its depth contiguous (row-major, for M = X U) ...
template <int M>
void tile_rows(const float* a, int64_t row, const float* b, int64_t depth, float* c, bool add) {
  tile<M>(a, row, 1, b, depth, c, add);
}

// ... or its rows contiguous (transposed, for dU = X^T dM).
template <int M>
void tile_columns(const float* a, int64_t step, const float* b, int64_t depth, float* c, bool add) {
  tile<M>(a, 1, step, b, depth, c, add);
}

typedef void (*Tile)(const float* a, int64_t stride, const float* b, int64_t depth, float* c, bool add);


#if EPITOMIC_ROWS == 12
#define TABLE_OF_ROWS(F) {nullptr, F<1>, F<2>, F<3>, F<4>, F<5>, F<6>, F<7>, F<8>, F<9>, F<10>, F<11>, F<12>}
#else
#define TABLE_OF_ROWS(F) {nullptr, F<1>, F<2>, F<3>, F<4>, F<5>, F<6>}
#endif

const Tile TILE_ROWS[] = TABLE_OF_ROWS(tile_rows);
const Tile TILE_COLUMNS[] = TABLE_OF_ROWS(tile_columns);

// Rows of the next tile when so many are left: the last two share theirs, as a thin tile waits for its own sums.
INLINE int64_t next_rows(int64_t left) {
  return left <= ROWS ? left : left < ROWS + ROWS * 2 / 3 ? (left + 1) / 2 : ROWS;
}

constexpr int64_t DEPTH = 256;  // of one pass over a panel: DEPTH * PANEL floats stay in the first-level cache

// c (panels, rows, PANEL) = a (rows, depth; rows `stride` floats apart) @ b (panels, depth, PANEL).
INLINE void multiply(const float* a, int64_t stride, int64_t rows, const float* b, int64_t depth, int64_t panels,
                     float* c) {
  for (int64_t d = 0; d < depth; d += DEPTH) {
    int64_t deep = least(DEPTH, depth - d);
    for (int64_t q = 0; q < panels; q++) {
      const float* panel = b + (q * depth + d) * PANEL;
      for (int64_t r = 0, m; r < rows; r += m) {
        m = next_rows(rows - r);
        TILE_ROWS[m](a + r * stride + d, stride, panel, deep, c + (q * rows + r) * PANEL, d > 0);
      }
    }
  }
}

// c (panels, columns, PANEL) = or += a^T (columns, rows) @ b (panels, rows, PANEL); rows of a `stride` floats apart,
// panels of c `panel` floats.
INLINE void multiply_transposed(const float* a, int64_t stride, int64_t columns, int64_t rows, const float* b,
                                int64_t panels, float* c, int64_t panel, bool add) {
  for (int64_t q = 0; q < panels; q++)
    for (int64_t i = 0, m; i < columns; i += m) {
      m = next_rows(columns - i);
      TILE_COLUMNS[m](a + i, stride, b + q * rows * PANEL, rows, c + q * panel + i * PANEL, add);
    }
}

}  // namespace
