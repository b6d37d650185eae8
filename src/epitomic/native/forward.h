// y = max_p gain[p] * (A^T M A)[p] + bias, and the winner p.
#pragma once

#include "products.h"

namespace {

// The transform along the height, the window's maximum and its first position; a NaN wins.
template <int V, int D>
void match_block(const EpitomicProblem& p, const Geometry& g, const EpitomicTensors& t, Block block, Block panels,
                 const float* z, int64_t plane) {
  int64_t padded = g.k_panels * PANEL, first = panels.first * PANEL, end = first + panels.count * PANEL;
  for (int64_t b = 0; b < block.count; b++) {
    for (int64_t k = first; k < least(end, g.k); k += LANES) {
      const float* from = z + ((k / PANEL - panels.first) * block.count + b) * PANEL + k % PANEL;
      Vec responses[D * 8];
      for (int64_t j = 0; j < g.dw; j++) {
        Vec points[V], column[D];
        UNROLL for (int i = 0; i < V; i++) points[i] = load(from + (i * g.dw + j) * plane);
        gather<V, D>(p.output[0], points, column);
        UNROLL for (int i = 0; i < D; i++) responses[i * g.dw + j] = column[i];
      }
      if (t.gain)
        for (int64_t i = 0; i < g.window; i++) responses[i] *= load(t.gain + i * padded + k);
      Vec best = responses[0];
      Ints where = {};
      for (int64_t i = 1; i < g.window; i++) {
        Vec r = responses[i];
        Ints better = r > best;
        where = better ? broadcast((int32_t)i) : where;
        best = select(better | (r != r), r, best);
      }
      if (t.bias) best += load(t.bias + k);
      int64_t at = (block.first + b) * g.k + k;
      store(t.y + at, best, g.k - k);
      store_positions(t.positions + at, where, g.k - k);
    }
  }
}

typedef void (*MatchBlock)(const EpitomicProblem&, const Geometry&, const EpitomicTensors&, Block, Block panels,
                           const float* z, int64_t plane);
const MatchBlock MATCH_BLOCK[9][9] = TABLE_OF_SIZES(match_block);

// Blocks of about plan.block patches, a multiple of the threads of them.
struct ForwardTasks {
  int64_t count, block;

  ForwardTasks(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan) {
    int64_t rounds = (g.patches + plan.block * p.threads / 2) / (plan.block * p.threads);
    count = least(most(1, rounds) * p.threads, up(g.patches, ROWS) / ROWS);
    block = up((g.patches + count - 1) / count, ROWS);
  }

  Products products(const Geometry& g, int64_t panels) const { return Products(g, block, g.c, panels, g.dw); }
};

// Task: a block of patches.
INLINE void forward(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan, const EpitomicTensors& t,
                    int64_t task, float* workspace) {
  ForwardTasks tasks(p, g, plan);
  Block panels = part(g.k_panels, plan.epitome_groups, t.group, 1);
  Products products = tasks.products(g, panels.count);
  Block block = part(g.patches, tasks.count, task, ROWS);
  CHECK(block.count > 0 && block.count <= tasks.block);
  int64_t* offsets = (int64_t*)(workspace + products.offsets_at);
  locate(p, g, block, offsets);
  for (int64_t vh = 0; vh < g.vh; vh++) {
    patch_row(p, g, t, block, offsets, {0, g.c}, vh, products.left_factor(workspace));
    products.row(g, t.u, panels.count, 0, g.k - panels.first * PANEL, p.output[1], vh, block.count, workspace);
  }
  MATCH_BLOCK[g.vh][g.dh](p, g, t, block, panels, workspace + products.partial_at, products.partial);
}

}  // namespace
