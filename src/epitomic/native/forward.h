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

// Transforms along the height, then keeps the best response of each patch or all of them.
template <int V, int D>
void match_block(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t, Block block, Block panels,
                 const float* z, int64_t plane) {
  int64_t padded = g.k_panels * PANEL, first = panels.first * PANEL, end = first + panels.count * PANEL;
  Walk at(g, block);
  for (int64_t b = 0; b < block.count; b++, at.next()) {
    int64_t top = at.i * p.stride[0] - p.skipped[0], left = at.j * p.stride[1] - p.skipped[1];
    Inside rows(top, D, p.responses[0]), columns(left, g.dw, p.responses[1]);
    bool whole = rows.all(D) && columns.all(g.dw);
    CHECK(rows.first < rows.last && columns.first < columns.last);
    for (int64_t k = first; k < min(end, g.k); k += LANES) {
      const float* from = z + ((k / PANEL - panels.first) * block.count + b) * PANEL + k % PANEL;
      int64_t there = g.k - k;
      Vec bias = t.bias ? load(t.bias + k) : Vec{}, responses[D * 8];
      for (int64_t j = columns.first; j < columns.last; j++) {
        Vec points[V], column[D];
        UNROLL for (int i = 0; i < V; i++) points[i] = load(from + (i * g.dw + j) * plane);
        gather<V, D, false>(p.output_map[0], points, column);
        if (p.all) {
          float* to = t.y + ((at.n * p.responses[0] + top) * p.responses[1] + left + j) * g.k + k;
          UNROLL for (int i = 0; i < D; i++)
            if (i < rows.last) store(to + i * p.responses[1] * g.k, column[i] + bias, there);
        } else {
          UNROLL for (int i = 0; i < D; i++) responses[i * g.dw + j] = column[i];
        }
      }
      if (p.all) continue;
      if (t.gain)
        for (int64_t i = 0; i < g.window; i++) responses[i] *= load(t.gain + i * padded + k);
      int64_t start = rows.first * g.dw + columns.first;
      Winner winner = {responses[start], broadcast((int32_t)start)};
      if (whole)
        for (int64_t i = 1; i < g.window; i++) winner.meet(responses[i], i);
      else
        for (int64_t i = rows.first; i < rows.last; i++)
          for (int64_t j = columns.first; j < columns.last; j++) winner.meet(responses[i * g.dw + j], i * g.dw + j);
      int64_t to = (block.first + b) * g.k + k;
      store(t.y + to, winner.best + bias, there);
      store_positions(t.positions + to, winner.where, there);
    }
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
