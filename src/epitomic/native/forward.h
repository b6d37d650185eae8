// y = max_p gain[p] * (A^T M A)[p] + bias (Eq. 1 to 3 of the paper) and the winning p, or all responses A^T M A + bias.
#pragma once

#include "products.h"

namespace {

// The largest response so far and its first position. A NaN wins.
struct Winner {
  Vec best;
  Ints where;

  __attribute__((always_inline)) void meet(Vec r, int64_t position) {
    Ints better = r > best;
    where = better ? broadcast((int32_t)position) : where;
    best = select(better | (r != r), r, best);
  }
};

// The partial results of a patch (products.h), before the transform along the height.
struct Partial {
  const float* data;
  int64_t panel, plane;  // floats from one panel of outputs, and one plane, to the next
  int64_t wide;          // planes of each row of points

  const float* at(int64_t column, int64_t output) const {
    return data + output / PANEL * panel + output % PANEL + column * plane;
  }
};

// Column `j` of a patch's responses, for one vector of outputs.
template <int V, int D>
INLINE void responses_of(const float* map, const Partial& z, int64_t j, int64_t output, Vec (&column)[D]) {
  Vec points[V];
  UNROLL for (int i = 0; i < V; i++) points[i] = load(z.at(i * z.wide + j, output));
  gather<V, D, false>(map, points, column);
}

// Keeps the best response of a patch. With SQUARE, the window is D x D and whole: the responses stay in registers.
template <int V, int D, bool SQUARE>
INLINE void match_patch(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t, Block panels,
                        int64_t patch, Inside rows, Inside columns, const Partial& z) {
  const int64_t wide = SQUARE ? D : g.dw, window = SQUARE ? D * D : g.window, padded = g.k_panels * PANEL;
  const bool whole = SQUARE || (rows.all(D) && columns.all(wide));
  if (SQUARE) columns.first = 0, columns.last = D;
  int64_t first = panels.first * PANEL, end = min(first + panels.count * PANEL, g.k);
  for (int64_t k = first; k < end; k += LANES) {
    Vec responses[SQUARE ? D * D : D * 8];
    UNROLL for (int64_t j = columns.first; j < columns.last; j++) {
      Vec column[D];
      responses_of<V, D>(p.output_map[0], z, j, k - first, column);
      UNROLL for (int i = 0; i < D; i++) responses[i * wide + j] = column[i];
    }
    if (t.gain) UNROLL for (int64_t i = 0; i < window; i++) responses[i] *= load(t.gain + i * padded + k);
    int64_t start = whole ? 0 : rows.first * wide + columns.first;
    Winner winner = {responses[start], broadcast((int32_t)start)};
    if (whole)
      UNROLL for (int64_t i = 1; i < window; i++) winner.meet(responses[i], i);
    else
      for (int64_t i = rows.first; i < rows.last; i++)
        for (int64_t j = columns.first; j < columns.last; j++) winner.meet(responses[i * wide + j], i * wide + j);
    int64_t to = patch * g.k + k, there = g.k - k;
    store(t.y + to, t.bias ? winner.best + load(t.bias + k) : winner.best, there);
    store_positions(t.positions + to, winner.where, there);
  }
}

// Keeps all responses of a patch, whose first one is pixel (top, left) of image n.
template <int V, int D>
INLINE void keep_patch(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t, Block panels,
                       int64_t n, int64_t top, int64_t left, Inside rows, Inside columns, const Partial& z) {
  int64_t row = p.responses[1] * g.k, first = panels.first * PANEL, end = min(first + panels.count * PANEL, g.k);
  float* y = t.y + (n * p.responses[0] + top) * row + left * g.k;
  for (int64_t k = first; k < end; k += LANES) {
    Vec bias = t.bias ? load(t.bias + k) : Vec{};
    for (int64_t j = columns.first; j < columns.last; j++) {
      Vec column[D];
      responses_of<V, D>(p.output_map[0], z, j, k - first, column);
      UNROLL for (int i = 0; i < D; i++)
        if (i < rows.last) store(y + i * row + j * g.k + k, column[i] + bias, g.k - k);
    }
  }
}

// Transforms along the height, then keeps the best response of each patch or all of them.
template <int V, int D>
void match_block(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t, Block block, Block panels,
                 const float* z, int64_t plane) {
  constexpr bool FITS = D <= 4;  // whether the responses of a square window fit the registers
  Walk at(g, block);
  for (int64_t b = 0; b < block.count; b++, at.next()) {
    int64_t top = at.i * p.stride[0] - p.skipped[0], left = at.j * p.stride[1] - p.skipped[1];
    Inside rows(top, D, p.responses[0]), columns(left, g.dw, p.responses[1]);
    CHECK(rows.first < rows.last && columns.first < columns.last);
    Partial partial = {z + b * PANEL, block.count * PANEL, plane, g.dw};
    if (p.all)
      keep_patch<V, D>(p, g, t, panels, at.n, top, left, rows, columns, partial);
    else if (FITS && g.dw == D && rows.all(D) && columns.all(D))
      match_patch<V, D, FITS>(p, g, t, panels, block.first + b, rows, columns, partial);
    else
      match_patch<V, D, false>(p, g, t, panels, block.first + b, rows, columns, partial);
  }
}

typedef void (*MatchBlock)(const EpitomicProblem&, const Geometry&, const EpitomicTensors&, Block, Block panels,
                           const float* z, int64_t plane);
const MatchBlock MATCH_BLOCK[9][9] = TABLE_OF_WINDOWS(match_block);

// The tasks are blocks of about plan.block patches. With enough patches, their number is a multiple of
// the number of threads.
struct ForwardTasks {
  int64_t count, block;

  ForwardTasks(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan) {
    int64_t rounds = (g.patches + plan.block * p.threads / 2) / (plan.block * p.threads);
    count = min(max(1, rounds) * p.threads, round_up(g.patches, ROWS) / ROWS);
    block = round_up((g.patches + count - 1) / count, ROWS);
  }

  Products products(const Geometry& g, int64_t panels) const { return Products(g, block, g.c, panels, g.dw); }
};

// Task: a block of patches.
INLINE void forward(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan, const EpitomicTensors& t,
                    int64_t task, float* workspace) {
  ForwardTasks tasks(p, g, plan);
  Block panels = part(g.k_panels, plan.output_groups, t.group, 1);
  Products products = tasks.products(g, panels.count);
  Block block = part(g.patches, tasks.count, task, ROWS);
  CHECK(block.count > 0 && block.count <= tasks.block);
  Image image = input_image(p, g, t);
  for (int64_t vh = 0; vh < g.vh; vh++) {
    image_row(g, image, block, {0, g.c}, vh, products.left_factor(workspace));
    products.row(g, t.u, panels.count, 0, g.k - panels.first * PANEL, GATHER_ALL[g.vw][g.dw], p.output_map[1], vh,
                 block.count, workspace);
  }
  MATCH_BLOCK[g.vh][g.dh](p, g, t, block, panels, workspace + products.partial_at, products.partial);
}

}  // namespace
