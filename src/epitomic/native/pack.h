// Epitomes to U = B^T v B in panels, and dU back to the gradient of the epitomes.
#pragma once

#include "geometry.h"
#include "transforms.h"

namespace {

// A dense V x V map along an axis of vectors.
template <int V>
void map_all(const float* m, const float* in, int64_t in_tap, float* out, int64_t out_tap, int64_t vectors) {
  for (int64_t v = 0; v < vectors; v++, in += LANES, out += LANES) {
    Vec x[V];
    UNROLL for (int j = 0; j < V; j++) x[j] = load(in + j * in_tap);
    UNROLL for (int i = 0; i < V; i++) {
      Vec sum = m[i * V] * x[0];
      UNROLL for (int j = 1; j < V; j++) sum += m[i * V + j] * x[j];
      store(out + i * out_tap, sum);
    }
  }
}

const MapAll MAP_ALL[9] = {nullptr,    map_all<1>, map_all<2>, map_all<3>, map_all<4>,
                           map_all<5>, map_all<6>, map_all<7>, map_all<8>};

constexpr int64_t PACK_DEPTH = 32;  // rows of a panel that a task makes
constexpr int64_t PACK_AHEAD = 4;   // rows from the one that is made to the one that is fetched

INLINE int64_t pack_tasks(int64_t panels, int64_t depth) { return panels * ((depth + PACK_DEPTH - 1) / PACK_DEPTH); }

// Task: up to PACK_DEPTH rows of one panel of a group, at every point. A column i of row d is the epitome plane that
// starts at epitomes[i * column + d * row].
INLINE void pack(const EpitomicProblem& p, const Geometry& g, const float* epitomes, int64_t columns, int64_t column,
                 int64_t depth, int64_t row, Block group, float* u, int64_t task) {
  int64_t chunks = (depth + PACK_DEPTH - 1) / PACK_DEPTH, panel = task / chunks;
  if (panel >= group.count) return;  // there are as many tasks as the largest group has
  Block rows = part(depth, chunks, task % chunks, 1);
  int64_t first = (group.first + panel) * PANEL, there = least(PANEL, columns - first);
  alignas(64) float plane[64 * PANEL] = {}, half[64 * PANEL];
  for (int64_t d = rows.first; d < rows.first + rows.count; d++) {
    const float* from = epitomes + first * column + d * row;
    if (d + PACK_AHEAD < depth)  // too many streams for the processor to foresee
      for (int64_t i = 0; i < there; i++)
        for (int64_t l = 0; l < g.points; l += LINE) __builtin_prefetch(from + i * column + PACK_AHEAD * row + l);
    transpose(from, there, column, g.points, plane, PANEL);
    MAP_ALL[g.vh](p.epitome[0], plane, g.vw * PANEL, half, g.vw * PANEL, 2 * g.vw);
    int64_t tap = group.count * depth * PANEL;
    for (int64_t vh = 0; vh < g.vh; vh++)
      MAP_ALL[g.vw](p.epitome[1], half + vh * g.vw * PANEL, PANEL, u + vh * g.vw * tap + (panel * depth + d) * PANEL,
                    tap, 2);
  }
}

// Task as of `pack` with epitomes as columns: the transpose of both maps, summed over slices.
INLINE void unpack(const EpitomicProblem& p, const Geometry& g, const EpitomicPlan& plan, Block group, const float* du,
                   float* depitomes, int64_t task) {
  int64_t chunks = (g.c + PACK_DEPTH - 1) / PACK_DEPTH, panel = task / chunks;
  if (panel >= group.count) return;
  Block rows = part(g.c, chunks, task % chunks, 1);
  int64_t first = (group.first + panel) * PANEL, there = least(PANEL, g.k - first);
  float high[64], wide[64];
  for (int64_t i = 0; i < g.vh; i++)
    for (int64_t j = 0; j < g.vh; j++) high[i * g.vh + j] = p.epitome[0][j * g.vh + i];
  for (int64_t i = 0; i < g.vw; i++)
    for (int64_t j = 0; j < g.vw; j++) wide[i * g.vw + j] = p.epitome[1][j * g.vw + i];
  alignas(64) float plane[64 * PANEL], half[64 * PANEL];
  int64_t tap = group.count * g.c * PANEL;
  for (int64_t c = rows.first; c < rows.first + rows.count; c++) {
    const float* from = du + (panel * g.c + c) * PANEL;
    for (int64_t t = 0; t < g.points; t++)
      for (int64_t i = 0; i < PANEL; i += LANES) {
        Vec sum = load(from + t * tap + i);
        for (int64_t s = 1; s < plan.slices; s++) sum += load(from + (s * g.points + t) * tap + i);
        store(plane + t * PANEL + i, sum);
      }
    MAP_ALL[g.vh](high, plane, g.vw * PANEL, half, g.vw * PANEL, 2 * g.vw);
    for (int64_t vh = 0; vh < g.vh; vh++)
      MAP_ALL[g.vw](wide, half + vh * g.vw * PANEL, PANEL, plane + vh * g.vw * PANEL, PANEL, 2);
    float* to = depitomes + (first * g.c + c) * g.points;
    transpose(plane, g.points, PANEL, there, to, g.c * g.points);
  }
}

// ---- What the packed epitomes were made from: a task hashes HASH_FLOATS of them. A change of one value always shows.

constexpr int64_t HASH_FLOATS = 1 << 16;

INLINE uint64_t hash(const float* data, int64_t count) {
  constexpr int LANES_OF_HASH = 8;
  uint64_t h[LANES_OF_HASH];
  for (int i = 0; i < LANES_OF_HASH; i++) h[i] = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
  const uint32_t* words = (const uint32_t*)data;
  int64_t at = 0;
  for (; at + 2 * LANES_OF_HASH <= count; at += 2 * LANES_OF_HASH)
    UNROLL for (int i = 0; i < LANES_OF_HASH; i++) {
      uint64_t word;
      __builtin_memcpy(&word, words + at + 2 * i, 8);
      h[i] = (h[i] ^ word) * 0xd6e8feb86659fd93u;
      h[i] ^= h[i] >> 32;
    }
  uint64_t all = (uint64_t)count;
  for (; at < count; at++) {
    uint32_t word;
    __builtin_memcpy(&word, words + at, 4);
    all = (all ^ word) * 0xd6e8feb86659fd93u;
    all ^= all >> 32;
  }
  for (int i = 0; i < LANES_OF_HASH; i++) {
    all = (all ^ h[i]) * 0xd6e8feb86659fd93u;
    all ^= all >> 32;
  }
  return all;
}

}  // namespace
