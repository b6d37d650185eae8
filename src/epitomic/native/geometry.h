// Sizes derived from a problem, and how its patches are cut into blocks.
#pragma once

#include "vec.h"

namespace {

struct Geometry {
  int64_t vh, vw, wh, ww, dh, dw;  // points, filter and window of each axis
  int64_t points, window;          // V*V and D*D
  int64_t oh, ow, patches;
  int64_t c, k, c_panels, k_panels;
  int64_t row;                     // floats of an input row

  explicit Geometry(const EpitomicProblem& p)
      : vh(p.kernel[0] + p.pool[0] - 1), vw(p.kernel[1] + p.pool[1] - 1), wh(p.kernel[0]), ww(p.kernel[1]),
        dh(p.pool[0]), dw(p.pool[1]), points(vh * vw), window(dh * dw), oh((p.h - wh) / p.stride[0] + 1),
        ow((p.w - ww) / p.stride[1] + 1), patches(p.n * oh * ow), c(p.c), k(p.k), c_panels(up(c, PANEL) / PANEL),
        k_panels(up(k, PANEL) / PANEL), row(p.w * p.c) {
    CHECK(wh >= 1 && ww >= 1 && dh >= 1 && dw >= 1 && vh <= 8 && vw <= 8);
    CHECK(p.n >= 1 && p.h >= wh && p.w >= ww && c >= 1 && k >= 1 && p.stride[0] >= 1 && p.stride[1] >= 1);
  }
};

// A run of patches, numbered row by row through all images.
struct Block {
  int64_t first, count;
};

// At which pixel of the input each patch of a block begins.
INLINE void locate(const EpitomicProblem& p, const Geometry& g, Block block, int64_t* offsets) {
  int64_t j = block.first % g.ow, i = block.first / g.ow % g.oh, n = block.first / g.ow / g.oh;
  for (int64_t b = 0; b < block.count; b++) {
    offsets[b] = (n * p.h + i * p.stride[0]) * p.w + j * p.stride[1];
    if (++j == g.ow) {
      j = 0;
      if (++i == g.oh) i = 0, n++;
    }
  }
}

// Runs of nearly equal length: the i-th of `parts` of `total`, in multiples of `unit`.
INLINE Block part(int64_t total, int64_t parts, int64_t i, int64_t unit) {
  int64_t units = up(total, unit) / unit;
  int64_t begin = units * i / parts * unit, end = units * (i + 1) / parts * unit;
  return {begin, least(end, total) - begin};
}

}  // namespace
