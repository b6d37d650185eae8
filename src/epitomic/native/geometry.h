// Sizes derived from a problem, and how its patches are cut into blocks.
#pragma once

#include "vec.h"

namespace {

struct Geometry {
  int64_t vh, vw, ph, pw, sh, sw, dh, dw;  // points, and sizes of patch, weights and window, of each axis
  int64_t points, window, taps;            // V*V, D*D and S*S
  int64_t oh, ow, patches;
  int64_t c, k, c_panels, k_panels;
  int64_t row;                             // floats in a row of the input
  int64_t patch_map[2], weight_map[2];     // where in TABLE_OF_MAPS: 0 for the data

  explicit Geometry(const EpitomicProblem& p)
      : vh(max(p.patch[0], p.weight[0])), vw(max(p.patch[1], p.weight[1])), ph(p.patch[0]), pw(p.patch[1]),
        sh(p.weight[0]), sw(p.weight[1]), dh(vh - min(ph, sh) + 1), dw(vw - min(pw, sw) + 1), points(vh * vw),
        window(dh * dw), taps(sh * sw), oh(p.grid[0]), ow(p.grid[1]), patches(p.n * oh * ow), c(p.c), k(p.k),
        c_panels(round_up(c, PANEL) / PANEL), k_panels(round_up(k, PANEL) / PANEL), row(p.w * p.c) {
    for (int i = 0; i < 2; i++) {
      bool is_data = p.patch[i] > p.weight[i];
      patch_map[i] = is_data ? 0 : p.patch[i];
      weight_map[i] = is_data ? p.weight[i] : 0;
      CHECK(p.patch[i] >= 1 && p.weight[i] >= 1 && p.stride[i] >= 1 && p.before[i] >= 0 && p.grid[i] >= 1);
    }
    CHECK(vh <= 8 && vw <= 8 && p.n >= 1 && p.h >= 1 && p.w >= 1 && c >= 1 && k >= 1);
    CHECK(!p.all || (p.stride[0] == dh && p.stride[1] == dw && p.skipped[0] == 0 && p.skipped[1] == 0));
  }
};

// A run of patches, numbered row by row through all images.
struct Block {
  int64_t first, count;
};

// The patches of a block, one after another.
struct Walk {
  int64_t n, i, j, oh, ow;

  Walk(const Geometry& g, Block block)
      : n(block.first / g.ow / g.oh), i(block.first / g.ow % g.oh), j(block.first % g.ow), oh(g.oh), ow(g.ow) {}

  void next() {
    if (++j < ow) return;
    j = 0;
    if (++i < oh) return;
    i = 0;
    n++;
  }
};

// Those of `size` values from `start` on that lie in [0, end): from `first` up to `last`, itself not included.
struct Inside {
  int64_t first, last;

  Inside(int64_t start, int64_t size, int64_t end)
      : first(start < 0 ? min(-start, size) : 0), last(max(first, min(size, end - start))) {}

  bool all(int64_t size) const { return first == 0 && last == size; }
};

// Returns the i-th of `parts` nearly equal runs that make up `total`, in multiples of `unit`.
INLINE Block part(int64_t total, int64_t parts, int64_t i, int64_t unit) {
  int64_t units = round_up(total, unit) / unit;
  int64_t begin = units * i / parts * unit, end = units * (i + 1) / parts * unit;
  return {begin, min(end, total) - begin};
}

}  // namespace
