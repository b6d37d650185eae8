// From weights to U in panels, and from dU back to the gradient of the weights.
#pragma once

#include "geometry.h"
#include "transforms.h"

namespace {

constexpr int64_t PACK_DEPTH = 32;  // rows of a panel in a task
constexpr int64_t PACK_AHEAD = 4;   // how many rows ahead to prefetch

INLINE int64_t pack_tasks(int64_t panels, int64_t depth) { return panels * ((depth + PACK_DEPTH - 1) / PACK_DEPTH); }

// Floats from one output, channel and tap of the weights to the next.
struct WeightSteps {
  int64_t output, channel, tap;

  WeightSteps(const EpitomicProblem& p, const Geometry& g)
      : output(g.c * g.taps), channel(p.weights_last ? 1 : g.taps), tap(p.weights_last ? g.c : 1) {}
};

// Task: up to PACK_DEPTH rows of one panel of a group, at every point. Column i of row d is the plane of weights that
// starts at weights[i * column + d * row], with its taps `step` floats apart.
INLINE void pack(const EpitomicProblem& p, const Geometry& g, const float* weights, int64_t columns, int64_t column,
                 int64_t depth, int64_t row, int64_t step, Block group, float* u, int64_t task) {
  int64_t chunks = (depth + PACK_DEPTH - 1) / PACK_DEPTH, panel = task / chunks;
  if (panel >= group.count) return;  // tasks are counted for the largest group
  Block rows = part(depth, chunks, task % chunks, 1);
  int64_t first = (group.first + panel) * PANEL, there = min(PANEL, columns - first);
  alignas(64) float plane[64 * PANEL] = {}, half[64 * PANEL];
  for (int64_t d = rows.first; d < rows.first + rows.count; d++) {
    const float* from = weights + first * column + d * row;
    if (step == 1) {
      if (d + PACK_AHEAD < depth)  // more streams than the processor prefetches by itself
        for (int64_t i = 0; i < there; i++)
          for (int64_t l = 0; l < g.taps; l += LINE) __builtin_prefetch(from + i * column + PACK_AHEAD * row + l);
      transpose(from, there, column, g.taps, plane, PANEL);
    } else {
      for (int64_t l = 0; l < g.taps; l++)
        for (int64_t i = 0; i < there; i++) plane[l * PANEL + i] = from[i * column + l * step];
    }
    EVALUATE_ALL[g.vh][g.weight_map[0]](p.weight_map[0], plane, g.sw * PANEL, half, g.sw * PANEL, 2 * g.sw);
    int64_t tap = group.count * depth * PANEL;
    for (int64_t vh = 0; vh < g.vh; vh++)
      EVALUATE_ALL[g.vw][g.weight_map[1]](p.weight_map[1], half + vh * g.sw * PANEL, PANEL,
                                          u + vh * g.vw * tap + (panel * depth + d) * PANEL, tap, 2);
  }
}

// Task: as in `pack`, with outputs as columns. Sums the slices and applies the transposes of both maps.
INLINE void unpack(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan, Block group, const float* du,
                   float* dweights, int64_t task) {
  int64_t chunks = (g.c + PACK_DEPTH - 1) / PACK_DEPTH, panel = task / chunks;
  if (panel >= group.count) return;
  Block rows = part(g.c, chunks, task % chunks, 1);
  int64_t first = (group.first + panel) * PANEL, there = min(PANEL, g.k - first);
  alignas(64) float plane[64 * PANEL], half[64 * PANEL];
  WeightSteps step(p, g);
  int64_t tap = group.count * g.c * PANEL;
  for (int64_t c = rows.first; c < rows.first + rows.count; c++) {
    const float* from = du + (panel * g.c + c) * PANEL;
    for (int64_t t = 0; t < g.points; t++)
      for (int64_t i = 0; i < PANEL; i += LANES) {
        Vec sum = load(from + t * tap + i);
        for (int64_t s = 1; s < plan.slices; s++) sum += load(from + (s * g.points + t) * tap + i);
        store(plane + t * PANEL + i, sum);
      }
    GATHER_ALL[g.vh][g.weight_map[0]](p.weight_map[0], plane, g.vw * PANEL, half, g.vw * PANEL, 2 * g.vw);
    for (int64_t i = 0; i < g.sh; i++)
      GATHER_ALL[g.vw][g.weight_map[1]](p.weight_map[1], half + i * g.vw * PANEL, PANEL, plane + i * g.sw * PANEL,
                                        PANEL, 2);
    float* to = dweights + first * step.output + c * step.channel;
    if (step.tap == 1) {
      transpose(plane, g.taps, PANEL, there, to, step.output);
    } else {
      for (int64_t i = 0; i < there; i++)
        for (int64_t l = 0; l < g.taps; l++) to[i * step.output + l * step.tap] = plane[l * PANEL + i];
    }
  }
}

}  // namespace
