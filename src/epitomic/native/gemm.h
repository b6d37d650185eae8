// Small matrix products in registers: a tile of ROWS rows and one panel.
#pragma once

#include "vec.h"

namespace {

// c (M, PANEL) = or += a (M, depth) @ b (depth, PANEL); a[i, d] lies at a[i * row + d * step]. N of the panel's two
// vectors hold data; with N = 1, the second one is filled with zeros.
template <int M, int N>
INLINE void tile(const float* a, int64_t row, int64_t step, const float* b, int64_t depth, float* c, bool add) {
  Vec acc[M][N];
  UNROLL for (int i = 0; i < M; i++)
    UNROLL for (int n = 0; n < N; n++) acc[i][n] = add ? load(c + i * PANEL + n * LANES) : Vec{};
  for (int64_t d = 0; d < depth; d++, a += step, b += PANEL) {
    Vec panel[N];
    UNROLL for (int n = 0; n < N; n++) panel[n] = load(b + n * LANES);
    UNROLL for (int i = 0; i < M; i++) {
      Vec value = broadcast(a[i * row]);
      UNROLL for (int n = 0; n < N; n++) acc[i][n] += value * panel[n];
    }
  }
  UNROLL for (int i = 0; i < M; i++) {
    UNROLL for (int n = 0; n < N; n++) store(c + i * PANEL + n * LANES, acc[i][n]);
    if (N == 1) store(c + i * PANEL + LANES, Vec{});
  }
}

// The tile for row-major a, whose depth is contiguous, as in M = X U.
template <int M, int N>
void tile_rows(const float* a, int64_t row, const float* b, int64_t depth, float* c, bool add) {
  tile<M, N>(a, row, 1, b, depth, c, add);
}

// The tile for transposed a, whose rows are contiguous, as in dU = X^T dM.
template <int M, int N>
void tile_columns(const float* a, int64_t step, const float* b, int64_t depth, float* c, bool add) {
  tile<M, N>(a, 1, step, b, depth, c, add);
}

typedef void (*Tile)(const float* a, int64_t stride, const float* b, int64_t depth, float* c, bool add);

// Tables of tiles, indexed as [N][M].
#if EPITOMIC_ROWS == 12
#define TILES_OF(F, N) \
  {nullptr, F<1, N>, F<2, N>, F<3, N>, F<4, N>,  F<5, N>,  F<6, N>, \
            F<7, N>, F<8, N>, F<9, N>, F<10, N>, F<11, N>, F<12, N>}
#else
#define TILES_OF(F, N) {nullptr, F<1, N>, F<2, N>, F<3, N>, F<4, N>, F<5, N>, F<6, N>}
#endif

const Tile TILE_ROWS[3][ROWS + 1] = {{}, TILES_OF(tile_rows, 1), TILES_OF(tile_rows, 2)};
const Tile TILE_COLUMNS[3][ROWS + 1] = {{}, TILES_OF(tile_columns, 1), TILES_OF(tile_columns, 2)};

// Rows of the next tile when `left` rows are left. The last two tiles share them: a thin one would wait for
// its own sums.
INLINE int64_t next_rows(int64_t left) {
  return left <= ROWS ? left : left < ROWS + ROWS * 2 / 3 ? (left + 1) / 2 : ROWS;
}

constexpr int64_t DEPTH = 256;  // depth of one pass over a panel: DEPTH * PANEL floats fit the first-level cache

// How many vectors of panel q hold data, in a matrix of `columns` columns.
INLINE int64_t vectors_of(int64_t q, int64_t columns) { return columns - q * PANEL > LANES ? 2 : 1; }

// c (panels, rows, PANEL) = a (rows, depth) @ b (panels, depth, PANEL). Rows of a are `stride` floats apart. `columns`
// counts the columns from b's first panel on; there may be more than these panels hold.
INLINE void multiply(const float* a, int64_t stride, int64_t rows, const float* b, int64_t depth, int64_t panels,
                     int64_t columns, float* c) {
  for (int64_t d = 0; d < depth; d += DEPTH) {
    int64_t deep = min(DEPTH, depth - d);
    for (int64_t q = 0; q < panels; q++) {
      const float* panel = b + (q * depth + d) * PANEL;
      const Tile* tiles = TILE_ROWS[vectors_of(q, columns)];
      for (int64_t r = 0, m; r < rows; r += m) {
        m = next_rows(rows - r);
        tiles[m](a + r * stride + d, stride, panel, deep, c + (q * rows + r) * PANEL, d > 0);
      }
    }
  }
}

// c (panels, wide, PANEL) = or += a^T (wide, rows) @ b (panels, rows, PANEL). `columns` is as in `multiply`. Rows of a
// are `stride` floats apart, panels of c `panel` floats.
INLINE void multiply_transposed(const float* a, int64_t stride, int64_t wide, int64_t rows, const float* b,
                                int64_t panels, int64_t columns, float* c, int64_t panel, bool add) {
  for (int64_t q = 0; q < panels; q++) {
    const Tile* tiles = TILE_COLUMNS[vectors_of(q, columns)];
    for (int64_t i = 0, m; i < wide; i += m) {
      m = next_rows(wide - i);
      tiles[m](a + i, stride, b + q * rows * PANEL, rows, c + q * panel + i * PANEL, add);
    }
  }
}

}  // namespace
